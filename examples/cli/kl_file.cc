#include "examples/cli/kl_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/checked.h"
#include "core/base/model_config.h"

namespace linnet::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "values are written as they are in memory");

constexpr char kMagic[] = "LINNETKL";
constexpr uint32_t kVersion = 1;
constexpr float kRangeNats = 32.0f;  // exp(-32) = 1e-14: nothing below it moves a sum of f32
constexpr float kLevels = 65535.0f;

struct Header {
  char magic[8];
  uint32_t version, vocab_size, context, windows, first_scored;
  uint32_t zeros[9];
};
static_assert(sizeof(Header) == 64);

uint64_t RowBytes(uint32_t vocab_size) { return AlignUp(8 + 2 * uint64_t{vocab_size}, 4); }

bool InRange(const KlShape& shape) {
  return shape.vocab_size >= 1 && shape.vocab_size <= kMaxVocab && shape.context >= 2 && shape.context <= kMaxContext &&
         shape.windows >= 1 && shape.first_scored < shape.context - 1;
}

// Bytes of a whole file, or an error where the counts overflow.
Result<uint64_t> FileBytes(const KlShape& shape) {
  LINNET_ASSIGN_OR_RETURN(const uint64_t rows, CheckedMul(shape.rows(), RowBytes(shape.vocab_size)));
  return CheckedAdd(sizeof(Header) + 4 * uint64_t{shape.windows} * shape.context, rows);
}

}  // namespace

Result<KlWriter> KlWriter::Create(const std::string& path, const KlShape& shape, std::span<const int32_t> tokens,
                                  Diagnostic* diagnostic) {
  KlWriter writer;
  LINNET_ASSIGN_OR_RETURN(writer.file_, AtomicFileWriter::Create(path, diagnostic));
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  header.version = kVersion;
  header.vocab_size = shape.vocab_size;
  header.context = shape.context;
  header.windows = shape.windows;
  header.first_scored = shape.first_scored;
  LINNET_RETURN_IF_ERROR(writer.file_.Append(std::as_bytes(std::span(&header, 1)), diagnostic));
  LINNET_RETURN_IF_ERROR(writer.file_.Append(std::as_bytes(tokens), diagnostic));
  writer.row_.resize(static_cast<size_t>(RowBytes(shape.vocab_size)));
  return writer;
}

Status KlWriter::Append(std::span<const float> log_probs, Diagnostic* diagnostic) {
  const auto [lowest, highest] = std::minmax_element(log_probs.begin(), log_probs.end());
  const float top = *highest;
  const float step = std::clamp(top - *lowest, 1e-6f, kRangeNats) / kLevels;
  std::memcpy(row_.data(), &top, sizeof(top));
  std::memcpy(row_.data() + 4, &step, sizeof(step));
  for (size_t i = 0; i < log_probs.size(); ++i) {
    const auto q = static_cast<uint16_t>(std::min((top - log_probs[i]) / step + 0.5f, kLevels));
    std::memcpy(row_.data() + 8 + 2 * i, &q, sizeof(q));
  }
  return file_.Append(row_, diagnostic);
}

Result<KlReader> KlReader::Open(const std::string& path, Diagnostic* diagnostic) {
  KlReader reader;
  LINNET_ASSIGN_OR_RETURN(reader.file_, FileMapping::Open(path, diagnostic));
  const auto bytes = reader.file_.bytes();
  Header header = {};
  if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0 || header.version != kVersion) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "no file of saved logits",
                "%s: expected a file that --save-logits wrote (version %u), found another", path.c_str(), kVersion);
  }
  reader.shape_ = {header.vocab_size, header.context, header.windows, header.first_scored};
  const auto expected = InRange(reader.shape_) ? FileBytes(reader.shape_) : Result<uint64_t>(uint64_t{0});
  if (!expected.ok() || *expected != bytes.size()) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a damaged file of saved logits",
                "%s: expected %llu bytes, found %zu", path.c_str(),
                static_cast<unsigned long long>(expected.ok() ? *expected : 0), bytes.size());
  }
  return reader;
}

std::span<const int32_t> KlReader::tokens() const {
  const auto* first = reinterpret_cast<const int32_t*>(file_.bytes().data() + sizeof(Header));
  return {first, size_t{shape_.windows} * shape_.context};
}

void KlReader::Read(uint64_t index, std::span<float> out) const {
  const std::byte* row =
      file_.bytes().data() + sizeof(Header) + tokens().size_bytes() + index * RowBytes(shape_.vocab_size);
  float top = 0.0f;
  float step = 0.0f;
  std::memcpy(&top, row, sizeof(top));
  std::memcpy(&step, row + 4, sizeof(step));
  double sum = 0.0;
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t q = 0;
    std::memcpy(&q, row + 8 + 2 * i, sizeof(q));
    out[i] = top - static_cast<float>(q) * step;
    sum += std::exp(out[i]);
  }
  // A damaged row must not become a number that looks like a result: NaN passes through to the report.
  const auto correction = static_cast<float>(std::log(sum));
  for (float& value : out) value -= correction;
}

}  // namespace linnet::cli
