#include "formats/huggingface/weight_reader.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace linnet::formats {
namespace {

/// A role's shape as groups of matrices. Gains, biases and sinks are columns: their elements are rows.
struct Shape {
  uint64_t groups = 1, rows = 1, columns = 1;
  bool is_vector = false;
};

bool IsVectorRole(TensorRole role) {
  return !IsLinearRole(role) && role != TensorRole::kTokenEmbedding && role != TensorRole::kPositionEmbedding &&
         role != TensorRole::kRouter && role != TensorRole::kSharedGate;
}

Shape ShapeOf(const TensorRequirement& tensor) {
  if (IsVectorRole(tensor.role)) {
    if (tensor.rank == 1) return {1, tensor.dims[0], 1, true};
    return {tensor.dims[0], tensor.dims[1], 1, true};
  }
  if (tensor.rank == 2) return {1, tensor.dims[0], tensor.dims[1], false};
  return {tensor.dims[0], tensor.dims[1], tensor.dims[2], false};
}

/// How a pattern's tensor is cut into the role's rows.
struct Layout {
  std::vector<RowMap> maps;
  std::vector<uint64_t> shape;  // expected of the source tensor
  uint64_t src_rows = 0;
  uint64_t group_begin = 0, group_stride = 0;  // elements
  bool transposed = false;
};

RowMap WholeRows(uint64_t dst_begin, uint64_t rows) { return {dst_begin, rows, 0, rows, 0}; }

std::vector<RowMap> GroupedQkvMaps(const AttentionSpec& attention) {
  const uint64_t dim = attention.head_dim, heads = attention.n_heads, kv_heads = attention.n_kv_heads;
  const uint64_t q_block = heads / kv_heads * dim, stride = q_block + 2 * dim;
  return {{0, heads * dim, 0, q_block, stride},
          {heads * dim, kv_heads * dim, q_block, dim, stride},
          {(heads + kv_heads) * dim, kv_heads * dim, q_block + dim, dim, stride}};
}

std::vector<RowMap> MapsOf(PartKind kind, uint64_t rows, const AttentionSpec& attention, uint64_t rope_dim) {
  const uint64_t q_rows = uint64_t{attention.n_heads} * attention.head_dim;
  const uint64_t k_rows = uint64_t{attention.n_kv_heads} * attention.head_dim;
  const uint64_t latent_rows = attention.kv_lora_rank + rope_dim;
  switch (kind) {
    case PartKind::kQ:
      return {WholeRows(0, q_rows)};
    case PartKind::kK:
      return {WholeRows(q_rows, k_rows)};
    case PartKind::kV:
      return {WholeRows(q_rows + k_rows, k_rows)};
    case PartKind::kQkvGrouped:
      return GroupedQkvMaps(attention);
    case PartKind::kGate:
      return {WholeRows(0, rows / 2)};
    case PartKind::kUp:
      return {WholeRows(rows / 2, rows / 2)};
    case PartKind::kGateUpInterleaved:
      return {{0, rows / 2, 0, 1, 2}, {rows / 2, rows / 2, 1, 1, 2}};
    case PartKind::kLatentQ:
      return {WholeRows(0, rows - latent_rows)};
    case PartKind::kLatentKv:
      return {WholeRows(rows - latent_rows, latent_rows)};
    case PartKind::kAll:
    case PartKind::kKeyOfKvB:
    case PartKind::kValueOfKvB:
      break;
  }
  return {WholeRows(0, rows)};
}

bool NamesItsGroup(const char* name) {
  return std::strstr(name, "{expert}") != nullptr || std::strstr(name, "{head}") != nullptr;
}

Layout LayoutOf(const WeightPattern& pattern, const TensorRequirement& tensor, const ModelConfig& config) {
  static const AttentionSpec kNoAttention;
  const Shape shape = ShapeOf(tensor);
  const AttentionSpec& attention =
      tensor.layer >= 0 ? config.layer(static_cast<uint32_t>(tensor.layer)).attention : kNoAttention;
  const uint64_t rope_dim = attention.rope >= 0 ? config.ropes[static_cast<size_t>(attention.rope)].rope_dim : 0;
  Layout layout;
  layout.maps = MapsOf(pattern.kind, shape.rows, attention, rope_dim);
  for (const RowMap& map : layout.maps) layout.src_rows += map.rows;
  if (pattern.kind == PartKind::kKeyOfKvB || pattern.kind == PartKind::kValueOfKvB) {
    const uint64_t key_rows = attention.head_dim - rope_dim, latent = attention.kv_lora_rank;
    const uint64_t head_rows = key_rows + attention.value_dim;
    layout.transposed = pattern.kind == PartKind::kKeyOfKvB;
    layout.group_stride = head_rows * latent;
    layout.group_begin = layout.transposed ? 0 : key_rows * latent;
    layout.shape = {attention.n_heads * head_rows, latent};
    return layout;
  }
  layout.transposed = pattern.transposed;
  layout.group_stride = NamesItsGroup(pattern.name) ? 0 : layout.src_rows * shape.columns;
  // One tensor of all groups has them as its outermost dimension, also where there is only one.
  const bool grouped = tensor.rank == (shape.is_vector ? 2u : 3u);
  if (grouped && layout.group_stride > 0) layout.shape.push_back(shape.groups);
  if (shape.is_vector) {
    layout.shape.push_back(layout.src_rows);
  } else if (layout.transposed) {
    layout.shape.insert(layout.shape.end(), {shape.columns, layout.src_rows});
  } else {
    layout.shape.insert(layout.shape.end(), {layout.src_rows, shape.columns});
  }
  return layout;
}

std::string ShapeText(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

bool Overlap(const std::vector<SourcePart>& parts, const std::vector<RowMap>& maps) {
  for (const SourcePart& part : parts) {
    for (const RowMap& taken : part.maps) {
      for (const RowMap& map : maps) {
        if (map.dst_begin < taken.dst_begin + taken.rows && taken.dst_begin < map.dst_begin + map.rows) return true;
      }
    }
  }
  return false;
}

/// * in `pattern` stands for any text.
bool Matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

/// The number behind `prefix` in `name` where a dot follows it, else -1.
int64_t IndexBehind(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return -1;
  int64_t index = 0;
  size_t digits = 0;
  for (name.remove_prefix(prefix.size()); digits < name.size() && digits < 9; ++digits) {
    const char c = name[digits];
    if (c < '0' || c > '9') break;
    index = index * 10 + (c - '0');
  }
  return digits > 0 && digits < name.size() && name[digits] == '.' ? index : -1;
}

/// Rows [begin, end) of the group, `columns` wide, into out.
void ReadPart(const SourcePart& part, uint64_t columns, uint64_t begin, uint64_t end, float* out) {
  for (const RowMap& map : part.maps) {
    const uint64_t stop = std::min(end, map.dst_begin + map.rows);
    uint64_t row = std::max(begin, map.dst_begin);
    while (row < stop) {
      // A run of rows that lie `step` apart in the source: within one block, or all of them where blocks are one row.
      const uint64_t i = row - map.dst_begin;
      const uint64_t step = map.block == 1 ? map.stride : 1;
      const uint64_t count = map.block == 1 ? stop - row : std::min(stop - row, map.block - i % map.block);
      const uint64_t source = map.src_begin + i / map.block * map.stride + i % map.block;
      float* const target = out + (row - begin) * columns;
      if (part.transposed) {
        for (uint64_t k = 0; k < columns; ++k) {
          part.Read({part.first + k * part.src_rows + source, count, step, columns}, target + k);
        }
      } else if (step == 1) {
        part.Read({part.first + source * columns, count * columns, 1, 1}, target);
      } else {
        for (uint64_t k = 0; k < columns; ++k) {
          part.Read({part.first + source * columns + k, count, step * columns, columns}, target + k);
        }
      }
      row += count;
    }
  }
}

constexpr std::string_view kWeightSuffix = ".weight";

/// "a.b.weight" -> "a.b."
std::string StemOf(const std::string& name) { return name.substr(0, name.size() - kWeightSuffix.size() + 1); }

}  // namespace

SourceType SourcePart::type() const {
  if (packed) return {packed->type_name(), packed->bits_per_weight()};
  return {SafetensorsTypeName(tensor->type), 8.0 * static_cast<double>(SafetensorsTypeBytes(tensor->type))};
}

void SourcePart::Read(const ElementRun& run, float* out) const {
  if (packed) return packed->ReadAsF32(run, out);
  ReadAsF32(*tensor, run, out);
}

std::string WeightReader::Expand(const char* pattern, int32_t layer, uint64_t group) const {
  std::string name;
  for (std::string_view rest = pattern; !rest.empty();) {
    const size_t open = rest.find('{');
    name += rest.substr(0, open);
    if (open == std::string_view::npos) break;
    const size_t close = rest.find('}', open);
    LINNET_CHECK(close != std::string_view::npos);
    const std::string_view key = rest.substr(open + 1, close - open - 1);
    name += key == "base" ? std::string(base_) : key == "layer" ? std::to_string(layer) : std::to_string(group);
    rest.remove_prefix(close + 1);
  }
  return name;
}

Status WeightReader::ChooseBase(Diagnostic* diagnostic) {
  std::string tried;
  for (const char* base : names_.bases) {
    base_ = base;
    for (const auto& table : names_.tables) {
      for (const WeightPattern& pattern : table) {
        if (pattern.role != TensorRole::kTokenEmbedding) continue;
        const std::string name = Expand(pattern.name, -1, 0);
        if (source_.Find(name) != nullptr) return Status::Ok();
        tried += (tried.empty() ? "" : ", ") + name;
      }
    }
  }
  return Fail(diagnostic, StatusCode::kInvalidModel, "the token embedding is missing",
              "%s: expected the token embedding as one of %s, found none", source_.listing_name().c_str(),
              tried.c_str());
}

bool WeightReader::IsPacked(const std::string& name) const {
  return packing_.method != PackingMethod::kNone && name.ends_with(kWeightSuffix) &&
         PackedMatrix::Exists(source_, StemOf(name));
}

// The share that the tensor or packed matrix `name`, which exists, has in the group.
Result<SourcePart> WeightReader::MakePart(const WeightPattern& pattern, const std::string& name,
                                          const TensorRequirement& tensor, uint64_t group,
                                          Diagnostic* diagnostic) const {
  Layout layout = LayoutOf(pattern, tensor, config_);
  SourcePart part;
  part.tensor = source_.Find(name);
  part.first = layout.group_begin + group * layout.group_stride;
  part.src_rows = layout.src_rows;
  part.transposed = layout.transposed;
  if (part.tensor == nullptr) {
    if (layout.shape.size() != 2) {
      return Fail(diagnostic, StatusCode::kUnsupported, "a packed weight is no matrix",
                  "%s: tensor %sqweight: expected a weight of shape %s, which is packed in no known way",
                  source_.listing_name().c_str(), StemOf(name).c_str(), ShapeText(layout.shape).c_str());
    }
    if (pattern.transposed) {  // packed matrices are [out, in], whatever the weight would be
      std::swap(layout.shape[0], layout.shape[1]);
      part.transposed = false;
    }
    LINNET_ASSIGN_OR_RETURN(
        part.packed, PackedMatrix::Open(source_, StemOf(name), packing_, layout.shape[0], layout.shape[1], diagnostic));
  } else if (part.tensor->shape != layout.shape) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a tensor has another shape than the config asks for",
                "%s: tensor %s: expected shape %s, found %s", source_.FileNameOf(*part.tensor).c_str(), name.c_str(),
                ShapeText(layout.shape).c_str(), ShapeText(part.tensor->shape).c_str());
  } else if (!IsReadableAsF32(part.tensor->type)) {
    return Fail(diagnostic, StatusCode::kUnsupported, "a weight has an element type that is not read",
                "%s: tensor %s: expected F32, F16 or BF16, found %s", source_.FileNameOf(*part.tensor).c_str(),
                name.c_str(), SafetensorsTypeName(part.tensor->type));
  }
  part.maps = std::move(layout.maps);
  return part;
}

Result<std::vector<SourcePart>> WeightReader::Resolve(const TensorRequirement& tensor, uint64_t group,
                                                      Diagnostic* diagnostic) const {
  std::vector<SourcePart> parts;
  std::string tried;
  uint64_t covered = 0;
  for (const auto& table : names_.tables) {
    for (const WeightPattern& pattern : table) {
      if (pattern.role != tensor.role) continue;
      const std::string name = Expand(pattern.name, tensor.layer, group);
      if (source_.Find(name) == nullptr && !IsPacked(name)) {
        tried += (tried.empty() ? "" : ", ") + name;
        continue;
      }
      const Layout layout = LayoutOf(pattern, tensor, config_);
      if (Overlap(parts, layout.maps)) continue;
      LINNET_ASSIGN_OR_RETURN(SourcePart part, MakePart(pattern, name, tensor, group, diagnostic));
      covered += layout.src_rows;
      parts.push_back(std::move(part));
    }
  }
  if (covered != ShapeOf(tensor).rows) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a tensor is missing",
                "%s: %s of layer %d is missing: found no tensor %s", source_.listing_name().c_str(),
                TensorRoleName(tensor.role), tensor.layer, tried.c_str());
  }
  std::sort(parts.begin(), parts.end(), [](const SourcePart& a, const SourcePart& b) {
    return a.maps.front().dst_begin < b.maps.front().dst_begin;
  });
  return parts;
}

Status WeightReader::Open(Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(ChooseBase(diagnostic));
  std::vector<bool> used(source_.tensors().size(), false);
  for (const TensorRequirement& tensor : RequiredTensors(config_)) {
    const uint64_t groups = ShapeOf(tensor).groups;
    for (uint64_t group = 0; group < groups; ++group) {
      LINNET_ASSIGN_OR_RETURN(const std::vector<SourcePart> parts, Resolve(tensor, group, diagnostic));
      for (const SourcePart& part : parts) {
        part.ForEachTensor(
            [&](const SafetensorsTensor& one) { used[static_cast<size_t>(&one - source_.tensors().data())] = true; });
      }
    }
  }
  return CheckLeftOver(used, diagnostic);
}

Status WeightReader::CheckLeftOver(const std::vector<bool>& used, Diagnostic* diagnostic) const {
  for (size_t i = 0; i < used.size(); ++i) {
    const SafetensorsTensor& tensor = source_.tensors()[i];
    if (used[i] || IsIgnored(tensor.name) || IsZeroBias(tensor)) continue;
    return Fail(diagnostic, StatusCode::kUnsupported, "a tensor is not known",
                "%s: tensor %s has no meaning in family %s with this config.json", source_.FileNameOf(tensor).c_str(),
                tensor.name.c_str(), config_.family.c_str());
  }
  return Status::Ok();
}

// AutoGPTQ writes a bias of zeros beside the packed layers of a model without biases.
bool WeightReader::IsZeroBias(const SafetensorsTensor& tensor) const {
  constexpr std::string_view kBiasSuffix = "bias";
  if (packing_.method == PackingMethod::kNone || !tensor.name.ends_with(".bias")) return false;
  if (!PackedMatrix::Exists(source_, tensor.name.substr(0, tensor.name.size() - kBiasSuffix.size()))) return false;
  return std::all_of(tensor.bytes.begin(), tensor.bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

bool WeightReader::IsIgnored(const std::string& name) const {
  for (const char* pattern : names_.ignored) {
    if (Matches(pattern, name)) return true;
  }
  if (names_.ignore_further_layers && IndexBehind(std::string(base_) + "layers.", name) >= config_.n_layers)
    return true;
  if (!config_.tied_head) return false;
  for (const auto& table : names_.tables) {  // a copy of the embedding table
    for (const WeightPattern& pattern : table) {
      if (pattern.role == TensorRole::kHead && Expand(pattern.name, -1, 0) == name) return true;
    }
  }
  return false;
}

Status WeightReader::ReadRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                              std::span<float> out, Diagnostic* diagnostic) const {
  const Shape shape = ShapeOf(tensor);
  const uint64_t groups = tensor.rank == 3 ? shape.groups : 1;
  const uint64_t rows = tensor.rank == 1 ? 1 : tensor.dims[tensor.rank - 2];
  if (group >= groups || row_begin > rows || row_count > rows - row_begin ||
      out.size() != row_count * tensor.dims[tensor.rank - 1]) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "rows outside a tensor",
                "%s of layer %d: rows outside the tensor were asked for", TensorRoleName(tensor.role), tensor.layer);
  }
  if (!shape.is_vector) {
    LINNET_ASSIGN_OR_RETURN(const std::vector<SourcePart> parts, Resolve(tensor, group, diagnostic));
    for (const SourcePart& part : parts) ReadPart(part, shape.columns, row_begin, row_begin + row_count, out.data());
    return Status::Ok();
  }
  for (uint64_t row = 0; row < row_count; ++row) {  // each row is a group of its own, read as a column
    LINNET_ASSIGN_OR_RETURN(const std::vector<SourcePart> parts, Resolve(tensor, row_begin + row, diagnostic));
    for (const SourcePart& part : parts) ReadPart(part, 1, 0, shape.rows, out.data() + row * shape.rows);
  }
  return Status::Ok();
}

uint32_t WeightReader::Q4GridBlock(const TensorRequirement& tensor) const {
  const Shape shape = ShapeOf(tensor);
  if (packing_.method == PackingMethod::kNone || shape.is_vector) return 0;
  uint32_t block = 0;
  for (uint64_t group = 0; group < shape.groups; ++group) {
    const Result<std::vector<SourcePart>> parts = Resolve(tensor, group, nullptr);
    if (!parts.ok()) return 0;
    for (const SourcePart& part : *parts) {
      const uint32_t here = part.packed && !part.transposed ? part.packed->Q4GridBlock() : 0;
      if (here == 0) return 0;
      block = block == 0 ? here : std::min(block, here);
    }
  }
  return block;
}

Status WeightReader::ReadQ4Grid(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                                const Q4GridRows& out, Diagnostic* diagnostic) const {
  const Shape shape = ShapeOf(tensor);
  const size_t level_bytes = shape.columns / 2, n_scales = out.scales.size() / std::max<uint64_t>(row_count, 1);
  if (group >= shape.groups || row_begin > shape.rows || row_count > shape.rows - row_begin || n_scales == 0 ||
      out.levels.size() != row_count * level_bytes || shape.columns % n_scales != 0) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "rows outside a tensor",
                "%s of layer %d: rows outside the tensor were asked for", TensorRoleName(tensor.role), tensor.layer);
  }
  const auto block = static_cast<uint32_t>(shape.columns / n_scales);
  LINNET_ASSIGN_OR_RETURN(const std::vector<SourcePart> parts, Resolve(tensor, group, diagnostic));
  for (const SourcePart& part : parts) {
    if (!part.packed) {
      return Fail(diagnostic, StatusCode::kInternal, "the source has no grid", "%s of layer %d is no grid of 4 bits",
                  TensorRoleName(tensor.role), tensor.layer);
    }
    for (const RowMap& map : part.maps) {
      const uint64_t stop = std::min(row_begin + row_count, map.dst_begin + map.rows);
      for (uint64_t row = std::max(row_begin, map.dst_begin); row < stop; ++row) {
        const uint64_t i = row - map.dst_begin, to = row - row_begin;
        const uint64_t source = map.src_begin + i / map.block * map.stride + i % map.block;
        part.packed->ReadQ4GridRow(part.first / shape.columns + source, block, out.levels.data() + to * level_bytes,
                                   out.scales.data() + to * n_scales);
      }
    }
  }
  return Status::Ok();
}

}  // namespace linnet::formats
