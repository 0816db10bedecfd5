// Small models without any file: a description, and a checkpoint whose weights are computed where they are read.
#ifndef LINNET_TESTS_SUPPORT_TINY_MODEL_H_
#define LINNET_TESTS_SUPPORT_TINY_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/model_config.h"
#include "core/base/model_view.h"
#include "formats/checkpoint.h"

namespace linnet::testing {

/// A llama-like description: RMSNorm before the sub-layers, GQA with RoPE, SwiGLU. The defaults give widths that q4
/// blocks of 32 divide.
struct TinyModelOptions {
  uint32_t vocab_size = 96;
  uint32_t model_dim = 64;
  uint32_t n_layers = 2;
  uint32_t n_heads = 4;
  uint32_t n_kv_heads = 2;
  uint32_t head_dim = 16;
  uint32_t ffn_dim = 128;
  uint32_t context_length = 128;
  bool tied_head = false;
  bool qkv_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  uint32_t window = 0;     // of every second layer
  uint32_t n_experts = 0;  // two are chosen
};
ModelConfig TinyConfig(const TinyModelOptions& options);

/// A checkpoint of any description. Every weight is a function of seed, role, layer and place, the same on every
/// machine: matrices about normal with deviation 1 / sqrt(K), gains about 1, biases about 0. Nothing is stored, so that
/// a description of any size may be given.
class TinyCheckpoint final : public formats::Checkpoint {
 public:
  explicit TinyCheckpoint(ModelConfig config, uint64_t seed = 1);

  /// For tests that need more: texts, tokenizer, generation defaults.
  formats::CheckpointInfo& mutable_info() { return info_; }
  void set_source_type(formats::SourceType type) { source_type_ = type; }
  /// Every 61st input column of the matrices is this much larger, as trained models have it.
  void set_outlier_factor(float factor) { outlier_factor_ = factor; }
  /// One weight with another value.
  void SetWeight(TensorRole role, int32_t layer, uint64_t element, float value) {
    replaced_[{Key(role, layer), element}] = value;
  }
  /// Times that ReadRows and Release were called, and the floats of the largest read.
  struct Usage {
    uint64_t reads = 0, releases = 0, largest_read = 0;
  };
  const Usage& usage() const { return usage_; }

  /// The weight in row-major order over all groups.
  float Weight(const TensorRequirement& tensor, uint64_t element) const;

  const formats::CheckpointInfo& info() const override { return info_; }
  std::span<const formats::SourceFile> files() const override { return files_; }
  formats::SourceType TypeOf(const TensorRequirement&) const override { return source_type_; }
  Status ReadRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                  std::span<float> out, Diagnostic* diagnostic) const override;
  void Release(const TensorRequirement& tensor) const override;

 private:
  static uint64_t Key(TensorRole role, int32_t layer) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(layer)) << 8) | static_cast<uint64_t>(role);
  }

  formats::CheckpointInfo info_;
  uint64_t seed_;
  float outlier_factor_ = 1.0f;
  formats::SourceType source_type_;
  std::vector<std::byte> source_bytes_;
  std::vector<formats::SourceFile> files_;
  std::map<std::pair<uint64_t, uint64_t>, float> replaced_;
  mutable Usage usage_;
};

/// All weights of a stored tensor as f32, row-major over all groups: dequantized and rotated back by plain f64 loops
/// that follow the format's definition, independent of the kernels.
std::vector<float> DequantizeTensor(const TensorView& tensor);

}  // namespace linnet::testing

#endif  // LINNET_TESTS_SUPPORT_TINY_MODEL_H_
