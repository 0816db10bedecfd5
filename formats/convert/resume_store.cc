#include "formats/convert/resume_store.h"

#include <algorithm>
#include <array>

#include "core/base/file_mapping.h"

namespace linnet::formats {
namespace {

constexpr std::array<char, 8> kPieceMagic = {'L', 'N', 'T', 'P', 'A', 'R', 'T', '1'};
constexpr size_t kHeaderBytes = kPieceMagic.size() + 2 * sizeof(Sha256Digest);

std::vector<std::byte> MakeHeader(const Sha256Digest& key, std::span<const std::byte> content) {
  Sha256 hash;
  hash.Update(content);
  PieceWriter header;
  header.Value(kPieceMagic);
  header.Value(key);
  header.Value(hash.Finish());
  return {header.content().begin(), header.content().end()};
}

}  // namespace

std::optional<std::vector<std::byte>> ResumeStore::Load(const std::string& name) const {
  Diagnostic ignored;  // a piece that cannot be read is made again
  const auto file = FileMapping::Open(Path(name), &ignored);
  if (!file.ok() || file->bytes().size() < kHeaderBytes) return std::nullopt;
  const std::span<const std::byte> header = file->bytes().first(kHeaderBytes);
  const std::span<const std::byte> content = file->bytes().subspan(kHeaderBytes);
  if (!std::ranges::equal(header, MakeHeader(key_, content))) return std::nullopt;
  return std::vector<std::byte>(content.begin(), content.end());
}

Status ResumeStore::Save(const std::string& name, std::span<const std::byte> content, Diagnostic* diagnostic) const {
  LINNET_ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Create(Path(name), diagnostic));
  LINNET_RETURN_IF_ERROR(file.Append(MakeHeader(key_, content), diagnostic));
  LINNET_RETURN_IF_ERROR(file.Append(content, diagnostic));
  return file.Commit(diagnostic);
}

}  // namespace linnet::formats
