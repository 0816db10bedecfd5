// What an interrupted conversion has done so far: named pieces in a folder, each whole or absent.
#ifndef LINNET_FORMATS_CONVERT_RESUME_STORE_H_
#define LINNET_FORMATS_CONVERT_RESUME_STORE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/file_mapping.h"
#include "formats/linnet/model_content.h"
#include "formats/linnet/sha256.h"

namespace linnet::formats {

// The pieces of a conversion: a budget's losses while they are measured, what was chosen by them, finished blocks.
constexpr const char *kLossesPiece = "losses", *kLogitsPiece = "logits", *kChoicesPiece = "choices";
std::string BlockPiece(int32_t layer);
/// Whether a conversion may have put a file of this name into its folder.
bool IsResumePiece(std::string_view name);

/// The content of a piece, and the file that it is mapped from.
struct ResumePiece {
  FileMapping file;
  std::span<const std::byte> content;
};

/// A file is: the text "LNTPART1", the key (32 bytes), the SHA-256 of the content (32 bytes), the content. A piece with
/// another key (other options, another source), or a damaged one, is as good as none.
class ResumeStore {
 public:
  /// `folder` exists. `key` stands for everything that the pieces depend on.
  ResumeStore(std::string folder, const Sha256Digest& key) : folder_(std::move(folder)), key_(key) {}

  std::optional<ResumePiece> Load(const std::string& name) const;
  /// The content is what the parts are one after the other. False where it could not be kept (a full disk): no reason
  /// to fail, since a run that goes on does it again.
  bool Save(const std::string& name, std::span<const std::span<const std::byte>> parts) const;
  bool Save(const std::string& name, std::span<const std::byte> content) const {
    return Save(name, std::span(&content, 1));
  }
  void Remove(const std::string& name) const;

 private:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
  Sha256Digest key_;
};

/// Appends plain values and bytes with their length; reads them back. A reader that runs short fails from then on.
class PieceWriter {
 public:
  template <typename T>
  void Value(const T& value) {
    Append(std::as_bytes(std::span(&value, 1)));
  }
  void Bytes(std::span<const std::byte> bytes) {
    Value(static_cast<uint64_t>(bytes.size()));
    Append(bytes);
  }
  std::span<const std::byte> content() const { return content_; }

 private:
  void Append(std::span<const std::byte> bytes) { content_.insert(content_.end(), bytes.begin(), bytes.end()); }
  std::vector<std::byte> content_;
};

class PieceReader {
 public:
  explicit PieceReader(std::span<const std::byte> content) : rest_(content) {}

  template <typename T>
  T Value() {
    T value = {};
    const std::span<const std::byte> bytes = Take(sizeof(T));
    if (ok_) std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(&value, 1)).begin());
    return value;
  }
  std::span<const std::byte> Bytes() { return Take(Value<uint64_t>()); }
  /// The next bytes, which are as many as there is room for; false, and nothing, where they are not.
  bool Fill(std::span<std::byte> bytes) {
    const std::span<const std::byte> taken = Bytes();
    ok_ = ok_ && taken.size() == bytes.size();
    if (ok_) std::copy(taken.begin(), taken.end(), bytes.begin());
    return ok_;
  }
  /// False once something was asked for beyond the end.
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  std::span<const std::byte> Take(uint64_t size) {
    ok_ = ok_ && size <= rest_.size();
    if (!ok_) return {};
    const std::span<const std::byte> taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_RESUME_STORE_H_
