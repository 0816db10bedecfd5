#include "formats/synthetic/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"

namespace linnet::formats {
namespace {

// The finalizer of SplitMix64 (https://prng.di.unimi.it/splitmix64.c): all 64 bits of the result depend on all of x.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;  // of SplitMix64: 2^64 / golden ratio, odd

// The sum of eight random bytes is about normal (kurtosis 2.85 instead of 3) and costs no transcendental function,
// whose last bit differs between systems.
constexpr int32_t kByteSumMean = 1020;            // 8 * 127.5
constexpr double kByteSumVariance = 8 * 5461.25;  // 8 * (256^2 - 1) / 12

int32_t SumOfBytes(uint64_t x) {
  constexpr uint64_t kEvenBytes = 0x00ff00ff00ff00ffu;
  const uint64_t pairs = (x & kEvenBytes) + ((x >> 8) & kEvenBytes);  // four sums of two
  return static_cast<int32_t>((pairs * 0x0001000100010001u) >> 48);
}

// The norm whose gain has this role; null for roles that are no gain.
const NormSpec* NormOf(const ModelConfig& config, const TensorRequirement& tensor) {
  if (tensor.role == TensorRole::kEmbeddingNormGain) return &config.embedding_norm;
  if (tensor.role == TensorRole::kFinalNormGain) return &config.final_norm;
  if (tensor.layer < 0) return nullptr;
  const BlockSpec& block = config.layer(static_cast<uint32_t>(tensor.layer));
  switch (tensor.role) {
    case TensorRole::kAttentionNormGain:
    case TensorRole::kAttentionPostNormGain:
    case TensorRole::kFfnNormGain:
    case TensorRole::kFfnPostNormGain:
      return &block.norm;
    case TensorRole::kQNormGain:
    case TensorRole::kKNormGain:
      return &block.attention.qk_norm_spec;
    case TensorRole::kLatentQNormGain:
    case TensorRole::kLatentKvNormGain:
      return &block.attention.latent_norm;
    default:
      return nullptr;
  }
}

bool IsTable(TensorRole role) { return role == TensorRole::kTokenEmbedding || role == TensorRole::kPositionEmbedding; }

bool IsRandom(TensorRole role) {
  return IsTable(role) || IsLinearRole(role) || role == TensorRole::kRouter || role == TensorRole::kSharedGate;
}

class SyntheticCheckpoint final : public Checkpoint {
 public:
  SyntheticCheckpoint(ModelConfig config, SyntheticOptions options)
      : seed_(Mix(options.seed + kStep)), files_(std::move(options.files)) {
    info_.config = std::move(config);
    info_.name = std::move(options.name);
  }

  const CheckpointInfo& info() const override { return info_; }
  std::span<const SourceFile> files() const override { return files_; }
  SourceType TypeOf(const TensorRequirement&) const override { return {"random", 32.0}; }

  Status ReadRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                  std::span<float> out, Diagnostic*) const override {
    if (!IsRandom(tensor.role)) {
      const NormSpec* norm = NormOf(info_.config, tensor);
      std::fill(out.begin(), out.end(), norm != nullptr && !norm->gain_plus_one ? 1.0f : 0.0f);
      return Status::Ok();
    }
    const uint64_t columns = tensor.dims[tensor.rank - 1];
    const uint64_t rows = tensor.rank == 1 ? 1 : tensor.dims[tensor.rank - 2];
    LINNET_CHECK(out.size() == row_count * columns);
    const auto factor = static_cast<float>(1.0 / std::sqrt(kByteSumVariance * static_cast<double>(columns)));
    const uint64_t key = Mix(seed_ ^ (static_cast<uint64_t>(tensor.role) << 32) ^
                             static_cast<uint64_t>(static_cast<uint32_t>(tensor.layer)));
    const uint64_t first = (group * rows + row_begin) * columns;
    for (uint64_t i = 0; i < out.size(); ++i) {
      const int32_t sum = SumOfBytes(Mix(key + (first + i) * kStep));
      out[i] = static_cast<float>(sum - kByteSumMean) * factor;
    }
    return Status::Ok();
  }

  void Release(const TensorRequirement&) const override {}

 private:
  CheckpointInfo info_;
  uint64_t seed_;
  std::vector<SourceFile> files_;
};

}  // namespace

std::unique_ptr<Checkpoint> MakeSyntheticCheckpoint(ModelConfig config, SyntheticOptions options) {
  return std::make_unique<SyntheticCheckpoint>(std::move(config), std::move(options));
}

}  // namespace linnet::formats
