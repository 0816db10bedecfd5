#include "formats/gguf/checkpoint.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "formats/gguf/architectures.h"
#include "formats/gguf/dequantize.h"
#include "formats/gguf/describe.h"
#include "formats/gguf/read_tokenizer.h"
#include "formats/gguf/tensor_map.h"

namespace linnet::formats {
namespace {

uint64_t SourceKey(TensorRole role, int32_t layer) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(layer)) << 8) | static_cast<uint8_t>(role);
}

// Neighbouring stored rows.
void ReadStored(const GgufTensor& tensor, uint64_t row, uint64_t count, float* out) {
  const GgmlType& type = *FindGgmlType(tensor.type);
  type.dequantize(tensor.data.data() + row * tensor.row_bytes(), count * (tensor.columns() / type.block_size), out);
}

// Rows [begin, begin + count) of a part, in Linnet's order.
void ReadPartRows(const GgufPart& part, uint64_t group, uint64_t begin, uint64_t count, float* out) {
  const uint64_t base = group * part.group_stride + part.first;
  if (part.permuted_head_dim == 0) return ReadStored(*part.tensor, base + begin, count, out);
  for (uint64_t i = 0; i < count; ++i) {
    ReadStored(*part.tensor, base + part.Stored(begin + i), 1, out + i * part.tensor->columns());
  }
}

// Rows [begin, begin + count) of the parts, which follow one another.
void ReadStackedRows(std::span<const GgufPart> parts, uint64_t group, uint64_t begin, uint64_t count, float* out) {
  for (const GgufPart& part : parts) {
    if (begin < part.rows && count > 0) {
      const uint64_t here = std::min(count, part.rows - begin);
      ReadPartRows(part, group, begin, here, out);
      out += here * part.tensor->columns();
      count -= here;
      begin = 0;
    } else {
      begin -= std::min(begin, part.rows);
    }
  }
}

// Row `row` of a vector or of a stack of vectors: the parts' values, one part after another.
void ReadVectorRow(const GgufSource& source, uint64_t row, float* out) {
  std::vector<float> stored;
  for (const GgufPart& part : source.parts) {
    stored.resize(part.tensor->columns());
    ReadStored(*part.tensor, row, 1, stored.data());
    for (uint64_t i = 0; i < part.rows; ++i) *out++ = stored[part.first + part.Stored(i)];
  }
}

// Rows of the transposed block of one group: row r is the block's column r.
void ReadTransposed(const GgufPart& part, uint64_t group, uint64_t begin, uint64_t count, float* out) {
  std::vector<float> stored(part.tensor->columns());
  for (uint64_t column = 0; column < part.rows; ++column) {
    ReadStored(*part.tensor, group * part.group_stride + part.first + column, 1, stored.data());
    for (uint64_t i = 0; i < count; ++i) out[i * part.rows + column] = stored[begin + i];
  }
}

// The stored row of row `row` of the group, and the part that it belongs to: of Kind::kRows and kPerGroup.
struct StoredRow {
  const GgufTensor* tensor;
  uint64_t row;
};
StoredRow FindRow(const GgufSource& source, uint64_t group, uint64_t row) {
  std::span<const GgufPart> parts = source.parts;
  if (source.kind == GgufSource::Kind::kPerGroup) {
    parts = parts.subspan(group * source.parts_per_group, source.parts_per_group);
    group = 0;
  }
  while (row >= parts.front().rows) {
    row -= parts.front().rows;
    parts = parts.subspan(1);
  }
  const GgufPart& part = parts.front();
  return {part.tensor, group * part.group_stride + part.first + part.Stored(row)};
}

class GgufCheckpoint final : public Checkpoint {
 public:
  static Result<std::unique_ptr<Checkpoint>> Make(GgufSet files, Diagnostic* diagnostic) {
    std::unique_ptr<GgufCheckpoint> checkpoint(new GgufCheckpoint(std::move(files)));
    LINNET_RETURN_IF_ERROR(checkpoint->Load(diagnostic));
    return std::unique_ptr<Checkpoint>(std::move(checkpoint));
  }

  const CheckpointInfo& info() const override { return info_; }
  std::span<const SourceFile> files() const override { return source_files_; }

  SourceType TypeOf(const TensorRequirement& tensor) const override {
    const GgufSource* source = FindSource(tensor);
    if (source == nullptr) return {"?", 32.0};
    const GgmlType& type = *FindGgmlType(source->parts.front().tensor->type);
    return {type.name, type.bits_per_weight()};
  }

  Status ReadRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                  std::span<float> out, Diagnostic* diagnostic) const override;

  /// Q4_0 is such a grid: 32 levels 0 to 15 that stand for -8 to 7, times an f16.
  uint32_t Q4GridBlock(const TensorRequirement& tensor) const override {
    const GgufSource* source = FindSource(tensor);
    if (source == nullptr || (source->kind != GgufSource::Kind::kRows && source->kind != GgufSource::Kind::kPerGroup)) {
      return 0;
    }
    const bool all = std::all_of(source->parts.begin(), source->parts.end(),
                                 [](const GgufPart& part) { return part.tensor->type == kGgmlQ4_0; });
    return all ? kQ4_0Block : 0;
  }

  Status ReadQ4Grid(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                    const Q4GridRows& out, Diagnostic* diagnostic) const override;

  void Release(const TensorRequirement& tensor) const override {
    const GgufSource* source = FindSource(tensor);
    if (source == nullptr) return;
    for (const GgufPart& part : source->parts) set_.DropPages(part.tensor->data);
  }

 private:
  explicit GgufCheckpoint(GgufSet files) : set_(std::move(files)) {}

  Status Load(Diagnostic* diagnostic);
  Status LoadTokenizer(Diagnostic* diagnostic);
  Status LoadSampling(Diagnostic* diagnostic);
  std::string_view Text(const char* key) const {
    const GgufValue* value = set_.Find(key);
    return value == nullptr ? std::string_view() : value->AsString().value_or(std::string_view());
  }
  const GgufSource* FindSource(const TensorRequirement& tensor) const;
  Result<const GgufSource*> FindRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin,
                                     uint64_t row_count, Diagnostic* diagnostic) const;

  GgufSet set_;
  std::vector<SourceFile> source_files_;
  CheckpointInfo info_;
  std::vector<GgufSource> sources_;  // sorted by role and layer
};

const GgufSource* GgufCheckpoint::FindSource(const TensorRequirement& tensor) const {
  const uint64_t key = SourceKey(tensor.role, tensor.layer);
  const auto found = std::lower_bound(sources_.begin(), sources_.end(), key, [](const GgufSource& source, uint64_t k) {
    return SourceKey(source.role, source.layer) < k;
  });
  return found != sources_.end() && SourceKey(found->role, found->layer) == key ? &*found : nullptr;
}

Status GgufCheckpoint::Load(Diagnostic* diagnostic) {
  for (size_t i = 0; i < set_.files().size(); ++i) {
    const GgufFile& file = set_.files()[i];
    source_files_.push_back({file.name(), file.bytes(), set_.mapping(i)});
  }
  const std::string_view name = Text("general.architecture"), kind = Text("general.type");
  if (name.empty()) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a GGUF metadata key is missing",
                "%s: metadata key \"general.architecture\" is missing", set_.name());
  }
  if (set_.tensor_count() == 0) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a GGUF file without tensors",
                "%s: no tensors: the file holds a vocabulary, not a model", set_.name());
  }
  const GgufArchitecture* architecture = FindGgufArchitecture(name);
  if (architecture == nullptr || (!kind.empty() && kind != "model")) {
    const std::string_view found = architecture == nullptr ? name : kind;
    return Fail(diagnostic, StatusCode::kUnsupported, "this GGUF architecture is not supported",
                "%s: %s \"%.*s\" is not supported", set_.name(),
                architecture == nullptr ? "general.architecture" : "general.type", static_cast<int>(found.size()),
                found.data());
  }
  LINNET_ASSIGN_OR_RETURN(info_.config, DescribeGgufModel(set_, *architecture, diagnostic));
  LINNET_ASSIGN_OR_RETURN(sources_,
                          MapGgufTensors(set_, *architecture, info_.config, RequiredTensors(info_.config), diagnostic));
  std::sort(sources_.begin(), sources_.end(), [](const GgufSource& a, const GgufSource& b) {
    return SourceKey(a.role, a.layer) < SourceKey(b.role, b.layer);
  });
  info_.name = std::string(Text("general.name"));
  info_.license = std::string(Text("general.license"));
  info_.chat_template = std::string(Text("tokenizer.chat_template"));
  LINNET_RETURN_IF_ERROR(LoadTokenizer(diagnostic));
  return LoadSampling(diagnostic);
}

Status GgufCheckpoint::LoadTokenizer(Diagnostic* diagnostic) {
  const Status status = ReadGgufTokenizer(set_.files().front(), &info_.tokenizer, &info_.generation, diagnostic);
  if (!status.ok()) return status;
  if (info_.tokenizer.tokens.size() <= info_.config.vocab_size) return Status::Ok();
  return Fail(diagnostic, StatusCode::kInvalidModel, "the tokenizer has more tokens than the model",
              "%s: tokenizer.ggml.tokens has %zu tokens, expected at most the %u rows of token_embd.weight",
              set_.name(), info_.tokenizer.tokens.size(), info_.config.vocab_size);
}

// Sampling values that some publishers put beside the model.
Status GgufCheckpoint::LoadSampling(Diagnostic* diagnostic) {
  const auto read = [&](const char* key, double low, double high, double& out) {
    const GgufValue* value = set_.Find(key);
    if (value == nullptr) return Status::Ok();
    const std::optional<double> number = value->AsNumber();
    if (number && *number >= low && *number <= high) {
      out = *number;
      return Status::Ok();
    }
    return Fail(diagnostic, StatusCode::kInvalidModel, "a GGUF sampling value is out of range",
                "%s: %s: expected a number from %g to %g", set_.name(), key, low, high);
  };
  GenerationDefaults& generation = info_.generation;
  double temperature = generation.temperature, top_k = generation.top_k, top_p = generation.top_p;
  double penalty = generation.repetition_penalty;
  LINNET_RETURN_IF_ERROR(read("general.sampling.temp", 0.0, 100.0, temperature));
  LINNET_RETURN_IF_ERROR(read("general.sampling.top_k", 0.0, kMaxVocab, top_k));
  LINNET_RETURN_IF_ERROR(read("general.sampling.top_p", 0.0, 1.0, top_p));
  LINNET_RETURN_IF_ERROR(read("general.sampling.penalty_repeat", 0.0, 100.0, penalty));
  generation.temperature = static_cast<float>(temperature);
  generation.top_k = static_cast<int32_t>(top_k);
  generation.top_p = static_cast<float>(top_p);
  generation.repetition_penalty = static_cast<float>(penalty);
  return Status::Ok();
}

Result<const GgufSource*> GgufCheckpoint::FindRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin,
                                                   uint64_t row_count, Diagnostic* diagnostic) const {
  const GgufSource* source = FindSource(tensor);
  const uint64_t groups = tensor.rank == 3 ? tensor.dims[0] : 1;
  const uint64_t rows = tensor.rank == 1 ? 1 : tensor.dims[tensor.rank - 2];
  if (source != nullptr && group < groups && row_begin <= rows && row_count <= rows - row_begin) return source;
  return Fail(diagnostic, StatusCode::kInvalidArgument, "rows outside a tensor",
              "%s: tensor %s of layer %d: rows %llu to %llu of group %llu do not exist", set_.name(),
              TensorRoleName(tensor.role), tensor.layer, static_cast<unsigned long long>(row_begin),
              static_cast<unsigned long long>(row_begin + row_count), static_cast<unsigned long long>(group));
}

Status GgufCheckpoint::ReadQ4Grid(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin,
                                  uint64_t row_count, const Q4GridRows& out, Diagnostic* diagnostic) const {
  LINNET_ASSIGN_OR_RETURN(const GgufSource* const source, FindRows(tensor, group, row_begin, row_count, diagnostic));
  const uint64_t blocks = tensor.dims[tensor.rank - 1] / kQ4_0Block;
  if (Q4GridBlock(tensor) == 0 || out.scales.size() != row_count * blocks ||
      out.levels.size() != row_count * blocks * (kQ4_0Block / 2)) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "rows do not fit their buffer",
                "%s: tensor %s of layer %d: its rows do not fit the buffer, or are no grid", set_.name(),
                TensorRoleName(tensor.role), tensor.layer);
  }
  for (uint64_t i = 0; i < row_count; ++i) {
    const StoredRow stored = FindRow(*source, group, row_begin + i);
    ReadQ4_0Grid(stored.tensor->data.data() + stored.row * stored.tensor->row_bytes(), blocks,
                 out.levels.data() + i * blocks * (kQ4_0Block / 2), out.scales.data() + i * blocks);
  }
  return Status::Ok();
}

Status GgufCheckpoint::ReadRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                                std::span<float> out, Diagnostic* diagnostic) const {
  LINNET_ASSIGN_OR_RETURN(const GgufSource* const source, FindRows(tensor, group, row_begin, row_count, diagnostic));
  const uint64_t columns = tensor.dims[tensor.rank - 1];
  if (out.size() / columns < row_count) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "rows do not fit their buffer",
                "%s: tensor %s of layer %d: %llu rows do not fit the buffer", set_.name(), TensorRoleName(tensor.role),
                tensor.layer, static_cast<unsigned long long>(row_count));
  }
  const std::span<const GgufPart> parts = source->parts;
  switch (source->kind) {
    case GgufSource::Kind::kRows:
      ReadStackedRows(parts, group, row_begin, row_count, out.data());
      break;
    case GgufSource::Kind::kPerGroup:
      ReadStackedRows(parts.subspan(group * source->parts_per_group, source->parts_per_group), 0, row_begin, row_count,
                      out.data());
      break;
    case GgufSource::Kind::kTransposed:
      ReadTransposed(parts.front(), group, row_begin, row_count, out.data());
      break;
    case GgufSource::Kind::kVector:
      for (uint64_t i = 0; i < row_count; ++i) ReadVectorRow(*source, row_begin + i, out.data() + i * columns);
      break;
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> OpenGgufCheckpoint(const std::string& path, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(GgufSet files, GgufSet::Open(path, diagnostic));
  return GgufCheckpoint::Make(std::move(files), diagnostic);
}

Result<std::unique_ptr<Checkpoint>> OpenGgufCheckpointFromBytes(std::span<const std::byte> bytes, std::string_view name,
                                                                Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(GgufSet files, GgufSet::FromBytes(bytes, name, diagnostic));
  return GgufCheckpoint::Make(std::move(files), diagnostic);
}

}  // namespace linnet::formats
