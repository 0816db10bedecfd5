#include "formats/huggingface/config_parts.h"

#include <cmath>
#include <string_view>

namespace linnet::formats {
namespace {

struct ActivationName {
  std::string_view name;
  Activation activation;
};
constexpr ActivationName kActivations[] = {
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGelu},
    {"gelu_python", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
    {"relu2", Activation::kSquaredRelu},
};
constexpr char kActivationNames[] =
    "silu, swish, gelu, gelu_python, gelu_new, gelu_fast, gelu_pytorch_tanh, relu, relu2";

struct ScalingName {
  std::string_view name;
  RopeScaling scaling;
};
constexpr ScalingName kScalings[] = {
    {"default", RopeScaling::kNone}, {"linear", RopeScaling::kLinear}, {"dynamic", RopeScaling::kDynamicNtk},
    {"yarn", RopeScaling::kYarn},    {"llama3", RopeScaling::kLlama3}, {"longrope", RopeScaling::kLongRope},
    {"su", RopeScaling::kLongRope},  // LongRoPE's name in the first Phi-3 files
};
constexpr char kScalingNames[] = "default, linear, dynamic, yarn, llama3, longrope, su";

RopeScaling ReadScalingType(ConfigReader& parameters) {
  // Files that carry both keep "type" for older readers.
  const auto read = [&parameters](const char* key, RopeScaling fallback) {
    if (!parameters.Has(key)) return fallback;
    const std::string name = parameters.Text(key, "default");
    for (const ScalingName& entry : kScalings) {
      if (name == entry.name) return entry.scaling;
    }
    parameters.Refuse(key, kScalingNames);
    return fallback;
  };
  const RopeScaling older = read("type", RopeScaling::kNone);
  const RopeScaling scaling = read("rope_type", older);
  if (parameters.Has("type") && scaling != older) parameters.Refuse("type", "the value of rope_type beside it");
  return scaling;
}

constexpr char kOriginalContext[] = "original_max_position_embeddings";

/// A number above 0 that transformers does not default either.
double RequiredNumber(ConfigReader& parameters, const char* key) {
  if (!parameters.Has(key)) parameters.Invalid(key, "expected a number above 0, found none");
  const double number = parameters.Number(key, 1.0);
  if (!(number > 0.0)) parameters.Invalid(key, "expected a number above 0, found " + std::to_string(number));
  return number;
}

/// The context length before scaling: beside the parameters (Phi-3, whose class has a default), in them, or the context
/// length itself.
uint32_t ReadOriginalContext(ConfigReader& parameters, ConfigReader& reader, const RopeDefaults& defaults) {
  const uint32_t inside = parameters.Positive(kOriginalContext, defaults.context_length);
  return reader.Positive(kOriginalContext,
                         defaults.original_context_length > 0 ? defaults.original_context_length : inside);
}

bool HasOriginalContext(const ConfigReader& parameters, const ConfigReader& reader) {
  return parameters.Has(kOriginalContext) || reader.Has(kOriginalContext);
}

/// Scaling factor: as given, or how much longer the context is than the original one.
double ReadFactorOrRatio(ConfigReader& parameters, const RopeSpec& spec, uint32_t context_length) {
  return parameters.Number("factor", static_cast<double>(context_length) / spec.original_context_length);
}

void ReadYarn(ConfigReader& parameters, uint32_t context_length, RopeReading* reading) {
  RopeSpec& spec = reading->spec;
  spec.factor = ReadFactorOrRatio(parameters, spec, context_length);
  spec.beta_fast = parameters.Number("beta_fast", 32.0);
  spec.beta_slow = parameters.Number("beta_slow", 1.0);
  if (spec.beta_fast < spec.beta_slow) {
    parameters.Invalid("beta_fast", "expected at least beta_slow " + std::to_string(spec.beta_slow) + ", found " +
                                        std::to_string(spec.beta_fast));
  }
  spec.truncate = parameters.Flag("truncate", true);
  const double mscale = parameters.Number("mscale", 0.0);
  reading->mscale_all_dim = parameters.Number("mscale_all_dim", 0.0);
  const double magnitude =
      mscale != 0.0 && reading->mscale_all_dim != 0.0
          ? YarnMagnitude(spec.factor, mscale) / YarnMagnitude(spec.factor, reading->mscale_all_dim)
          : YarnMagnitude(spec.factor, 1.0);
  spec.cos_sin_scale = static_cast<float>(parameters.Number("attention_factor", magnitude));
}

void ReadLongRope(ConfigReader& parameters, uint32_t context_length, RopeSpec* spec) {
  const size_t count = spec->rope_dim / 2;
  spec->short_factors = parameters.Numbers("short_factor", count);
  spec->long_factors = parameters.Numbers("long_factor", count);
  const double factor = ReadFactorOrRatio(parameters, *spec, context_length);
  // Source: arXiv:2402.13753, the temperature that keeps the entropy of the attention.
  const double magnitude =
      factor <= 1.0 ? 1.0
                    : std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(spec->original_context_length)));
  spec->cos_sin_scale = static_cast<float>(parameters.Number("attention_factor", magnitude));
}

void ReadScaling(ConfigReader& parameters, ConfigReader& reader, const RopeDefaults& defaults, RopeReading* reading) {
  RopeSpec& spec = reading->spec;
  switch (spec.scaling) {
    case RopeScaling::kNone:
      reader.Ignore({kOriginalContext});
      return;
    case RopeScaling::kLinear:
      reader.Ignore({kOriginalContext});
      spec.factor = RequiredNumber(parameters, "factor");
      return;
    case RopeScaling::kDynamicNtk:
      // transformers measures growth against max_position_embeddings, whatever the original length says.
      spec.factor = RequiredNumber(parameters, "factor");
      spec.original_context_length = defaults.context_length;
      if (parameters.Positive(kOriginalContext, defaults.context_length) != defaults.context_length) {
        parameters.Refuse(kOriginalContext, "the value of max_position_embeddings");
      }
      return;
    case RopeScaling::kYarn:
      spec.original_context_length = ReadOriginalContext(parameters, reader, defaults);
      if (!HasOriginalContext(parameters, reader)) RequiredNumber(parameters, "factor");  // nothing to derive it from
      return ReadYarn(parameters, defaults.context_length, reading);
    case RopeScaling::kLlama3:
      if (!HasOriginalContext(parameters, reader)) {
        parameters.Invalid(kOriginalContext, "expected a whole number, found none");
      }
      spec.original_context_length = ReadOriginalContext(parameters, reader, defaults);
      spec.factor = RequiredNumber(parameters, "factor");
      spec.low_freq_factor = RequiredNumber(parameters, "low_freq_factor");
      spec.high_freq_factor = RequiredNumber(parameters, "high_freq_factor");
      return;
    case RopeScaling::kLongRope:
      spec.original_context_length = ReadOriginalContext(parameters, reader, defaults);
      return ReadLongRope(parameters, defaults.context_length, &spec);
  }
}

NormSpec MakeNorm(ConfigReader& reader, NormKind kind, double default_eps, const char* key) {
  NormSpec norm;
  norm.kind = kind;
  norm.eps = static_cast<float>(reader.Number(key, default_eps));
  norm.has_gain = true;
  norm.has_bias = kind == NormKind::kLayerNorm;
  return norm;
}

}  // namespace

void ReadSizes(ConfigReader& reader, const SizeDefaults& defaults, ModelConfig* config, const SizeKeys& keys) {
  config->vocab_size = reader.Positive("vocab_size", defaults.vocab_size);
  config->model_dim = reader.Positive(keys.model_dim, defaults.model_dim);
  config->n_layers = reader.Positive(keys.n_layers, defaults.n_layers);
  config->context_length = reader.Positive(keys.context_length, defaults.context_length);
  config->tied_head = reader.Flag("tie_word_embeddings", defaults.tied_head);
  if (config->n_layers > kMaxLayers) {
    reader.Invalid(keys.n_layers,
                   "expected at most " + std::to_string(kMaxLayers) + ", found " + std::to_string(config->n_layers));
    config->n_layers = 0;
  }
}

void ReadHeads(ConfigReader& reader, const HeadDefaults& defaults, const ModelConfig& config, AttentionSpec* attention,
               const HeadKeys& keys) {
  attention->n_heads = reader.Positive(keys.n_heads, defaults.n_heads);
  attention->n_kv_heads = attention->n_heads;
  if (keys.n_kv_heads != nullptr) {
    const bool derived = defaults.n_kv_heads == 0 || reader.IsNull(keys.n_kv_heads);
    attention->n_kv_heads = reader.Positive(keys.n_kv_heads, derived ? attention->n_heads : defaults.n_kv_heads);
  }
  const uint32_t shared = config.model_dim / attention->n_heads;
  attention->head_dim = shared;
  if (keys.head_dim != nullptr) {
    const bool derived = defaults.head_dim == 0 || reader.IsNull(keys.head_dim);
    attention->head_dim = reader.Positive(keys.head_dim, derived ? shared : defaults.head_dim);
  }
  attention->value_dim = attention->head_dim;
  attention->score_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention->head_dim)));
}

Activation ReadActivation(ConfigReader& reader, const char* key, const char* fallback) {
  const std::string name = reader.Text(key, fallback);
  for (const ActivationName& entry : kActivations) {
    if (name == entry.name) return entry.activation;
  }
  reader.Refuse(key, kActivationNames);
  return Activation::kSilu;
}

NormSpec RmsNorm(ConfigReader& reader, double default_eps, const char* key) {
  return MakeNorm(reader, NormKind::kRmsNorm, default_eps, key);
}
NormSpec LayerNorm(ConfigReader& reader, double default_eps, const char* key) {
  return MakeNorm(reader, NormKind::kLayerNorm, default_eps, key);
}

double YarnMagnitude(double factor, double scale) { return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0; }

RopeReading ReadRope(ConfigReader& reader, const RopeDefaults& defaults) {
  const bool older = reader.Has("rope_scaling");
  if (older && reader.Has("rope_parameters")) reader.Ignore({"rope_parameters"});
  ConfigReader parameters = reader.Child(older ? "rope_scaling" : "rope_parameters");
  RopeReading reading = ReadRopeParameters(parameters, reader, defaults);
  parameters.Finish();
  return reading;
}

RopeReading ReadRopeParameters(ConfigReader& parameters, ConfigReader& reader, const RopeDefaults& defaults) {
  RopeReading reading;
  RopeSpec& spec = reading.spec;
  spec.layout = defaults.layout;
  spec.theta = parameters.Number("rope_theta", reader.Number(defaults.theta_key, defaults.theta));
  double share = defaults.rotated_share;
  if (defaults.share_key != nullptr) share = reader.Number(defaults.share_key, share);
  share = parameters.Number("partial_rotary_factor", share);
  if (defaults.share_key == nullptr && share != defaults.rotated_share) {
    parameters.Refuse("partial_rotary_factor", "1.0, in this family");
  }
  if (!(share > 0.0 && share <= 1.0)) {
    parameters.Invalid("partial_rotary_factor",
                       "expected a number above 0 and up to 1, found " + std::to_string(share));
    share = 1.0;
  }
  spec.rope_dim = static_cast<uint32_t>(defaults.head_dim * share);
  spec.scaling = ReadScalingType(parameters);
  parameters.Ignore({"finetuned"});  // of the weights' history
  ReadScaling(parameters, reader, defaults, &reading);
  return reading;
}

int32_t InternRope(ModelConfig& config, const RopeSpec& rope) {
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    if (config.ropes[i] == rope) return static_cast<int32_t>(i);
  }
  config.ropes.push_back(rope);
  return static_cast<int32_t>(config.ropes.size() - 1);
}

std::vector<bool> ReadSlidingLayers(ConfigReader& reader, uint32_t n_layers,
                                    const std::function<bool(uint32_t)>& fallback) {
  const std::vector<std::string> types = reader.Texts("layer_types", kMaxLayers);
  std::vector<bool> sliding(n_layers, false);
  if (!reader.Has("layer_types")) {
    for (uint32_t layer = 0; layer < n_layers; ++layer) sliding[layer] = fallback(layer);
    return sliding;
  }
  if (types.size() != n_layers) {
    reader.Invalid("layer_types", "expected one type a layer, found " + std::to_string(types.size()));
    return sliding;
  }
  for (uint32_t layer = 0; layer < n_layers; ++layer) {
    sliding[layer] = types[layer] == "sliding_attention";
    if (!sliding[layer] && types[layer] != "full_attention") {
      reader.Refuse("layer_types", "full_attention, sliding_attention");
    }
  }
  return sliding;
}

void AddLayers(ModelConfig& config, const BlockSpec& block, const std::function<void(uint32_t, BlockSpec&)>& adapt) {
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    BlockSpec own = block;
    if (adapt) adapt(layer, own);
    config.layer_block.push_back(InternBlock(config, own));
  }
}

}  // namespace linnet::formats
