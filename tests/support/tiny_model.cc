#include "tests/support/tiny_model.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "core/base/float16.h"

namespace linnet::testing {
namespace {

// SplitMix64's finalizer: every input bit reaches every output bit.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// About normal with deviation 1: four 16-bit uniform values of deviation 1 / sqrt(12) each. No math library, so that it
// is the same everywhere.
float Normal(uint64_t bits) {
  int32_t sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<int32_t>((bits >> (16 * i)) & 0xffff) - 32768;
  return static_cast<float>(sum) * (1.7320508f / 65536.0f);
}

bool IsGain(TensorRole role) {
  const std::string name = TensorRoleName(role);
  return name.size() > 5 && name.ends_with(".gain");
}

uint64_t ColumnsOf(const TensorRequirement& tensor) { return tensor.dims[tensor.rank - 1]; }
uint64_t RowsOf(const TensorRequirement& tensor) { return tensor.rank == 1 ? 1 : tensor.dims[tensor.rank - 2]; }

float StoredWeight(const TensorView& tensor, uint64_t element) {
  const uint64_t row = element / tensor.columns(), column = element % tensor.columns();
  const std::byte* data = tensor.data.data();
  const auto half = [&] { return reinterpret_cast<const uint16_t*>(data)[element]; };
  switch (tensor.dtype) {
    case DType::kF32:
      return tensor.f32()[element];
    case DType::kF16:
      return F32FromF16(half());
    case DType::kBF16:
      return F32FromBF16(half());
    case DType::kQ8:
      return static_cast<float>(reinterpret_cast<const int8_t*>(data)[element]) *
             reinterpret_cast<const float*>(tensor.scales.data())[row];
    case DType::kQ4: {
      const uint32_t pair = static_cast<uint32_t>(data[element / 2]);
      const int q = static_cast<int>(column % 2 == 0 ? pair & 15 : pair >> 4) - 8;
      const uint64_t n_blocks = tensor.columns() / tensor.block_size;
      const uint16_t* scales = reinterpret_cast<const uint16_t*>(tensor.scales.data());
      return static_cast<float>(q) * F32FromBF16(scales[row * n_blocks + column / tensor.block_size]);
    }
  }
  return 0.0f;
}

// out = in times the rotation, by its definition.
void Rotate(float* values, uint64_t block) {
  std::vector<double> sums(block, 0.0);
  for (uint64_t i = 0; i < block; ++i) {
    for (uint64_t j = 0; j < block; ++j) sums[i] += std::popcount(i & j) % 2 == 0 ? values[j] : -values[j];
  }
  for (uint64_t i = 0; i < block; ++i) values[i] = static_cast<float>(sums[i] / std::sqrt(static_cast<double>(block)));
}

BlockSpec TinyBlock(const TinyModelOptions& options, uint32_t layer) {
  BlockSpec block;
  block.norm = {NormKind::kRmsNorm, 1e-5f, true, false, false};
  AttentionSpec& attention = block.attention;
  attention.n_heads = options.n_heads;
  attention.n_kv_heads = options.n_kv_heads;
  attention.head_dim = attention.value_dim = options.head_dim;
  attention.qkv_bias = options.qkv_bias;
  attention.qk_norm = options.qk_norm;
  if (options.qk_norm != QkNorm::kNone) attention.qk_norm_spec = {NormKind::kRmsNorm, 1e-6f, true, false, false};
  attention.score_scale = 1.0f / std::sqrt(static_cast<float>(options.head_dim));
  attention.window = layer % 2 == 1 ? options.window : 0;
  attention.rope = 0;
  block.ffn.ffn_dim = options.ffn_dim;
  block.ffn.n_experts = options.n_experts;
  block.ffn.top_k = options.n_experts > 0 ? 2 : 0;
  return block;
}

}  // namespace

ModelConfig TinyConfig(const TinyModelOptions& options) {
  ModelConfig config;
  config.family = "tiny";
  config.vocab_size = options.vocab_size;
  config.model_dim = options.model_dim;
  config.n_layers = options.n_layers;
  config.context_length = options.context_length;
  config.final_norm = {NormKind::kRmsNorm, 1e-5f, true, false, false};
  config.tied_head = options.tied_head;
  RopeSpec rope;
  rope.rope_dim = options.head_dim;
  config.ropes.push_back(rope);
  for (uint32_t layer = 0; layer < options.n_layers; ++layer) {
    config.layer_block.push_back(InternBlock(config, TinyBlock(options, layer)));
  }
  LINNET_CHECK(ValidateModelConfig(config).ok());
  return config;
}

TinyCheckpoint::TinyCheckpoint(ModelConfig config, uint64_t seed) : seed_(seed) {
  info_.config = std::move(config);
  info_.name = "tiny model";
  info_.license = "CC0-1.0";
  const char text[] = "weights that are computed";
  source_bytes_.resize(sizeof(text) - 1);
  std::memcpy(source_bytes_.data(), text, source_bytes_.size());
  files_.push_back({"tiny.txt", source_bytes_});
}

float TinyCheckpoint::Weight(const TensorRequirement& tensor, uint64_t element) const {
  const uint64_t key = Key(tensor.role, tensor.layer);
  if (!replaced_.empty()) {
    const auto replaced = replaced_.find({key, element});
    if (replaced != replaced_.end()) return replaced->second;
  }
  const float normal = Normal(Mix(Mix(seed_ ^ Mix(key)) + element));
  if (IsGain(tensor.role)) return 1.0f + 0.125f * normal;
  if (tensor.rank == 1) return 0.03125f * normal;
  const uint64_t columns = ColumnsOf(tensor);
  const float outlier = element % columns % 61 == 7 ? outlier_factor_ : 1.0f;
  return outlier * normal / std::sqrt(static_cast<float>(columns));
}

Status TinyCheckpoint::ReadRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                                std::span<float> out, Diagnostic*) const {
  const uint64_t columns = ColumnsOf(tensor);
  LINNET_CHECK(row_begin + row_count <= RowsOf(tensor) && out.size() == row_count * columns);
  const uint64_t first = (group * RowsOf(tensor) + row_begin) * columns;
  for (size_t i = 0; i < out.size(); ++i) out[i] = Weight(tensor, first + i);
  ++usage_.reads;
  usage_.largest_read = std::max<uint64_t>(usage_.largest_read, out.size());
  return Status::Ok();
}

void TinyCheckpoint::Release(const TensorRequirement&) const { ++usage_.releases; }

std::vector<float> DequantizeTensor(const TensorView& tensor) {
  std::vector<float> values(tensor.elements());
  for (uint64_t i = 0; i < values.size(); ++i) values[i] = StoredWeight(tensor, i);
  if (tensor.rotation_block == 0) return values;
  for (uint64_t i = 0; i < values.size(); i += tensor.rotation_block) Rotate(&values[i], tensor.rotation_block);
  return values;
}

}  // namespace linnet::testing
