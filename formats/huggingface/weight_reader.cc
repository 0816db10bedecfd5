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
          ReadAsF32(*part.tensor, {part.first + k * part.src_rows + source, count, step, columns}, target + k);
        }
      } else if (step == 1) {
        ReadAsF32(*part.tensor, {part.first + source * columns, count * columns, 1, 1}, target);
      } else {
        for (uint64_t k = 0; k < columns; ++k) {
          ReadAsF32(*part.tensor, {part.first + source * columns + k, count, step * columns, columns}, target + k);
        }
      }
      row += count;
    }
  }
}

}  // namespace

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

Result<std::vector<SourcePart>> WeightReader::Resolve(const TensorRequirement& tensor, uint64_t group,
                                                      Diagnostic* diagnostic) const {
  std::vector<SourcePart> parts;
  std::string tried;
  uint64_t covered = 0;
  for (const auto& table : names_.tables) {
    for (const WeightPattern& pattern : table) {
      if (pattern.role != tensor.role) continue;
      const std::string name = Expand(pattern.name, tensor.layer, group);
      const SafetensorsTensor* source = source_.Find(name);
      if (source == nullptr) {
        tried += (tried.empty() ? "" : ", ") + name;
        continue;
      }
      Layout layout = LayoutOf(pattern, tensor, config_);
      if (Overlap(parts, layout.maps)) continue;
      if (source->shape != layout.shape) {
        return Fail(diagnostic, StatusCode::kInvalidModel, "a tensor has another shape than the config asks for",
                    "%s: tensor %s: expected shape %s, found %s", source_.FileNameOf(*source).c_str(), name.c_str(),
                    ShapeText(layout.shape).c_str(), ShapeText(source->shape).c_str());
      }
      if (!IsReadableAsF32(source->type)) {
        return Fail(diagnostic, StatusCode::kUnsupported, "a weight has an element type that is not read",
                    "%s: tensor %s: expected F32, F16 or BF16, found %s", source_.FileNameOf(*source).c_str(),
                    name.c_str(), SafetensorsTypeName(source->type));
      }
      covered += layout.src_rows;
      parts.push_back({source, std::move(layout.maps), layout.group_begin + group * layout.group_stride,
                       layout.src_rows, layout.transposed});
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
      for (const SourcePart& part : parts) used[static_cast<size_t>(part.tensor - source_.tensors().data())] = true;
    }
  }
  return CheckLeftOver(used, diagnostic);
}

Status WeightReader::CheckLeftOver(const std::vector<bool>& used, Diagnostic* diagnostic) const {
  for (size_t i = 0; i < used.size(); ++i) {
    const SafetensorsTensor& tensor = source_.tensors()[i];
    if (used[i] || IsIgnored(tensor.name)) continue;
    return Fail(diagnostic, StatusCode::kUnsupported, "a tensor is not known",
                "%s: tensor %s has no meaning in family %s with this config.json", source_.FileNameOf(tensor).c_str(),
                tensor.name.c_str(), config_.family.c_str());
  }
  return Status::Ok();
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

}  // namespace linnet::formats
