#include "formats/huggingface/config.h"

#include <nlohmann/json.hpp>

#include "formats/huggingface/config_reader.h"
#include "formats/huggingface/families/families.h"

namespace linnet::formats {
namespace {

constexpr int kMaxDepth = 16;  // of nested objects and lists; published configs have 4

/// Keys that say nothing about what the model computes for given weights and tokens.
constexpr const char* kKeysWithoutEffect[] = {
    // provenance and storage
    "_commit_hash",
    "_from_model_config",
    "_model_name_or_path",
    "_name_or_path",
    "architectures",
    "auto_map",
    "custom_pipelines",
    "dtype",
    "model_type",
    "name_or_path",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "transformers_weights",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    // how transformers runs it
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "attn_implementation",
    "cache_implementation",
    "chunk_size_feed_forward",
    "gradient_checkpointing",
    "is_decoder",
    "keys_to_ignore_at_inference",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pretraining_tp",
    "return_dict",
    "return_dict_in_generate",
    "tf_legacy_loss",
    "use_cache",
    "num_logits_to_keep",
    // training
    "attention_dropout",
    "classifier_dropout",
    "hidden_dropout",
    "initializer_range",
    "label_smoothing",
    "loss_type",
    // heads of other tasks
    "_num_labels",
    "finetuning_task",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "task_specific_params",
    // tokens and generation, which the tokenizer's files and generation_config.json speak of
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cls_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "pad_token_id",
    "prefix",
    "remove_invalid_values",
    "repetition_penalty",
    "sep_token_id",
    "suppress_tokens",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "typical_p",
    "unk_token_id",
};

Result<nlohmann::json> ParseConfig(std::string_view text, Diagnostic* diagnostic) {
  bool too_deep = false;
  const auto bound_depth = [&too_deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;  // what lies deeper is dropped, so that the document stays shallow
  };
  if (text.size() > kMaxConfigBytes) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "config.json is too long",
                "config.json: expected at most %llu bytes, found %zu", static_cast<unsigned long long>(kMaxConfigBytes),
                text.size());
  }
  nlohmann::json document = nlohmann::json::parse(text, bound_depth, false);
  if (document.is_discarded() || !document.is_object() || too_deep) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "config.json is malformed",
                "config.json: expected a JSON object%s", too_deep ? " nested at most 16 levels deep" : "");
  }
  return document;
}

/// What every family refuses.
void RefuseCommon(ConfigReader& reader) {
  reader.Expect("is_encoder_decoder", {"false"});
  reader.Expect("add_cross_attention", {"false"});
  reader.Expect("tie_encoder_decoder", {"false"});
  reader.Expect("pruned_heads", {"{}"});
}

}  // namespace

void IgnoreKeysWithoutEffect(ConfigReader& reader) { reader.Ignore(kKeysWithoutEffect); }

Result<ModelConfig> ReadHuggingFaceConfig(std::string_view text, Diagnostic* diagnostic, StoredWeights stored,
                                          WeightPacking* packing) {
  LINNET_ASSIGN_OR_RETURN(const nlohmann::json document, ParseConfig(text, diagnostic));
  ConfigErrors errors(diagnostic);
  ConfigReader reader(document, "", &errors);
  const std::string model_type = reader.Text("model_type", "");
  LINNET_RETURN_IF_ERROR(errors.status());
  const Family* family = FindFamily(model_type);
  if (family == nullptr) {
    return Fail(diagnostic, StatusCode::kUnsupported, "an unknown model_type",
                "config.json: model_type \"%s\" is not supported (known: %s)", model_type.c_str(), FamilyNames());
  }
  IgnoreKeysWithoutEffect(reader);
  RefuseCommon(reader);
  if (stored == StoredWeights::kAny) {
    reader.Ignore({"quantization_config"});
  } else if (reader.Has("quantization_config")) {
    const WeightPacking found = ReadWeightPacking(reader.Child("quantization_config"));
    if (packing != nullptr) *packing = found;
  }
  ModelConfig config;
  config.family = model_type;
  family->read(reader, &config);
  reader.Finish();
  LINNET_RETURN_IF_ERROR(errors.status());
  const Status valid = ValidateModelConfig(config);
  if (!valid.ok()) {
    const std::string found = valid.value() >= 0 ? " (found " + std::to_string(valid.value()) + ")" : "";
    return Fail(diagnostic, valid.code(), valid.message(), "config.json: %s%s", valid.message(), found.c_str());
  }
  return config;
}

}  // namespace linnet::formats
