// Families that no golden has. The test makes a checkpoint under transformers' names, computes what transformers'
// classes do with it, plainly and in f64, and compares that with the program's logits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "formats/huggingface/checkpoint.h"
#include "tests/formats/safetensors/safetensors_writer.h"
#include "tests/golden/golden.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/reference_model.h"
#include "tests/support/running_model.h"

namespace linnet {
namespace {

using nlohmann::json;
using Row = std::vector<double>;
using Rows = std::vector<Row>;

/// Named tensors with values of their own.
class Weights {
 public:
  void Matrix(const std::string& name, uint64_t n, uint64_t k) { Add(name, {n, k}, 0.0f, 1.7f / std::sqrt(float(k))); }
  void Gain(const std::string& name, std::vector<uint64_t> shape) { Add(name, std::move(shape), 1.0f, 0.5f); }
  void Bias(const std::string& name, uint64_t n) { Add(name, {n}, 0.0f, 0.3f); }

  const std::vector<float>& operator[](const std::string& name) const {
    const auto it = tensors_.find(name);
    REQUIRE_MESSAGE(it != tensors_.end(), name);
    return it->second.values;
  }
  bool Has(const std::string& name) const { return tensors_.count(name) > 0; }

  void WriteTo(const testing::TemporaryFolder& folder, const json& config) const {
    testing::SafetensorsWriter writer;
    for (const auto& [name, tensor] : tensors_) writer.Add(name, tensor.shape, tensor.values);
    testing::WriteFile(folder / "model.safetensors", writer.Bytes());
    testing::WriteFile(folder / "config.json", config.dump());
  }

  /// W x (+ bias where there is one); `name` without .weight.
  Row Linear(const std::string& name, const Row& x) const {
    const std::vector<float>& w = (*this)[name + ".weight"];
    Row out(w.size() / x.size());
    for (size_t n = 0; n < out.size(); ++n) {
      if (Has(name + ".bias")) out[n] = (*this)[name + ".bias"][n];
      for (size_t k = 0; k < x.size(); ++k) out[n] += double{w[n * x.size() + k]} * x[k];
    }
    return out;
  }
  /// LayerNorm of x[begin, begin + width) with the gain (and bias, where there is one) from element `begin` on.
  void Norm(const std::string& name, Row& x, size_t begin, size_t width) const {
    const std::vector<float>& gain = (*this)[name + ".weight"];
    double mean = 0.0, variance = 0.0;
    for (size_t i = begin; i < begin + width; ++i) mean += x[i] / static_cast<double>(width);
    for (size_t i = begin; i < begin + width; ++i) {
      variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(width);
    }
    for (size_t i = begin; i < begin + width; ++i) {
      x[i] = (x[i] - mean) / std::sqrt(variance + 1e-5) * gain[i];
      if (Has(name + ".bias")) x[i] += (*this)[name + ".bias"][i];
    }
  }
  Row Normed(const std::string& name, Row x) const {
    Norm(name, x, 0, x.size());
    return x;
  }

 private:
  struct Tensor {
    std::vector<uint64_t> shape;
    std::vector<float> values;
  };

  // Uniform values about `centre`.
  void Add(const std::string& name, std::vector<uint64_t> shape, float centre, float spread) {
    uint64_t count = 1;
    for (const uint64_t dim : shape) count *= dim;
    std::vector<float> values(count);
    for (float& value : values) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      value = centre + spread * (static_cast<float>(state_ >> 40) / float(1 << 23) - 1.0f);
    }
    tensors_[name] = {std::move(shape), std::move(values)};
  }

  std::map<std::string, Tensor> tensors_;
  uint64_t state_ = 1;
};

void AddTo(Row& x, const Row& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

struct Heads {
  size_t heads = 0, kv_heads = 0, dim = 0;
  size_t window = 0;  // 0: none
  Row slopes;         // ALiBi: slope * position of the key is added
};

/// Softmax attention of q [T][heads * dim] over k, v [T][kv_heads * dim].
Rows Attend(const Heads& shape, const Rows& q, const Rows& k, const Rows& v) {
  const size_t dim = shape.dim;
  Rows out(q.size(), Row(shape.heads * dim));
  for (size_t t = 0; t < q.size(); ++t) {
    for (size_t h = 0; h < shape.heads; ++h) {
      const size_t kv = h / (shape.heads / shape.kv_heads) * dim;
      const size_t first = shape.window > 0 && t + 1 > shape.window ? t + 1 - shape.window : 0;
      Row weights;
      double sum = 0.0;
      for (size_t j = first; j <= t; ++j) {
        double score = 0.0;
        for (size_t i = 0; i < dim; ++i) score += q[t][h * dim + i] * k[j][kv + i];
        score /= std::sqrt(static_cast<double>(dim));
        if (!shape.slopes.empty()) score += shape.slopes[h] * static_cast<double>(j);
        weights.push_back(std::exp(score));
        sum += weights.back();
      }
      for (size_t j = first; j <= t; ++j) {
        for (size_t i = 0; i < dim; ++i) out[t][h * dim + i] += weights[j - first] / sum * v[j][kv + i];
      }
    }
  }
  return out;
}

std::vector<float> Logits(const Weights& w, const std::string& table, const Rows& x, double scale) {
  std::vector<float> logits;
  for (const Row& row : x) {
    for (const double logit : w.Linear(table, row)) logits.push_back(static_cast<float>(logit * scale));
  }
  return logits;
}

Row Embedding(const std::vector<float>& table, int32_t id, size_t width) {
  const auto begin = table.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(id) * width);
  return {begin, begin + static_cast<ptrdiff_t>(width)};
}

// ------------------------------------------------------------------------------------------------------------- Cohere

constexpr size_t kDim = 48, kHeads = 6, kKvHeads = 2, kHeadDim = 8, kFfn = 64, kLayers = 4, kVocab = 60;

Weights CohereWeights(bool qk_norm, size_t kv_heads = kKvHeads) {
  Weights w;
  w.Matrix("model.embed_tokens.weight", kVocab, kDim);
  w.Gain("model.norm.weight", {kDim});
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const std::string base = "model.layers." + std::to_string(layer) + ".";
    w.Gain(base + "input_layernorm.weight", {kDim});
    w.Matrix(base + "self_attn.q_proj.weight", kHeads * kHeadDim, kDim);
    w.Matrix(base + "self_attn.k_proj.weight", kv_heads * kHeadDim, kDim);
    w.Matrix(base + "self_attn.v_proj.weight", kv_heads * kHeadDim, kDim);
    w.Matrix(base + "self_attn.o_proj.weight", kDim, kHeads * kHeadDim);
    if (qk_norm) w.Gain(base + "self_attn.q_norm.weight", {kHeads, kHeadDim});
    if (qk_norm) w.Gain(base + "self_attn.k_norm.weight", {kv_heads, kHeadDim});
    w.Matrix(base + "mlp.gate_proj.weight", kFfn, kDim);
    w.Matrix(base + "mlp.up_proj.weight", kFfn, kDim);
    w.Matrix(base + "mlp.down_proj.weight", kDim, kFfn);
  }
  return w;
}

/// Each head's pairs (2i, 2i + 1), turned by pos * theta^(-2i / dim).
void RotatePairs(Row& x, size_t pos, double theta) {
  for (size_t i = 0; i < x.size(); i += 2) {
    const double power = static_cast<double>(i % kHeadDim) / kHeadDim;
    const double angle = static_cast<double>(pos) * std::pow(theta, -power);
    const double a = x[i], b = x[i + 1];
    x[i] = a * std::cos(angle) - b * std::sin(angle);
    x[i + 1] = b * std::cos(angle) + a * std::sin(angle);
  }
}

struct CohereCase {
  bool qk_norm = false;
  size_t kv_heads = kKvHeads;
  double theta = 0.0, logit_scale = 0.0;
  std::function<size_t(size_t)> window;  // of each layer
  std::function<bool(size_t)> rotates = [](size_t) { return true; };
};

std::vector<float> CohereLogits(const Weights& w, const CohereCase& model, std::span<const int32_t> ids) {
  Rows x;
  for (const int32_t id : ids) x.push_back(Embedding(w["model.embed_tokens.weight"], id, kDim));
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const std::string base = "model.layers." + std::to_string(layer) + ".";
    Rows normed, q, k, v;
    for (size_t t = 0; t < x.size(); ++t) {
      normed.push_back(w.Normed(base + "input_layernorm", x[t]));
      q.push_back(w.Linear(base + "self_attn.q_proj", normed[t]));
      k.push_back(w.Linear(base + "self_attn.k_proj", normed[t]));
      v.push_back(w.Linear(base + "self_attn.v_proj", normed[t]));
      for (size_t i = 0; model.qk_norm && i < q[t].size(); i += kHeadDim) {
        w.Norm(base + "self_attn.q_norm", q[t], i, kHeadDim);
      }
      for (size_t i = 0; model.qk_norm && i < k[t].size(); i += kHeadDim) {
        w.Norm(base + "self_attn.k_norm", k[t], i, kHeadDim);
      }
      if (!model.rotates(layer)) continue;
      RotatePairs(q[t], t, model.theta);
      RotatePairs(k[t], t, model.theta);
    }
    const Rows attended = Attend({kHeads, model.kv_heads, kHeadDim, model.window(layer), {}}, q, k, v);
    for (size_t t = 0; t < x.size(); ++t) {
      Row wide = w.Linear(base + "mlp.gate_proj", normed[t]);
      const Row up = w.Linear(base + "mlp.up_proj", normed[t]);
      for (size_t i = 0; i < wide.size(); ++i) wide[i] = wide[i] / (1.0 + std::exp(-wide[i])) * up[i];
      AddTo(x[t], w.Linear(base + "self_attn.o_proj", attended[t]));
      AddTo(x[t], w.Linear(base + "mlp.down_proj", wide));
    }
  }
  for (Row& row : x) row = w.Normed("model.norm", row);
  return Logits(w, "model.embed_tokens", x, model.logit_scale);
}

json CohereConfig(const std::string& model_type) {
  return {{"model_type", model_type},
          {"vocab_size", kVocab},
          {"hidden_size", kDim},
          {"intermediate_size", kFfn},
          {"num_hidden_layers", kLayers},
          {"num_attention_heads", kHeads},
          {"num_key_value_heads", kKvHeads},
          {"max_position_embeddings", 64},
          {"layer_norm_eps", 1e-5},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"logit_scale", 0.25},
          {"rope_theta", 600.0}};
}

// -------------------------------------------------------------------------------------------------------------- BLOOM

Weights BloomWeights() {
  Weights w;
  const auto linear = [&](const std::string& name, size_t n, size_t k) {
    w.Matrix(name + ".weight", n, k);
    w.Bias(name + ".bias", n);
  };
  const auto norm = [&](const std::string& name) {
    w.Gain(name + ".weight", {kDim});
    w.Bias(name + ".bias", kDim);
  };
  w.Matrix("word_embeddings.weight", kVocab, kDim);
  norm("word_embeddings_layernorm");
  norm("ln_f");
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const std::string base = "h." + std::to_string(layer) + ".";
    norm(base + "input_layernorm");
    norm(base + "post_attention_layernorm");
    linear(base + "self_attention.query_key_value", 3 * kDim, kDim);
    linear(base + "self_attention.dense", kDim, kDim);
    linear(base + "mlp.dense_h_to_4h", 4 * kDim, kDim);
    linear(base + "mlp.dense_4h_to_h", kDim, 4 * kDim);
  }
  return w;
}

/// Slopes for any number of heads, as the paper's authors extend them: every second one of twice as many heads' series.
Row BloomSlopes(size_t n) {
  size_t power = 1;
  while (2 * power <= n) power *= 2;
  const auto series = [](size_t count, size_t i) {
    return std::pow(std::pow(2.0, -std::pow(2.0, -(std::log2(static_cast<double>(count)) - 3.0))),
                    static_cast<double>(i));
  };
  Row slopes;
  for (size_t i = 1; i <= power; ++i) slopes.push_back(series(power, i));
  for (size_t i = 1; slopes.size() < n; i += 2) slopes.push_back(series(2 * power, i));
  return slopes;
}

std::vector<float> BloomLogits(const Weights& w, std::span<const int32_t> ids) {
  Rows x;
  for (const int32_t id : ids) {
    x.push_back(w.Normed("word_embeddings_layernorm", Embedding(w["word_embeddings.weight"], id, kDim)));
  }
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const std::string base = "h." + std::to_string(layer) + ".";
    Rows q, k, v;
    for (const Row& row : x) {  // fused as [heads, 3, head_dim]
      const Row fused = w.Linear(base + "self_attention.query_key_value", w.Normed(base + "input_layernorm", row));
      for (Rows* part : {&q, &k, &v}) part->emplace_back();
      for (size_t i = 0; i < fused.size(); ++i) {
        const size_t part = i / kHeadDim % 3;
        (part == 0 ? q : part == 1 ? k : v).back().push_back(fused[i]);
      }
    }
    const Rows attended = Attend({kHeads, kHeads, kHeadDim, 0, BloomSlopes(kHeads)}, q, k, v);
    for (size_t t = 0; t < x.size(); ++t) {
      AddTo(x[t], w.Linear(base + "self_attention.dense", attended[t]));
      Row wide = w.Linear(base + "mlp.dense_h_to_4h", w.Normed(base + "post_attention_layernorm", x[t]));
      for (double& u : wide) {
        u = 0.5 * u * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (u + 0.044715 * u * u * u)));
      }
      AddTo(x[t], w.Linear(base + "mlp.dense_4h_to_h", wide));
    }
  }
  for (Row& row : x) row = w.Normed("ln_f", row);
  return Logits(w, "word_embeddings", x, 1.0);
}

json BloomConfig() {  // as published, with fewer layers
  return {{"model_type", "bloom"},
          {"architectures", {"BloomForCausalLM"}},
          {"n_embed", kDim},
          {"n_layer", kLayers},
          {"num_attention_heads", kHeads},
          {"vocab_size", kVocab},
          {"seq_length", 64},
          {"layer_norm_epsilon", 1e-5},
          {"apply_residual_connection_post_layernorm", false},
          {"attention_softmax_in_fp32", true},
          {"bias_dropout_fusion", true},
          {"masked_softmax_fusion", true},
          {"n_inner", nullptr},
          {"offset_alibi", 100},
          {"pretraining_tp", 4},
          {"skip_bias_add", true},
          {"skip_bias_add_qkv", false},
          {"hidden_dropout", 0.0},
          {"attention_dropout", 0.0},
          {"bos_token_id", 1},
          {"eos_token_id", 2},
          {"pad_token_id", 3},
          {"unk_token_id", 0}};
}

// ---------------------------------------------------------------------------------------------------------- comparison

using Feature = std::function<void(ModelConfig&)>;

/// The program's logits are `expected`, for several chunks; without any of `features` they would not be.
void Check(const Weights& weights, const json& config, std::span<const int32_t> ids, const std::vector<float>& expected,
           const std::map<std::string, Feature>& features) {
  const testing::TemporaryFolder folder;
  weights.WriteTo(folder, config);
  Diagnostic diagnostic;
  const auto checkpoint = formats::OpenHuggingFaceCheckpoint(folder.path(), &diagnostic);
  REQUIRE_MESSAGE(checkpoint.ok(), std::string(diagnostic.text()));
  const formats::ModelFile file = testing::ConvertTo(DType::kF32, **checkpoint);
  for (const uint32_t chunk : {1u, 7u, 64u}) {
    CAPTURE(chunk);
    testing::RunningModel model(file.view(), {.context_tokens = 64, .chunk_tokens = chunk});
    CHECK(testing::LargestDifference(model.AllLogits(ids), expected) <= testing::kGoldenTolerance);
  }
  for (const auto& [name, remove] : features) {
    CAPTURE(name);
    ModelConfig changed = file.config();
    remove(changed);
    const auto result = testing::RunReference(changed, testing::WeightsOf(file.view()), ids);
    const std::vector<float> logits(result.logits.begin(), result.logits.end());
    CHECK(testing::LargestDifference(logits, expected) > testing::kGoldenTolerance);
  }
}

Feature InBlocks(void (*change)(BlockSpec&)) {
  return [change](ModelConfig& config) {
    for (BlockSpec& block : config.blocks) change(block);
  };
}

const std::map<std::string, Feature> kCohereFeatures = {
    {"pairing", [](ModelConfig& config) { config.ropes[0].layout = RopeLayout::kHalfSplit; }},
    {"logit scale", [](ModelConfig& config) { config.logit_scale = 1.0f; }},
    {"one norm", InBlocks([](BlockSpec& block) { block.norm.kind = NormKind::kRmsNorm; })},
};

}  // namespace

TEST_SUITE("golden") {
  TEST_CASE("Cohere: parallel blocks, interleaved rotation, scaled logits") {
    const std::vector<int32_t> ids = testing::SomeIds(23, kVocab);
    const Weights weights = CohereWeights(false);
    const CohereCase model = {.theta = 600.0, .logit_scale = 0.25, .window = [](size_t) { return size_t{0}; }};
    Check(weights, CohereConfig("cohere"), ids, CohereLogits(weights, model, ids), kCohereFeatures);
  }

  TEST_CASE("Cohere: a norm of every query and key head's own") {
    const std::vector<int32_t> ids = testing::SomeIds(23, kVocab);
    std::map<std::string, Feature> features = kCohereFeatures;
    features["qk norm"] = InBlocks([](BlockSpec& block) { block.attention.qk_norm = QkNorm::kNone; });
    features["gains of their own"] = InBlocks([](BlockSpec& block) { block.attention.qk_norm = QkNorm::kPerHead; });
    for (const size_t kv_heads : {size_t{2}, size_t{1}}) {
      const Weights weights = CohereWeights(true, kv_heads);
      const CohereCase model = {
          .qk_norm = true, .kv_heads = kv_heads, .theta = 600.0, .logit_scale = 0.25, .window = [](size_t) {
            return size_t{0};
          }};
      json config = CohereConfig("cohere");
      config.update({{"use_qk_norm", true}, {"num_key_value_heads", kv_heads}});
      Check(weights, config, ids, CohereLogits(weights, model, ids), features);
    }
  }

  TEST_CASE("Cohere 2: rotated window layers, full layers without positions, in both spellings") {
    const std::vector<int32_t> ids = testing::SomeIds(23, kVocab);
    const Weights weights = CohereWeights(false);
    const auto slides = [](size_t layer) { return (layer + 1) % 3 != 0; };
    const CohereCase model = {.theta = 600.0,
                              .logit_scale = 0.25,
                              .window = [=](size_t layer) { return slides(layer) ? size_t{5} : size_t{0}; },
                              .rotates = slides};
    const std::vector<float> expected = CohereLogits(weights, model, ids);
    std::map<std::string, Feature> features = kCohereFeatures;
    features["window"] = InBlocks([](BlockSpec& block) { block.attention.window = 0; });
    features["layers without rotation"] = InBlocks([](BlockSpec& block) { block.attention.rope = 0; });
    json older = CohereConfig("cohere2");
    older.update({{"sliding_window", 5},
                  {"sliding_window_pattern", 3},
                  {"head_dim", kHeadDim},
                  {"rotary_pct", 1.0},
                  {"position_embedding_type", "rope_gptj"},
                  {"use_parallel_block", true},
                  {"layer_switch", 3},
                  {"order_of_interleaved_layers", "local_attn_first"},
                  {"use_gated_activation", true}});
    Check(weights, older, ids, expected, features);
    json newer = CohereConfig("cohere2");
    newer.erase("rope_theta");
    newer.update({{"sliding_window", 5},
                  {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 600.0}}},
                  {"layer_types", {"sliding_attention", "sliding_attention", "full_attention", "sliding_attention"}}});
    Check(weights, newer, ids, expected, {});
  }

  TEST_CASE("BLOOM: linear biases of six heads, a norm behind the embedding, fused heads") {
    const std::vector<int32_t> ids = testing::SomeIds(23, kVocab);
    const Weights weights = BloomWeights();
    Check(weights, BloomConfig(), ids, BloomLogits(weights, ids),
          {{"linear biases", InBlocks([](BlockSpec& block) { block.attention.alibi = false; })},
           {"embedding norm", [](ModelConfig& config) { config.embedding_norm = {}; }},
           {"tanh gelu", InBlocks([](BlockSpec& block) { block.ffn.activation = Activation::kGelu; })}});
  }
}

}  // namespace linnet
