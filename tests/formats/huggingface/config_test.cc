#include "formats/huggingface/config.h"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/formats/huggingface/goldens.h"
#include "tests/platforms/temporary_folder.h"

namespace linnet::formats {
namespace {

using linnet::testing::GoldenFolders;
using linnet::testing::ReadFile;
using nlohmann::json;

constexpr char kSmallLlama[] = R"({"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,
  "num_attention_heads":4,"vocab_size":300,"max_position_embeddings":256,"rope_theta":10000.0})";

json SmallLlamaWith(const std::string& key, const json& value) {
  json config = json::parse(kSmallLlama);
  config[key] = value;
  return config;
}

/// The message of a config that must be refused with `code`.
std::string Refusal(const std::string& text, StatusCode code) {
  Diagnostic diagnostic;
  const auto config = ReadHuggingFaceConfig(text, &diagnostic);
  CHECK_FALSE(config.ok());
  if (!config.ok()) CHECK(config.status().code() == code);
  CHECK(std::string(diagnostic.text()).find('\n') == std::string::npos);
  return diagnostic.text();
}

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

ModelConfig Read(const json& config) {
  Diagnostic diagnostic;
  auto result = ReadHuggingFaceConfig(config.dump(), &diagnostic);
  REQUIRE_MESSAGE(result.ok(), std::string(diagnostic.text()));
  return std::move(result).value();
}

/// Another value of the same kind.
json Mutated(const json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number_float()) return value.get<double>() * 1.5 + 0.125;
  if (value.is_number()) return value.get<int64_t>() + 2;
  if (value.is_string()) return "something else";
  if (value.is_array()) {
    json changed = value;
    if (changed.empty()) return json::array({0});
    for (json& entry : changed) entry = Mutated(entry);
    return changed;
  }
  return json::object({{"something", "else"}});
}

/// Keys that no arithmetic of inference depends on, in any family.
const std::set<std::string> kNoEffect = {"architectures",
                                         "attention_dropout",
                                         "attn_pdrop",
                                         "bos_token_id",
                                         "classifier_dropout",
                                         "dropout",
                                         "dtype",
                                         "embd_pdrop",
                                         "embedding_dropout",
                                         "eos_token_id",
                                         "hidden_dropout",
                                         "init_std",
                                         "initializer_range",
                                         "is_decoder",
                                         "layerdrop",
                                         "output_router_logits",
                                         "pad_token_id",
                                         "pretraining_tp",
                                         "reorder_and_upcast_attn",
                                         "resid_pdrop",
                                         "residual_dropout",
                                         "router_aux_loss_coef",
                                         "router_jitter_noise",
                                         "summary_activation",
                                         "summary_first_dropout",
                                         "summary_proj_to_labels",
                                         "summary_type",
                                         "summary_use_proj",
                                         "torch_dtype",
                                         "transformers_version",
                                         "use_cache"};

/// The same for keys inside rope_parameters or rope_scaling.
bool IsSwitchedOffInRope(const std::string& key, const json& config) {
  return key == "original_max_position_embeddings" && config.contains(key) && !config[key].is_null();
}

/// True where another value of `key` has no effect because of what the rest of this config says.
bool IsSwitchedOff(const std::string& key, const json& config) {
  const auto is = [&config](const char* name, const json& value) {
    return config.contains(name) && config[name] == value;
  };
  const std::string family = config["model_type"];
  if (family == "deepseek_v2" || family == "deepseek_v3") {
    if (key == "head_dim" || key == "num_key_value_heads") return true;  // written for other readers
    if (key == "n_group" || key == "topk_group") return is("topk_method", "greedy");
  }
  if (key == "sliding_window" || key == "max_window_layers") {
    if (is("use_sliding_window", false)) return true;
    return key == "max_window_layers" && config.contains("layer_types");
  }
  if (key == "use_sliding_window") {  // on, it finds no window or no layer
    return !config.contains("sliding_window") || config["sliding_window"].is_null() || config["sliding_window"] == 0 ||
           config.contains("layer_types") || config.value("max_window_layers", 0) >= config["num_hidden_layers"];
  }
  if (key == "intermediate_size" && config.contains("moe_intermediate_size")) {  // no layer is dense
    return config.contains("mlp_only_layers") && config["mlp_only_layers"].empty() && is("decoder_sparse_step", 1);
  }
  // layer_types speaks first.
  if (key == "sliding_window_pattern" || key == "_sliding_window_pattern") return config.contains("layer_types");
  if (key == "no_rope_layer_interval") return config.contains("no_rope_layers");
  // The rope parameters' own values speak first.
  if (key == "partial_rotary_factor" || key == "rope_theta") {
    return config.contains("rope_parameters") && config["rope_parameters"].contains(key);
  }
  if (family == "phi3" && key == "original_max_position_embeddings") {
    return !config.contains("rope_scaling") || config["rope_scaling"].is_null();  // unscaled
  }
  if (family == "falcon") {
    if (key == "num_kv_heads") return is("new_decoder_architecture", false);
    if (key == "multi_query") return is("new_decoder_architecture", true);
  }
  return false;
}

/// Changes every value of `object` (a part of `whole`) in turn: the description must change or the config be refused.
void WalkKeys(json& whole, json& object, const ModelConfig& original, const std::string& path) {
  for (auto& [key, value] : object.items()) {
    if (value.is_null() || kNoEffect.contains(key)) continue;
    if (value.is_object()) {
      WalkKeys(whole, value, original, path + key + ".");
      continue;
    }
    if (path.empty() ? IsSwitchedOff(key, whole) : IsSwitchedOffInRope(key, whole)) continue;
    const json kept = value;
    value = Mutated(kept);
    const auto changed = ReadHuggingFaceConfig(whole.dump(), nullptr);
    const std::string where = path + key + " = " + value.dump();
    CAPTURE(where);
    CHECK_FALSE((changed.ok() && changed.value() == original));
    value = kept;
  }
}

TEST_SUITE("huggingface") {
  TEST_CASE("ReadHuggingFaceConfig: both spellings of every golden give the same description") {
    for (const auto& folder : GoldenFolders()) {
      const std::string name = folder.filename().string();
      CAPTURE(name);
      Diagnostic diagnostic;
      const auto newer = ReadHuggingFaceConfig(ReadFile(folder / "config.json"), &diagnostic);
      CHECK_MESSAGE(newer.ok(), std::string(diagnostic.text()));
      const auto older = ReadHuggingFaceConfig(ReadFile(folder / "config_legacy.json"), &diagnostic);
      CHECK_MESSAGE(older.ok(), std::string(diagnostic.text()));
      if (newer.ok() && older.ok()) CHECK(newer.value() == older.value());
    }
  }

  TEST_CASE("ReadHuggingFaceConfig: every key of every golden is used or listed as without effect") {
    for (const auto& folder : GoldenFolders()) {
      for (const char* file : {"config.json", "config_legacy.json"}) {
        const std::string name = folder.filename().string() + "/" + file;
        CAPTURE(name);
        json config = json::parse(ReadFile(folder / file));
        const ModelConfig original = Read(config);
        WalkKeys(config, config, original, "");
      }
    }
  }

  TEST_CASE(
      "ReadHuggingFaceConfig: a key that is not known is refused by name in every golden, also inside rope dicts") {
    for (const auto& folder : GoldenFolders()) {
      const std::string name = folder.filename().string();
      CAPTURE(name);
      json config = json::parse(ReadFile(folder / "config.json"));
      config["new_arithmetic"] = 0.5;
      CHECK(Contains(Refusal(config.dump(), StatusCode::kUnsupported), "new_arithmetic 0.5"));
      config["new_arithmetic"] = nullptr;
      CHECK(ReadHuggingFaceConfig(config.dump(), nullptr).ok());
      if (!config.contains("rope_parameters")) continue;
      json& rope = config["rope_parameters"];
      (rope.contains("full_attention") ? rope["full_attention"] : rope)["new_scaling"] = 2;
      CHECK(Contains(Refusal(config.dump(), StatusCode::kUnsupported), "new_scaling 2"));
    }
  }

  TEST_CASE("ReadHuggingFaceConfig: values that are not known are refused by name") {
    const auto refused = [](const std::string& key, const json& value, const std::string& part) {
      CAPTURE(key);
      const std::string text = Refusal(SmallLlamaWith(key, value).dump(), StatusCode::kUnsupported);
      CAPTURE(text);
      CHECK(Contains(text, part));
    };
    refused("rope_scaling", {{"type", "foo"}, {"factor", 2.0}}, "rope_scaling.type \"foo\" is not supported");
    refused("rope_parameters", {{"rope_type", "foo"}}, "rope_parameters.rope_type \"foo\" is not supported");
    refused("hidden_act", "bar", "hidden_act \"bar\" is not supported");
    refused("model_type", "mamba", "model_type \"mamba\" is not supported");
    refused("quantization_config", {{"quant_method", "fp8"}}, "quantization_config.quant_method \"fp8\"");
    refused("is_encoder_decoder", true, "is_encoder_decoder true");
    refused("rope_interleaved", true, "rope_interleaved true");
    refused("rope_parameters", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}, "partial_rotary_factor");
    refused("rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}, {"original_max_position_embeddings", 64}},
            "original_max_position_embeddings");
  }

  TEST_CASE("ReadHuggingFaceConfig: where only the description is wanted, how weights are stored is passed over") {
    const std::string text = SmallLlamaWith("quantization_config", {{"quant_method", "gptq"}}).dump();
    const auto plain = ReadHuggingFaceConfig(SmallLlamaWith("quantization_config", nullptr).dump(), nullptr);
    const auto stored = ReadHuggingFaceConfig(text, nullptr, StoredWeights::kAny);
    REQUIRE(plain.ok());
    REQUIRE(stored.ok());
    CHECK(*stored == *plain);
  }

  TEST_CASE("ReadHuggingFaceConfig: values of a wrong type or out of range are refused with expected and found") {
    const auto refused = [](const std::string& key, const json& value) {
      CAPTURE(key);
      CAPTURE(value.dump());
      const std::string text = Refusal(SmallLlamaWith(key, value).dump(), StatusCode::kInvalidModel);
      CHECK(!text.empty());
    };
    for (const json& value : {json("64"), json(-1), json(0), json(1e99), json(64.5), json::array({64}), json::object(),
                              json(uint64_t{1} << 40), json(true)}) {
      refused("hidden_size", value);
      refused("num_hidden_layers", value);
      refused("num_attention_heads", value);
      refused("num_key_value_heads", value);
      refused("vocab_size", value);
      refused("max_position_embeddings", value);
      refused("intermediate_size", value);
    }
    refused("num_hidden_layers", 1u << 30);
    refused("rms_norm_eps", 0);
    refused("rms_norm_eps", "small");
    refused("rope_theta", -1);
    refused("tie_word_embeddings", "yes");
    refused("hidden_act", 1);
    refused("rope_scaling", 4);
    refused("rope_scaling", {{"type", "linear"}, {"factor", 0}});
    refused("rope_scaling", {{"type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {1.0}}});
    refused("num_key_value_heads", 3);
    refused("head_dim", 7);
    refused("model_type", 5);
  }

  TEST_CASE("ReadHuggingFaceConfig: texts that are no config are refused") {
    const std::string texts[] = {"",
                                 "{",
                                 "[]",
                                 "null",
                                 "{\"model_type\":",
                                 std::string(100000, '['),
                                 "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}",
                                 "\xff\xfe{}"};
    for (const std::string& text : texts) {
      CAPTURE(text.substr(0, 40));
      CHECK(Contains(Refusal(text, StatusCode::kInvalidModel), "config.json"));
    }
    CHECK(Contains(Refusal("{}", StatusCode::kUnsupported), "model_type"));
  }

  TEST_CASE("ReadHuggingFaceConfig: bytes that are not UTF-8 appear in a message, not in a crash") {
    const std::string text = "{\"model_type\":\"llama\",\"hidden_act\":\"\xff\xfe\"}";
    CHECK_FALSE(Refusal(text, StatusCode::kInvalidModel).empty());
  }

  TEST_CASE("ReadHuggingFaceConfig: YaRN's cos and sin scale follows the factor unless it is given") {
    const auto scale_of = [](json rope) {
      rope["type"] = "yarn";
      rope["factor"] = 4.0;
      rope["original_max_position_embeddings"] = 64;
      return Read(SmallLlamaWith("rope_scaling", rope)).ropes[0].cos_sin_scale;
    };
    const double log4 = std::log(4.0);
    CHECK(scale_of(json::object()) == static_cast<float>(0.1 * log4 + 1.0));
    CHECK(scale_of({{"attention_factor", 1.25}}) == 1.25f);
    CHECK(scale_of({{"mscale", 1.0}, {"mscale_all_dim", 0.5}}) ==
          static_cast<float>((0.1 * log4 + 1.0) / (0.05 * log4 + 1.0)));
    CHECK(scale_of({{"mscale", 1.0}}) == static_cast<float>(0.1 * log4 + 1.0));
  }

  TEST_CASE("ReadHuggingFaceConfig: absent keys have transformers' defaults") {
    const ModelConfig llama = Read(json::parse(kSmallLlama));
    CHECK(llama.layer(0).attention.n_kv_heads == 4);
    CHECK(llama.layer(0).attention.head_dim == 16);
    CHECK(llama.layer(0).norm.eps == 1e-6f);
    CHECK_FALSE(llama.tied_head);
    json mistral = json::parse(kSmallLlama);
    mistral["model_type"] = "mistral";
    mistral["num_key_value_heads"] = nullptr;
    CHECK(Read(mistral).layer(0).attention.window == 4096);  // absent: the default
    CHECK(Read(mistral).layer(0).attention.n_kv_heads == 4);
    mistral["sliding_window"] = nullptr;
    CHECK(Read(mistral).layer(0).attention.window == 0);  // null: none
    const ModelConfig gemma2 = Read(json::parse(R"({"model_type":"gemma2"})"));
    CHECK(gemma2.layer(0).attention.logit_soft_cap == 50.0f);
    CHECK(gemma2.logit_soft_cap == 30.0f);
    CHECK(gemma2.tied_head);
    CHECK(gemma2.layer(0).attention.window == 4096);
    CHECK(gemma2.layer(1).attention.window == 0);
    const ModelConfig gemma3 = Read(json::parse(R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text"},
                                                    "vision_config":{"hidden_size":1152}})"));
    CHECK(gemma3.vocab_size == 262208);
    CHECK(gemma3.layer(4).attention.window == 4096);
    CHECK(gemma3.layer(5).attention.window == 0);
  }

  TEST_CASE("ReadHuggingFaceConfig: Gemma 3's ropes as written where layer_types has one kind only") {
    json config = json::parse(R"({"model_type":"gemma3_text","num_hidden_layers":1,"layer_types":["sliding_attention"],
        "rope_parameters":{"full_attention":{"rope_theta":1000000.0,"rope_type":"default"},"rope_theta":null,
        "rope_type":"default","sliding_attention":{"rope_theta":5000.0,"rope_type":"default"}}})");
    const ModelConfig read = Read(config);
    CHECK(read.ropes[static_cast<size_t>(read.layer(0).attention.rope)].theta == 5000.0);
    config["rope_parameters"]["rope_type"] = "yarn";
    CHECK(Contains(Refusal(config.dump(), StatusCode::kUnsupported), "rope_parameters.rope_type"));
  }

  TEST_CASE("ReadHuggingFaceConfig: the original context length beside the rope parameters wins") {
    json config = SmallLlamaWith("rope_scaling",
                                 {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}});
    CHECK(Read(config).ropes[0].original_context_length == 64);
    config["original_max_position_embeddings"] = 32;
    CHECK(Read(config).ropes[0].original_context_length == 32);
    config.erase("rope_scaling");
    CHECK(Read(config).ropes[0].scaling == RopeScaling::kNone);
  }

  TEST_CASE("ReadHuggingFaceConfig: head_dim is read, or refused where transformers would compute with another") {
    for (const char* family : {"olmo2", "granite", "smollm3", "phi3", "starcoder2", "qwen2_moe"}) {
      CAPTURE(family);
      json config = SmallLlamaWith("model_type", family);
      config["num_key_value_heads"] = 2;
      CHECK(Read(config).layer(0).attention.head_dim == 16);
      config["head_dim"] = 24;
      CHECK(Read(config).layer(0).attention.head_dim == 24);
    }
    for (const char* family : {"phi", "gpt_neox", "stablelm"}) {
      CAPTURE(family);
      json config = SmallLlamaWith("model_type", family);
      config["num_key_value_heads"] = family == std::string("gpt_neox") ? json() : json(4);
      config["head_dim"] = 16;
      CHECK(Read(config).layer(0).attention.head_dim == 16);
      config["head_dim"] = 24;
      CHECK(Contains(Refusal(config.dump(), StatusCode::kUnsupported), "head_dim 24"));
    }
  }

  TEST_CASE("ReadHuggingFaceConfig: every Gemma reads its own key of the activation; Gemma 3 has no cap on scores") {
    const auto read = [](const char* family, const char* key) {
      return Read({{"model_type", family}, {"num_hidden_layers", 1}, {key, "gelu"}}).layer(0).ffn.activation;
    };
    CHECK(read("gemma", "hidden_act") == Activation::kGelu);
    CHECK(read("gemma", "hidden_activation") == Activation::kGeluTanh);
    for (const char* family : {"gemma2", "gemma3_text"}) {
      CAPTURE(family);
      CHECK(read(family, "hidden_act") == Activation::kGeluTanh);
      CHECK(read(family, "hidden_activation") == Activation::kGelu);
    }
    const ModelConfig capped =
        Read({{"model_type", "gemma3_text"}, {"attn_logit_softcapping", 50.0}, {"final_logit_softcapping", 30.0}});
    CHECK(capped.layer(0).attention.logit_soft_cap == 0.0f);
    CHECK(capped.logit_soft_cap == 30.0f);
  }

  TEST_CASE("ReadHuggingFaceConfig: keys of published files that change nothing, with the values that change nothing") {
    const auto accepted = [](const char* family, const char* key, const json& value) {
      CAPTURE(family);
      CAPTURE(key);
      const json plain = {{"model_type", family}};
      json with = plain;
      with[key] = value;
      CHECK(Read(with) == Read(plain));
    };
    const auto refused = [](const char* family, const char* key, const json& value) {
      const json config = {{"model_type", family}, {key, value}};
      CHECK(Contains(Refusal(config.dump(), StatusCode::kUnsupported), key));
    };
    const struct {
      const char *family, *key;
      json harmless, other;  // null: any other is harmless too
    } cases[] = {{"phi3", "full_attn_mod", 1, 2},
                 {"phi3", "interpolate_factor", 1, 2},
                 {"phi3", "lm_head_bias", false, true},
                 {"gemma2", "sliding_window_size", 4096, nullptr},
                 {"gpt2", "_num_labels", 1, nullptr},
                 {"gpt2", "output_past", true, nullptr},
                 {"gpt2", "custom_pipelines", json::object(), nullptr},
                 {"llama", "max_sequence_length", 2048, nullptr},
                 {"gpt_neox", "attention_probs_dropout_prob", 0, nullptr},
                 {"gpt_neox", "hidden_dropout_prob", 0, nullptr},
                 {"starcoder2", "attention_softmax_in_fp32", true, nullptr},
                 {"starcoder2", "scale_attention_softmax_in_fp32", true, nullptr},
                 {"starcoder2", "layer_norm_epsilon", 0.5, nullptr},
                 {"starcoder2", "scale_attn_weights", true, false},
                 {"stablelm", "rotary_scaling_factor", 1.0, 2.0},
                 {"falcon", "ff_factor", 4, 3},
                 {"gpt_oss", "swiglu_limit", 7.0, 6.0}};
    for (const auto& [family, key, harmless, other] : cases) {
      accepted(family, key, harmless);
      if (!other.is_null()) refused(family, key, other);
    }
    Read(SmallLlamaWith("rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"finetuned", true}}));
  }

  TEST_CASE("ReadHuggingFaceConfig: what a scaling needs is not made up, and contradictions are refused") {
    const auto invalid = [](const json& rope, const std::string& part) {
      const std::string text = Refusal(SmallLlamaWith("rope_scaling", rope).dump(), StatusCode::kInvalidModel);
      CAPTURE(text);
      CHECK(Contains(text, part));
      CHECK_FALSE(Contains(text, "-1"));
    };
    for (const char* type : {"linear", "dynamic", "yarn", "llama3"}) {
      json rope = {{"rope_type", type}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
      if (type == std::string("llama3")) rope["original_max_position_embeddings"] = 64;
      invalid(rope, "rope_scaling.factor");
    }
    const json llama3 = {{"rope_type", "llama3"},
                         {"factor", 2.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 64}};
    for (const char* key : {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      json rope = llama3;
      rope.erase(key);
      invalid(rope, key);
    }
    Read(SmallLlamaWith("rope_scaling", llama3));
    invalid({{"rope_type", "yarn"}, {"factor", 2.0}, {"beta_fast", 1.0}, {"beta_slow", 4.0}}, "beta_fast");
    invalid({{"rope_type", "linear"}, {"factor", 0.0}}, "factor");
    const json derived = {{"rope_type", "yarn"}, {"original_max_position_embeddings", 64}};
    CHECK(Read(SmallLlamaWith("rope_scaling", derived)).ropes[0].factor == 4.0);
    const json contradiction = {{"rope_type", "linear"}, {"type", "yarn"}, {"factor", 2.0}};
    const std::string text = Refusal(SmallLlamaWith("rope_scaling", contradiction).dump(), StatusCode::kUnsupported);
    CHECK(Contains(text, "rope_scaling.type \"yarn\""));
    const json same = {{"rope_type", "longrope"},
                       {"type", "su"},
                       {"short_factor", std::vector<float>(8, 1.0f)},
                       {"long_factor", std::vector<float>(8, 2.0f)}};
    CHECK(Read(SmallLlamaWith("rope_scaling", same)).ropes[0].scaling == RopeScaling::kLongRope);
  }

  TEST_CASE("ReadHuggingFaceConfig: DeepSeek's score scale has the square of YaRN's magnitude") {
    const json base = json::parse(R"({"model_type":"deepseek_v3","num_hidden_layers":1})");
    json scaled = base;
    scaled["rope_scaling"] = {{"type", "yarn"},
                              {"factor", 40},
                              {"mscale", 1.0},
                              {"mscale_all_dim", 1.0},
                              {"original_max_position_embeddings", 4096}};
    const double magnitude = 0.1 * std::log(40.0) + 1.0;
    const double plain = Read(base).layer(0).attention.score_scale;
    CHECK(plain == doctest::Approx(1.0 / std::sqrt(192.0)).epsilon(1e-7));
    CHECK(Read(scaled).layer(0).attention.score_scale == doctest::Approx(plain * magnitude * magnitude).epsilon(1e-6));
    CHECK(Read(scaled).ropes[0].cos_sin_scale == 1.0f);
  }
}

}  // namespace
}  // namespace linnet::formats
