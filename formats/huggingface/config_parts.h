// The parts that most families' configs have in common. A family's mapping is made of these.
#ifndef LINNET_FORMATS_HUGGINGFACE_CONFIG_PARTS_H_
#define LINNET_FORMATS_HUGGINGFACE_CONFIG_PARTS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/model_config.h"
#include "formats/huggingface/config_reader.h"

namespace linnet::formats {

/// The names of the keys and, where they are absent, the values of transformers' config class.
struct SizeKeys {
  const char* model_dim = "hidden_size";
  const char* n_layers = "num_hidden_layers";
  const char* context_length = "max_position_embeddings";
};
struct SizeDefaults {
  uint32_t vocab_size = 0;
  uint32_t model_dim = 0;
  uint32_t n_layers = 0;
  uint32_t context_length = 0;
  bool tied_head = false;
};
/// vocab_size, model_dim, n_layers, context_length, tied_head. n_layers is within its limit afterwards, or an error is
/// recorded and it is 0, so that mappings may loop over it.
void ReadSizes(ConfigReader& reader, const SizeDefaults& defaults, ModelConfig* config, const SizeKeys& keys = {});

struct HeadKeys {
  const char* n_heads = "num_attention_heads";
  const char* n_kv_heads = "num_key_value_heads";  // null: the family has none
  const char* head_dim = "head_dim";               // null: the family has none
};
struct HeadDefaults {
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;  // 0: as many as n_heads
  uint32_t head_dim = 0;    // 0: model_dim / n_heads
};
/// n_heads, n_kv_heads, head_dim, value_dim, and score_scale = 1 / sqrt(head_dim).
/// A key that is present and null means "derived" for both counts, as in transformers.
void ReadHeads(ConfigReader& reader, const HeadDefaults& defaults, const ModelConfig& config, AttentionSpec* attention,
               const HeadKeys& keys = {});

/// The activation under `key`, by transformers' names. Refuses an unknown one by name.
Activation ReadActivation(ConfigReader& reader, const char* key, const char* fallback);

NormSpec RmsNorm(ConfigReader& reader, double default_eps, const char* key = "rms_norm_eps");
NormSpec LayerNorm(ConfigReader& reader, double default_eps, const char* key = "layer_norm_eps");

struct RopeDefaults {
  uint32_t head_dim = 0;
  uint32_t context_length = 0;
  double theta = 10000.0;
  double rotated_share = 1.0;            // partial_rotary_factor
  const char* theta_key = "rope_theta";  // the older spelling's key
  const char* share_key = nullptr;       // the older spelling's key; null: the family has none
  uint32_t original_context_length = 0;  // original_max_position_embeddings beside the parameters; 0: no default
  RopeLayout layout = RopeLayout::kHalfSplit;
};
struct RopeReading {
  RopeSpec spec;
  double mscale_all_dim = 0.0;  // YaRN: DeepSeek multiplies its score scale by a function of it
};
/// The rotary embedding, in both spellings: rope_parameters (transformers 5), or theta, rope_scaling and
/// partial_rotary_factor as keys of their own. rope_scaling comes first where both exist, as in transformers.
RopeReading ReadRope(ConfigReader& reader, const RopeDefaults& defaults);
/// The same from the object that holds the parameters of one rotary embedding. `reader` is the config's own, for keys
/// that stand beside it.
RopeReading ReadRopeParameters(ConfigReader& parameters, ConfigReader& reader, const RopeDefaults& defaults);
/// YaRN's magnitude correction: 0.1 * scale * ln(factor) + 1, 1 for factors up to 1. Source: arXiv:2309.00071, 3.4.
double YarnMagnitude(double factor, double scale);

/// Adds the rope or finds an equal one; returns its index.
int32_t InternRope(ModelConfig& config, const RopeSpec& rope);

/// Whether each layer has a sliding window: from layer_types where present, else by `fallback(layer)`. Refuses other
/// types.
std::vector<bool> ReadSlidingLayers(ConfigReader& reader, uint32_t n_layers,
                                    const std::function<bool(uint32_t)>& fallback);

/// Appends n_layers blocks: `block`, after `adapt(layer, copy)` has changed the copy.
void AddLayers(ModelConfig& config, const BlockSpec& block,
               const std::function<void(uint32_t, BlockSpec&)>& adapt = nullptr);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_CONFIG_PARTS_H_
