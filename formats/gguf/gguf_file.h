// The GGUF container: metadata and tensors of a mapped file as checked views. Nothing of the weights is read here.
#ifndef LINNET_FORMATS_GGUF_GGUF_FILE_H_
#define LINNET_FORMATS_GGUF_GGUF_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::formats {

// Limits: far above any published file. A count is also bounded by the bytes that are left, before anything is
// allocated.
constexpr uint64_t kMaxGgufMetadata = 1u << 16;    // published files have about 40 entries
constexpr uint64_t kMaxGgufTensors = 1u << 20;     // kMaxLayers layers with a tensor for every expert's matrix
constexpr uint64_t kMaxGgufKeyBytes = 65535;       // the specification's own limit
constexpr uint64_t kMaxGgufTensorNameBytes = 255;  // the specification says 64; some converters go over
constexpr uint32_t kMaxGgufRank = 4;
constexpr uint32_t kMaxGgufArrayDepth = 4;  // arrays of arrays exist in the format, not in language models
constexpr uint32_t kMaxGgufAlignment = 1u << 20;

/// The numbers are the file format's.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
/// "uint32", "string", ...
const char* GgufTypeName(GgufType type);

/// One metadata value; a view into the file's bytes, checked when the file was parsed.
class GgufValue {
 public:
  GgufValue() = default;
  GgufValue(GgufType type, GgufType element_type, uint64_t count, std::span<const std::byte> payload)
      : type_(type), element_type_(element_type), count_(count), payload_(payload) {}

  GgufType type() const { return type_; }
  GgufType element_type() const { return element_type_; }  // of an array; else type()
  uint64_t count() const { return count_; }                // elements of an array; else 1

  /// The value where it is a single integer that is not negative, a number, a bool, a string; else nothing.
  std::optional<uint64_t> AsUnsigned() const;
  std::optional<double> AsNumber() const;
  std::optional<bool> AsBool() const;
  std::optional<std::string_view> AsString() const;

  /// Elements of an array of one of these kinds, widened; false where the value is not such an array (or an element
  /// is negative, for AsUnsignedArray). The output holds `count()` elements, which the file's size bounds.
  bool AsUnsignedArray(std::vector<uint64_t>& out) const;
  bool AsNumberArray(std::vector<double>& out) const;
  bool AsBoolArray(std::vector<bool>& out) const;
  bool AsStringArray(std::vector<std::string_view>& out) const;

 private:
  GgufType type_ = GgufType::kUint8;
  GgufType element_type_ = GgufType::kUint8;
  uint64_t count_ = 0;
  std::span<const std::byte> payload_;  // of an array: its elements
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

/// One tensor; dims are outermost first ([rows, columns]), the file's order reversed.
struct GgufTensor {
  std::string_view name;
  uint32_t type = 0;  // ggml's type number; known to FindGgmlType
  uint32_t rank = 1;
  std::array<uint64_t, kMaxGgufRank> dims = {};
  std::span<const std::byte> data;

  uint64_t columns() const { return dims[rank - 1]; }
  /// All dims but the last, multiplied; rank 1: 1.
  uint64_t rows() const;
  uint64_t row_bytes() const { return data.size() / rows(); }
};

/// A parsed file. Owns nothing but its index: the bytes outlive it.
class GgufFile {
 public:
  /// Reads GGUF versions 2 and 3, little endian. `name` is used in messages and copied.
  /// Refused, each with one line: another magic, version 1, big endian, a truncated file, counts and sizes that the
  /// file cannot hold, unknown types, keys or tensors that appear twice, an alignment that is no power of two, rows
  /// that are no whole number of blocks, tensors that are misaligned, overlap or leave the file.
  /// Errors: kInvalidModel, kUnsupported. Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
  static Result<GgufFile> Parse(std::span<const std::byte> bytes, std::string_view name, Diagnostic* diagnostic);

  const std::string& name() const { return name_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }
  /// Sorted by key.
  std::span<const GgufEntry> metadata() const { return metadata_; }
  /// In the order of their data in the file.
  std::span<const GgufTensor> tensors() const { return tensors_; }

  /// Null where absent.
  const GgufValue* Find(std::string_view key) const;
  const GgufTensor* FindTensor(std::string_view tensor_name) const;

 private:
  friend class GgufParser;
  std::string name_;
  std::span<const std::byte> bytes_;
  uint32_t version_ = 0;
  uint32_t alignment_ = 0;
  std::vector<GgufEntry> metadata_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> by_name_;  // indices into tensors_, sorted by name
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_GGUF_GGUF_FILE_H_
