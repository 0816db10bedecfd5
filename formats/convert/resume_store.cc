#include "formats/convert/resume_store.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

namespace linnet::formats {
namespace {

constexpr std::array<char, 8> kPieceMagic = {'L', 'N', 'T', 'P', 'A', 'R', 'T', '1'};
constexpr size_t kHeaderBytes = kPieceMagic.size() + 2 * sizeof(Sha256Digest);
constexpr std::string_view kBlockPrefix = "block-";

std::vector<std::byte> MakeHeader(const Sha256Digest& key, std::span<const std::span<const std::byte>> parts) {
  Sha256 hash;
  for (const std::span<const std::byte> part : parts) hash.Update(part);
  PieceWriter header;
  header.Value(kPieceMagic);
  header.Value(key);
  header.Value(hash.Finish());
  return {header.content().begin(), header.content().end()};
}

}  // namespace

std::string BlockPiece(int32_t layer) { return std::string(kBlockPrefix) + std::to_string(layer); }

bool IsResumePiece(std::string_view name) {
  return name == kLossesPiece || name == kLogitsPiece || name == kChoicesPiece || name.starts_with(kBlockPrefix);
}

std::optional<ResumePiece> ResumeStore::Load(const std::string& name) const {
  auto file = FileMapping::Open(Path(name), nullptr);
  if (!file.ok() || file->bytes().size() < kHeaderBytes) return std::nullopt;
  const std::span<const std::byte> header = file->bytes().first(kHeaderBytes);
  const std::span<const std::byte> content = file->bytes().subspan(kHeaderBytes);
  if (!std::ranges::equal(header, MakeHeader(key_, std::span(&content, 1)))) return std::nullopt;
  return ResumePiece{std::move(*file), content};
}

bool ResumeStore::Save(const std::string& name, std::span<const std::span<const std::byte>> parts) const {
  auto file = AtomicFileWriter::Create(Path(name), nullptr);
  bool ok = file.ok() && file->Append(MakeHeader(key_, parts), nullptr).ok();
  for (const std::span<const std::byte> part : parts) ok = ok && file->Append(part, nullptr).ok();
  return ok && file->Commit(nullptr).ok();
}

void ResumeStore::Remove(const std::string& name) const {
  std::error_code ignored;  // a piece that stays is only in the way of nothing
  std::filesystem::remove(Path(name), ignored);
}

}  // namespace linnet::formats
