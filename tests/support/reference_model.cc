#include "tests/support/reference_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

namespace linnet::testing {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;  // one row a token

double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kSquaredRelu:
      return x > 0.0 ? x * x : 0.0;
    case Activation::kGelu:
      return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
    case Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kSigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case Activation::kClampedSwiglu:
      break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double SoftCap(double x, double cap) { return cap > 0.0 ? cap * std::tanh(x / cap) : x; }

// ------------------------------------------------------------------------------------------------ rotary frequencies

double YarnFrequency(const RopeSpec& rope, double frequency, size_t pair) {
  const double dim = rope.rope_dim;
  const auto pair_at = [&](double turns) {
    return dim * std::log(rope.original_context_length / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = pair_at(rope.beta_fast), high = pair_at(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  const double ramp = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
  return frequency / rope.factor * ramp + frequency * (1.0 - ramp);
}

double Llama3Frequency(const RopeSpec& rope, double frequency) {
  const double turns = rope.original_context_length * frequency / (2.0 * std::numbers::pi);
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  if (turns > rope.high_freq_factor) return frequency;
  const double smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

/// The angle per position of every pair.
Row Frequencies(const RopeSpec& rope, size_t length) {
  const double dim = rope.rope_dim, original = rope.original_context_length;
  double theta = rope.theta;
  if (rope.scaling == RopeScaling::kDynamicNtk) {
    const double longest = std::max(static_cast<double>(length), original);
    theta *= std::pow(rope.factor * longest / original - (rope.factor - 1.0), dim / (dim - 2.0));
  }
  Row frequencies(rope.rope_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double plain = std::pow(theta, -2.0 * static_cast<double>(i) / dim);
    switch (rope.scaling) {
      case RopeScaling::kNone:
      case RopeScaling::kDynamicNtk:
        frequencies[i] = plain;
        break;
      case RopeScaling::kLinear:
        frequencies[i] = plain / rope.factor;
        break;
      case RopeScaling::kYarn:
        frequencies[i] = YarnFrequency(rope, plain, i);
        break;
      case RopeScaling::kLlama3:
        frequencies[i] = Llama3Frequency(rope, plain);
        break;
      case RopeScaling::kLongRope:
        frequencies[i] = plain / (length > rope.original_context_length ? rope.long_factors[i] : rope.short_factors[i]);
        break;
    }
  }
  return frequencies;
}

void Rotate(const RopeSpec& rope, const Row& frequencies, size_t pos, double* x) {
  const size_t half = rope.rope_dim / 2;
  for (size_t i = 0; i < half; ++i) {
    const bool split = rope.layout == RopeLayout::kHalfSplit;
    double& a = x[split ? i : 2 * i];
    double& b = x[split ? i + half : 2 * i + 1];
    const double angle = static_cast<double>(pos) * frequencies[i];
    const double c = std::cos(angle) * rope.cos_sin_scale, s = std::sin(angle) * rope.cos_sin_scale;
    const double rotated = a * c - b * s;
    b = b * c + a * s;
    a = rotated;
  }
}

// ---------------------------------------------------------------------------------------------------------- the model

class Reference {
 public:
  Reference(const ModelConfig& config, const ReferenceWeights& weights) : config_(config), weights_(weights) {}

  ReferenceResult Run(std::span<const int32_t> ids) {
    Rows x = Embed(ids);
    ReferenceResult result;
    for (uint32_t layer = 0; layer < config_.n_layers; ++layer) {
      result.hidden_states.push_back(Flat(x));
      layer_ = static_cast<int32_t>(layer);
      Block(config_.layer(layer), x);
    }
    result.hidden_states.push_back(Flat(x));
    layer_ = -1;
    Normalize(config_.final_norm, TensorRole::kFinalNormGain, TensorRole::kFinalNormBias, x);
    const TensorRole head = config_.tied_head ? TensorRole::kTokenEmbedding : TensorRole::kHead;
    Rows logits = Linear(x, head, TensorRole::kHeadBias);
    for (Row& row : logits) {
      for (double& logit : row) logit = SoftCap(logit * config_.logit_scale, config_.logit_soft_cap);
    }
    result.logits = Flat(logits);
    return result;
  }

 private:
  static std::vector<double> Flat(const Rows& rows) {
    std::vector<double> flat;
    for (const Row& row : rows) flat.insert(flat.end(), row.begin(), row.end());
    return flat;
  }

  const float* Find(TensorRole role) const {
    const auto it = weights_.find({role, layer_});
    return it == weights_.end() ? nullptr : it->second.data();
  }

  /// x W^T + bias of one token; W is [n, x.size()].
  static Row Product(const Row& x, const float* weight, const float* bias, size_t n) {
    Row out(n, 0.0);
    for (size_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < x.size(); ++k) out[i] += static_cast<double>(weight[i * x.size() + k]) * x[k];
      if (bias != nullptr) out[i] += bias[i];
    }
    return out;
  }

  Rows Linear(const Rows& x, TensorRole weight, TensorRole bias) const {
    const std::vector<float>& values = weights_.at({weight, layer_});
    Rows out;
    for (const Row& row : x) out.push_back(Product(row, values.data(), Find(bias), values.size() / row.size()));
    return out;
  }

  static void NormalizeSpan(const NormSpec& norm, const float* gain, const float* bias, double* x, size_t n) {
    if (norm.kind == NormKind::kNone) return;
    const double size = static_cast<double>(n);
    double mean = norm.kind == NormKind::kLayerNorm ? std::accumulate(x, x + n, 0.0) / size : 0.0, squares = 0.0;
    for (size_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double factor = 1.0 / std::sqrt(squares / size + norm.eps);
    for (size_t i = 0; i < n; ++i) {
      x[i] = (x[i] - mean) * factor;
      if (norm.has_gain) x[i] *= norm.gain_plus_one ? 1.0 + gain[i] : gain[i];
      if (norm.has_bias) x[i] += bias[i];
    }
  }

  void Normalize(const NormSpec& norm, TensorRole gain, TensorRole bias, Rows& x) const {
    for (Row& row : x) NormalizeSpan(norm, Find(gain), Find(bias), row.data(), row.size());
  }

  Rows Embed(std::span<const int32_t> ids) {
    const size_t width = config_.model_dim;
    const float* table = Find(TensorRole::kTokenEmbedding);
    const float* positions = Find(TensorRole::kPositionEmbedding);
    Rows x(ids.size(), Row(width));
    for (size_t t = 0; t < ids.size(); ++t) {
      for (size_t i = 0; i < width; ++i) {
        x[t][i] = static_cast<double>(table[static_cast<size_t>(ids[t]) * width + i]) * config_.embedding_scale;
        if (config_.positions == EmbeddingPositions::kLearned) {
          x[t][i] += positions[(t + config_.position_offset) * width + i];
        } else if (config_.positions == EmbeddingPositions::kSinusoidal) {
          const double angle =
              static_cast<double>(t) / std::pow(10000.0, static_cast<double>(i / 2 * 2) / static_cast<double>(width));
          x[t][i] += i % 2 == 0 ? std::sin(angle) : std::cos(angle);
        }
      }
    }
    Normalize(config_.embedding_norm, TensorRole::kEmbeddingNormGain, TensorRole::kEmbeddingNormBias, x);
    return x;
  }

  static void AddBranch(const BlockSpec& block, const Rows& branch, Rows& x) {
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < x[t].size(); ++i)
        x[t][i] = x[t][i] * block.residual_scale + branch[t][i] * block.branch_scale;
    }
  }

  void Block(const BlockSpec& block, Rows& x) const {
    const auto attention_norm = [&](Rows& rows) {
      Normalize(block.norm, TensorRole::kAttentionNormGain, TensorRole::kAttentionNormBias, rows);
    };
    const auto ffn_norm = [&](Rows& rows) {
      Normalize(block.norm, TensorRole::kFfnNormGain, TensorRole::kFfnNormBias, rows);
    };
    const bool before = block.placement == NormPlacement::kPre || block.placement == NormPlacement::kBothSides;
    Rows input = x;
    if (before) attention_norm(input);
    Rows branch = Attention(block, input);
    if (block.parallel) {
      Rows ffn_input = block.parallel_shared_norm ? input : x;
      if (!block.parallel_shared_norm) ffn_norm(ffn_input);
      const Rows ffn = Ffn(block.ffn, ffn_input);
      for (size_t t = 0; t < x.size(); ++t) {
        for (size_t i = 0; i < x[t].size(); ++i) branch[t][i] += ffn[t][i];
      }
      return AddBranch(block, branch, x);
    }
    if (block.placement == NormPlacement::kSubLayerOutput) attention_norm(branch);
    if (block.placement == NormPlacement::kBothSides) {
      Normalize(block.norm, TensorRole::kAttentionPostNormGain, TensorRole::kAttentionPostNormBias, branch);
    }
    AddBranch(block, branch, x);
    if (block.placement == NormPlacement::kPost) attention_norm(x);

    input = x;
    if (before) ffn_norm(input);
    branch = Ffn(block.ffn, input);
    if (block.placement == NormPlacement::kSubLayerOutput) ffn_norm(branch);
    if (block.placement == NormPlacement::kBothSides) {
      Normalize(block.norm, TensorRole::kFfnPostNormGain, TensorRole::kFfnPostNormBias, branch);
    }
    AddBranch(block, branch, x);
    if (block.placement == NormPlacement::kPost) ffn_norm(x);
  }

  // Attention ------------------------------------------------------------------------------------------------------

  struct Head {
    Rows queries, keys, values;  // [T][width]
    double slope = 0.0;          // ALiBi
    double sink = -std::numeric_limits<double>::infinity();
  };

  Rows AttendHead(const AttentionSpec& attention, const Head& head) const {
    Rows out;
    for (size_t i = 0; i < head.queries.size(); ++i) {
      const size_t first = attention.window > 0 && i + 1 > attention.window ? i + 1 - attention.window : 0;
      Row scores;
      double highest = head.sink;
      for (size_t j = first; j <= i; ++j) {
        const double dot =
            std::inner_product(head.queries[i].begin(), head.queries[i].end(), head.keys[j].begin(), 0.0);
        const double score = SoftCap(dot * attention.score_scale, attention.logit_soft_cap);
        scores.push_back(score - head.slope * static_cast<double>(i - j));
        highest = std::max(highest, scores.back());
      }
      double sum = std::exp(head.sink - highest);
      for (double& score : scores) sum += score = std::exp(score - highest);
      Row mixed(head.values[0].size(), 0.0);
      for (size_t j = first; j <= i; ++j) {
        for (size_t k = 0; k < mixed.size(); ++k) mixed[k] += scores[j - first] / sum * head.values[j][k];
      }
      out.push_back(std::move(mixed));
    }
    return out;
  }

  /// Slopes of arXiv:2108.12409: powers of 2^(-8/n); for n that is no power of two, the odd ones of twice as many
  /// follow.
  static double AlibiSlope(size_t head, size_t n_heads) {
    size_t n = 1;
    while (2 * n <= n_heads) n *= 2;
    if (head < n) return std::pow(2.0, -8.0 * static_cast<double>(head + 1) / static_cast<double>(n));
    return std::pow(2.0, -4.0 * static_cast<double>(2 * (head - n) + 1) / static_cast<double>(n));
  }

  void NormalizeHeads(const AttentionSpec& attention, size_t heads, TensorRole gain, TensorRole bias,
                      double* rows) const {
    const size_t dim = attention.head_dim;
    const float *gains = Find(gain), *biases = Find(bias);
    if (attention.qk_norm == QkNorm::kNone) return;
    if (attention.qk_norm == QkNorm::kFullWidth) {
      return NormalizeSpan(attention.qk_norm_spec, gains, biases, rows, heads * dim);
    }
    const size_t step = attention.qk_norm == QkNorm::kPerHeadGain ? dim : 0;
    for (size_t head = 0; head < heads; ++head) {
      NormalizeSpan(attention.qk_norm_spec, gains + head * step, biases != nullptr ? biases + head * step : nullptr,
                    rows + head * dim, dim);
    }
  }

  Rows Attention(const BlockSpec& block, const Rows& x) const {
    const AttentionSpec& attention = block.attention;
    Rows mixed(x.size());
    const std::vector<Head> heads =
        attention.kind == AttentionKind::kLatent ? LatentHeads(attention, x) : GroupedHeads(attention, x);
    for (size_t h = 0; h < heads.size(); ++h) {
      Rows out = AttendHead(attention, heads[h]);
      if (attention.kind == AttentionKind::kLatent) out = LatentValues(attention, h, out);
      for (size_t t = 0; t < x.size(); ++t) mixed[t].insert(mixed[t].end(), out[t].begin(), out[t].end());
    }
    return Linear(mixed, TensorRole::kAttentionOut, TensorRole::kAttentionOutBias);
  }

  std::vector<Head> GroupedHeads(const AttentionSpec& attention, const Rows& x) const {
    const size_t dim = attention.head_dim, n_heads = attention.n_heads, n_kv = attention.n_kv_heads;
    Rows qkv = Linear(x, TensorRole::kQkv, TensorRole::kQkvBias);
    const RopeSpec* rope = attention.rope >= 0 ? &config_.ropes[static_cast<size_t>(attention.rope)] : nullptr;
    const Row frequencies = rope != nullptr ? Frequencies(*rope, x.size()) : Row();
    for (size_t t = 0; t < x.size(); ++t) {
      double* const q = qkv[t].data();
      double* const k = q + n_heads * dim;
      NormalizeHeads(attention, n_heads, TensorRole::kQNormGain, TensorRole::kQNormBias, q);
      NormalizeHeads(attention, n_kv, TensorRole::kKNormGain, TensorRole::kKNormBias, k);
      for (size_t h = 0; rope != nullptr && h < n_heads + n_kv; ++h) Rotate(*rope, frequencies, t, q + h * dim);
    }
    std::vector<Head> heads(n_heads);
    for (size_t h = 0; h < n_heads; ++h) {
      const size_t kv = h / (n_heads / n_kv);
      for (const Row& row : qkv) {
        const auto part = [&](size_t index) { return Row(row.begin() + index * dim, row.begin() + (index + 1) * dim); };
        heads[h].queries.push_back(part(h));
        heads[h].keys.push_back(part(n_heads + kv));
        heads[h].values.push_back(part(n_heads + n_kv + kv));
      }
      if (attention.alibi) heads[h].slope = AlibiSlope(h, n_heads);
      if (attention.sinks) heads[h].sink = Find(TensorRole::kSinks)[h];
    }
    return heads;
  }

  /// Absorbed form: queries are mapped onto the latent, which is key and value of every head.
  std::vector<Head> LatentHeads(const AttentionSpec& attention, const Rows& x) const {
    const RopeSpec& rope = config_.ropes[static_cast<size_t>(attention.rope)];
    const Row frequencies = Frequencies(rope, x.size());
    const size_t latent = attention.kv_lora_rank, rotated = rope.rope_dim, plain = attention.head_dim - rotated;
    const float* key_up = Find(TensorRole::kLatentKeyUp);
    std::vector<Head> heads(attention.n_heads);
    const Rows projected = Linear(x, TensorRole::kLatentIn, TensorRole::kLatentInBias);
    for (size_t t = 0; t < x.size(); ++t) {
      const size_t q_width = projected[t].size() - latent - rotated;
      Row q(projected[t].begin(), projected[t].begin() + q_width);
      Row kv(projected[t].begin() + q_width, projected[t].end());
      if (attention.q_lora_rank > 0) {
        NormalizeSpan(attention.latent_norm, Find(TensorRole::kLatentQNormGain), nullptr, q.data(), q.size());
        q = Product(q, Find(TensorRole::kLatentQ), nullptr, size_t{attention.n_heads} * attention.head_dim);
      }
      NormalizeSpan(attention.latent_norm, Find(TensorRole::kLatentKvNormGain), nullptr, kv.data(), latent);
      Rotate(rope, frequencies, t, kv.data() + latent);
      for (size_t h = 0; h < heads.size(); ++h) {
        double* const own = q.data() + h * attention.head_dim;
        Rotate(rope, frequencies, t, own + plain);
        Row query = Product(Row(own, own + plain), key_up + h * latent * plain, nullptr, latent);
        query.insert(query.end(), own + plain, own + plain + rotated);
        heads[h].queries.push_back(std::move(query));
        heads[h].keys.push_back(kv);
        heads[h].values.emplace_back(kv.begin(), kv.begin() + latent);
      }
    }
    return heads;
  }

  Rows LatentValues(const AttentionSpec& attention, size_t head, const Rows& mixed) const {
    const size_t size = size_t{attention.value_dim} * attention.kv_lora_rank;
    Rows out;
    for (const Row& row : mixed) {
      out.push_back(Product(row, Find(TensorRole::kLatentValueUp) + head * size, nullptr, attention.value_dim));
    }
    return out;
  }

  // FFN ------------------------------------------------------------------------------------------------------------

  static Row Apply(const FfnSpec& ffn, const Row& up) {
    if (!ffn.gated) {
      Row out = up;
      for (double& value : out) value = Activate(ffn.activation, value);
      return out;
    }
    const size_t width = up.size() / 2;
    Row out(width);
    for (size_t i = 0; i < width; ++i) {
      double gate = up[i], linear = up[width + i];
      if (ffn.activation == Activation::kClampedSwiglu) {
        gate = std::min(gate, static_cast<double>(ffn.clamp));
        linear = std::clamp(linear, -static_cast<double>(ffn.clamp), static_cast<double>(ffn.clamp));
        out[i] = gate / (1.0 + std::exp(-1.702 * gate)) * (linear + 1.0);
      } else {
        out[i] = Activate(ffn.activation, gate) * linear;
      }
    }
    return out;
  }

  Rows Ffn(const FfnSpec& ffn, const Rows& x) const {
    if (ffn.n_experts > 0) return Experts(ffn, x);
    Rows up = Linear(x, TensorRole::kFfnUp, TensorRole::kFfnUpBias);
    for (Row& row : up) row = Apply(ffn, row);
    return Linear(up, TensorRole::kFfnDown, TensorRole::kFfnDownBias);
  }

  /// The k best indices, best first; ties to the lower index.
  static std::vector<size_t> Best(const Row& scores, size_t k) {
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    order.resize(k);
    return order;
  }

  static void Softmax(Row& x) {
    const double highest = *std::max_element(x.begin(), x.end());
    double sum = 0.0;
    for (double& value : x) sum += value = std::exp(value - highest);
    for (double& value : x) value /= sum;
  }

  static void MaskGroups(const FfnSpec& ffn, Row& scores) {
    if (ffn.n_groups == 1) return;
    const size_t size = ffn.n_experts / ffn.n_groups;
    Row group_scores;
    for (size_t g = 0; g < ffn.n_groups; ++g) {
      Row group(scores.begin() + g * size, scores.begin() + (g + 1) * size);
      std::sort(group.rbegin(), group.rend());
      group_scores.push_back(ffn.group_score == GroupScore::kMax ? group[0] : group[0] + group[1]);
    }
    const std::vector<size_t> kept = Best(group_scores, ffn.top_groups);
    for (size_t e = 0; e < scores.size(); ++e) {
      if (std::find(kept.begin(), kept.end(), e / size) == kept.end())
        scores[e] = -std::numeric_limits<double>::infinity();
    }
  }

  /// Chosen experts and their weights.
  std::vector<std::pair<size_t, double>> Route(const FfnSpec& ffn, const Row& x) const {
    Row scores = Product(x, Find(TensorRole::kRouter), Find(TensorRole::kRouterBias), ffn.n_experts);
    if (ffn.router_score == RouterScore::kSoftmax) Softmax(scores);
    if (ffn.router_score == RouterScore::kSigmoid) {
      for (double& score : scores) score = 1.0 / (1.0 + std::exp(-score));
    }
    Row choice = scores;
    if (ffn.selection_bias) {
      for (size_t e = 0; e < choice.size(); ++e) choice[e] += Find(TensorRole::kRouterSelectionBias)[e];
    }
    MaskGroups(ffn, choice);
    const std::vector<size_t> chosen = Best(choice, ffn.top_k);
    Row weights;
    for (size_t e : chosen) weights.push_back(scores[e]);
    if (ffn.router_score == RouterScore::kSoftmaxOfTopK) Softmax(weights);
    const double sum = ffn.normalize_top_k ? std::accumulate(weights.begin(), weights.end(), 0.0) : 1.0;
    std::vector<std::pair<size_t, double>> routes;
    for (size_t i = 0; i < chosen.size(); ++i) routes.emplace_back(chosen[i], weights[i] / sum * ffn.routed_scale);
    return routes;
  }

  Rows Experts(const FfnSpec& ffn, const Rows& x) const {
    const size_t model_dim = config_.model_dim, dim = ffn.ffn_dim, up_rows = (ffn.gated ? 2 : 1) * dim;
    const float *up = Find(TensorRole::kExpertUp), *up_bias = Find(TensorRole::kExpertUpBias);
    const float *down = Find(TensorRole::kExpertDown), *down_bias = Find(TensorRole::kExpertDownBias);
    Rows out;
    for (const Row& row : x) {
      Row sum(model_dim, 0.0);
      for (const auto& [e, weight] : Route(ffn, row)) {
        const Row wide = Apply(ffn, Product(row, up + e * up_rows * model_dim,
                                            up_bias != nullptr ? up_bias + e * up_rows : nullptr, up_rows));
        const Row part = Product(wide, down + e * model_dim * dim,
                                 down_bias != nullptr ? down_bias + e * model_dim : nullptr, model_dim);
        for (size_t i = 0; i < model_dim; ++i) sum[i] += weight * part[i];
      }
      if (ffn.shared_ffn_dim > 0) AddShared(ffn, row, sum);
      out.push_back(std::move(sum));
    }
    return out;
  }

  void AddShared(const FfnSpec& ffn, const Row& x, Row& sum) const {
    const size_t rows = size_t{ffn.gated ? 2u : 1u} * ffn.shared_ffn_dim;
    const Row wide = Apply(ffn, Product(x, Find(TensorRole::kSharedUp), nullptr, rows));
    const Row part = Product(wide, Find(TensorRole::kSharedDown), nullptr, sum.size());
    double gate = 1.0;
    if (ffn.shared_gate) gate = 1.0 / (1.0 + std::exp(-Product(x, Find(TensorRole::kSharedGate), nullptr, 1)[0]));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += gate * part[i];
  }

  const ModelConfig& config_;
  const ReferenceWeights& weights_;
  int32_t layer_ = -1;
};

}  // namespace

ReferenceResult RunReference(const ModelConfig& config, const ReferenceWeights& weights, std::span<const int32_t> ids) {
  return Reference(config, weights).Run(ids);
}

}  // namespace linnet::testing
