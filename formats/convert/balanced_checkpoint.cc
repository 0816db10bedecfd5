#include "formats/convert/balanced_checkpoint.h"

#include <algorithm>
#include <cmath>

namespace linnet::formats {
namespace {

// A head is left as it is where the scores' error would not fall to less than this part.
constexpr double kWorthwhile = 0.5;
constexpr int kMaxExponent = 12;
constexpr uint64_t kRowsAtOnce = 16;

const TensorRequirement* FindTensor(const std::vector<TensorRequirement>& tensors, TensorRole role, int32_t layer) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TensorRequirement& tensor) {
    return tensor.role == role && tensor.layer == layer;
  });
  return found == tensors.end() ? nullptr : &*found;
}

bool MayBalance(const AttentionSpec& attention) {
  return attention.kind == AttentionKind::kGrouped && attention.qkv_bias && attention.qk_norm == QkNorm::kNone;
}

// Reads a vector; ones where there is none.
Result<std::vector<float>> ReadVector(const Checkpoint& source, const TensorRequirement* tensor, size_t n,
                                      Diagnostic* diagnostic) {
  std::vector<float> values(n, 1.0f);
  if (tensor != nullptr) LINNET_RETURN_IF_ERROR(source.ReadRows(*tensor, 0, 0, 1, values, diagnostic));
  return values;
}

// Mean squares of the first n_rows outputs of a layer's q, k and v for inputs as its norm makes them.
Result<std::vector<double>> OutputEnergies(const Checkpoint& source, const std::vector<TensorRequirement>& tensors,
                                           int32_t layer, size_t n_rows, Diagnostic* diagnostic) {
  const TensorRequirement& weights = *FindTensor(tensors, TensorRole::kQkv, layer);
  const TensorRequirement& bias = *FindTensor(tensors, TensorRole::kQkvBias, layer);
  const size_t columns = weights.dims[1];
  LINNET_ASSIGN_OR_RETURN(
      const std::vector<float> gains,
      ReadVector(source, FindTensor(tensors, TensorRole::kAttentionNormGain, layer), columns, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const std::vector<float> biases, ReadVector(source, &bias, bias.dims[0], diagnostic));
  std::vector<double> energies(n_rows);
  std::vector<float> rows;
  for (uint64_t first = 0; first < n_rows; first += kRowsAtOnce) {
    const uint64_t n = std::min<uint64_t>(kRowsAtOnce, n_rows - first);
    rows.resize(n * columns);
    LINNET_RETURN_IF_ERROR(source.ReadRows(weights, 0, first, n, rows, diagnostic));
    for (uint64_t r = 0; r < n; ++r) {
      double& energy = energies[first + r];
      energy = double{biases[first + r]} * biases[first + r];
      for (size_t k = 0; k < columns; ++k) {
        const double output = double{rows[r * columns + k]} * gains[k];
        energy += output * output;
      }
    }
  }
  return energies;
}

// The channel that the rotation mixes with this one; without a rotation the channel itself.
size_t Partner(const RopeSpec* rope, size_t channel) {
  if (rope == nullptr || channel >= rope->rope_dim) return channel;
  return rope->layout == RopeLayout::kInterleaved ? channel ^ 1u : (channel + rope->rope_dim / 2) % rope->rope_dim;
}

// Exponents e of one kv head: keys are divided by 2^e, queries multiplied. An error of the rotated, rounded key is
// about even over the channels and grows with the key's size, and a score sees it times the query's: the product of the
// two sums of squares is what is made small, by e = log2(k^2 / q^2) / 4. All zeros where that gains little.
std::vector<int> HeadExponents(const RopeSpec* rope, std::span<const double> q, std::span<const double> k) {
  std::vector<double> wanted(k.size());
  double mean = 0.0;
  for (size_t c = 0; c < k.size(); ++c) {
    const size_t partner = Partner(rope, c);
    const double exponent = 0.25 * std::log2((k[c] + k[partner]) / (q[c] + q[partner]));
    if (!std::isfinite(exponent)) return std::vector<int>(k.size());
    wanted[c] = exponent;
    mean += exponent / static_cast<double>(k.size());
  }
  std::vector<int> exponents(k.size());
  double before_q = 0.0, before_k = 0.0, after_q = 0.0, after_k = 0.0;
  for (size_t c = 0; c < k.size(); ++c) {
    exponents[c] = std::clamp(static_cast<int>(std::lround(wanted[c] - mean)), -kMaxExponent, kMaxExponent);
    before_q += q[c];
    before_k += k[c];
    after_q += std::ldexp(q[c], 2 * exponents[c]);
    after_k += std::ldexp(k[c], -2 * exponents[c]);
  }
  if (!(after_q * after_k < kWorthwhile * before_q * before_k)) return std::vector<int>(k.size());
  return exponents;
}

// Factors of the rows of q over k.
std::vector<float> RowFactors(const AttentionSpec& attention, const RopeSpec* rope,
                              const std::vector<double>& energies) {
  const size_t dim = attention.head_dim, group = attention.n_heads / attention.n_kv_heads;
  std::vector<float> factors(energies.size(), 1.0f);
  bool any = false;
  for (size_t head = 0; head < attention.n_kv_heads; ++head) {
    const size_t first_q = head * group * dim, first_k = (attention.n_heads + head) * dim;
    std::vector<double> q(dim);
    for (size_t row = 0; row < group * dim; ++row) q[row % dim] += energies[first_q + row];
    const std::vector<int> exponents = HeadExponents(rope, q, std::span(energies).subspan(first_k, dim));
    for (size_t row = 0; row < group * dim; ++row) {
      factors[first_q + row] = std::ldexp(1.0f, exponents[row % dim]);
    }
    for (size_t c = 0; c < dim; ++c) {
      factors[first_k + c] = std::ldexp(1.0f, -exponents[c]);
      any = any || exponents[c] != 0;
    }
  }
  if (!any) factors.clear();
  return factors;
}

}  // namespace

Result<BalancedCheckpoint> BalancedCheckpoint::Create(const Checkpoint& source, Diagnostic* diagnostic) {
  BalancedCheckpoint balanced(source);
  const ModelConfig& config = source.info().config;
  const std::vector<TensorRequirement> tensors = RequiredTensors(config);
  balanced.factors_.resize(config.n_layers);
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    const AttentionSpec& attention = config.layer(layer).attention;
    if (!MayBalance(attention)) continue;
    const size_t n_rows = size_t{attention.n_heads + attention.n_kv_heads} * attention.head_dim;
    LINNET_ASSIGN_OR_RETURN(const std::vector<double> energies,
                            OutputEnergies(source, tensors, static_cast<int32_t>(layer), n_rows, diagnostic));
    const RopeSpec* rope = attention.rope < 0 ? nullptr : &config.ropes[static_cast<size_t>(attention.rope)];
    balanced.factors_[layer] = RowFactors(attention, rope, energies);
  }
  return balanced;
}

std::span<const float> BalancedCheckpoint::factors(const TensorRequirement& tensor) const {
  if (tensor.role != TensorRole::kQkv && tensor.role != TensorRole::kQkvBias) return {};
  return factors_[static_cast<size_t>(tensor.layer)];
}

Status BalancedCheckpoint::ReadRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin,
                                    uint64_t row_count, std::span<float> out, Diagnostic* diagnostic) const {
  LINNET_RETURN_IF_ERROR(source_->ReadRows(tensor, group, row_begin, row_count, out, diagnostic));
  const std::span<const float> scales = factors(tensor);
  const bool is_bias = tensor.role == TensorRole::kQkvBias;
  const uint64_t columns = is_bias ? 1 : out.size() / row_count, rows = out.size() / columns;
  for (uint64_t r = 0; r < rows && row_begin + r < scales.size(); ++r) {
    for (uint64_t k = 0; k < columns; ++k) out[r * columns + k] *= scales[row_begin + r];
  }
  return Status::Ok();
}

Status BalancedCheckpoint::ReadQ4Grid(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin,
                                      uint64_t row_count, const Q4GridRows& out, Diagnostic* diagnostic) const {
  LINNET_RETURN_IF_ERROR(source_->ReadQ4Grid(tensor, group, row_begin, row_count, out, diagnostic));
  const std::span<const float> scales = factors(tensor);
  const uint64_t blocks = out.scales.size() / row_count;
  for (uint64_t r = 0; r < row_count && row_begin + r < scales.size(); ++r) {
    for (uint64_t b = 0; b < blocks; ++b) out.scales[r * blocks + b] *= scales[row_begin + r];
  }
  return Status::Ok();
}

}  // namespace linnet::formats
