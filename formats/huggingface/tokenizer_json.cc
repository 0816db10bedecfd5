#include "formats/huggingface/tokenizer_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/model_config.h"
#include "formats/huggingface/json_access.h"
#include "formats/huggingface/tokenizer_model.h"

namespace linnet::formats {
namespace {

using Json = nlohmann::json;

constexpr char kGenerationFile[] = "generation_config.json";
constexpr int kMaxJsonDepth = 64;
constexpr size_t kMaxEndIds = kMaxEndTokens;
constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

/// Parses a small file; null where it is absent.
Status Parse(const char* file, const std::optional<std::string_view>& text, Json* out, Diagnostic* diagnostic) {
  *out = nullptr;
  if (!text.has_value()) return Status::Ok();
  // Deeper values are dropped, so that nothing that is read from the tree can be nested without end.
  const auto limit_depth = [](int depth, Json::parse_event_t, Json&) { return depth <= kMaxJsonDepth; };
  *out = Json::parse(text->begin(), text->end(), limit_depth, /*allow_exceptions=*/false);
  if (out->is_object()) return Status::Ok();
  *out = nullptr;
  return Fail(diagnostic, StatusCode::kInvalidModel, "a file beside the weights is malformed",
              "%s: expected a JSON object, found %zu bytes that are none", file, text->size());
}

/// The text of a special token: a string, or an object with its "content".
std::string SpecialTokenText(const Json& config, const char* key) {
  const Json* value = JsonAccess::Find(config, key);
  if (value != nullptr && value->is_object()) value = JsonAccess::Find(*value, "content");
  const auto* text = value == nullptr ? nullptr : value->get_ptr<const Json::string_t*>();
  return text == nullptr ? std::string() : *text;
}

int32_t IdOfText(const TokenizerSpec& spec, const std::string& text) {
  if (text.empty()) return -1;
  for (const AddedToken& token : spec.added_tokens) {
    if (token.content == text) return token.id;
  }
  const auto it = std::find(spec.tokens.begin(), spec.tokens.end(), text);
  return it == spec.tokens.end() ? -1 : static_cast<int32_t>(it - spec.tokens.begin());
}

/// Ids below `limit` under `key`: absent, null, one id or a list. Others, such as -1 for "none", are passed over.
Status ReadIds(const char* file, const Json& config, const char* key, int64_t limit, std::vector<int32_t>* ids,
               Diagnostic* diagnostic) {
  const Json* value = JsonAccess::Find(config, key);
  if (value == nullptr) return Status::Ok();
  const JsonAccess access(file, diagnostic);
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& entry : list) {
    int64_t id = 0;
    if (!JsonAccess::IntegerOf(entry, &id) || ids->size() >= kMaxEndIds) {
      return access.WrongType(key, "a token id or a list of at most 64 of them");
    }
    if (id < 0 || id >= limit) continue;
    const auto small = static_cast<int32_t>(id);
    if (std::find(ids->begin(), ids->end(), small) == ids->end()) ids->push_back(small);
  }
  return Status::Ok();
}

Status ReadAddedToken(const JsonAccess& access, const Json& entry, AddedToken* token) {
  LINNET_RETURN_IF_ERROR(access.ReadString(entry, "content", &token->content));
  LINNET_RETURN_IF_ERROR(access.ReadBool(entry, "single_word", &token->single_word));
  LINNET_RETURN_IF_ERROR(access.ReadBool(entry, "lstrip", &token->lstrip));
  LINNET_RETURN_IF_ERROR(access.ReadBool(entry, "rstrip", &token->rstrip));
  LINNET_RETURN_IF_ERROR(access.ReadBool(entry, "normalized", &token->normalized));
  return access.ReadBool(entry, "special", &token->special);
}

/// Tokens that only tokenizer_config.json names, where their ids continue the vocabulary; for all others tokenizer.json
/// has the say.
Status AddTokensOfConfig(const Json& config, TokenizerSpec* spec, Diagnostic* diagnostic) {
  const Json* decoder = JsonAccess::Find(config, "added_tokens_decoder");
  if (decoder == nullptr || !decoder->is_object()) return Status::Ok();
  const JsonAccess access("tokenizer_config.json", diagnostic);
  std::map<int32_t, const Json*> entries;  // in the order of ids; the file's keys are ordered as texts
  for (const auto& [key, entry] : decoder->items()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      return access.Invalid("added_tokens_decoder", "the key \"" + key + "\" is no token id");
    }
    if (static_cast<size_t>(id) >= spec->tokens.size()) entries[id] = &entry;
  }
  if (entries.empty()) return Status::Ok();
  std::unordered_set<std::string> known(spec->tokens.begin(), spec->tokens.end());
  for (const auto& [id, entry] : entries) {
    AddedToken token;
    token.id = id;
    LINNET_RETURN_IF_ERROR(ReadAddedToken(access, *entry, &token));
    const bool continues =
        static_cast<size_t>(id) == spec->tokens.size() && spec->tokens.size() < TokenizerSpec::kMaxTokens;
    if (!continues || token.content.empty() || !known.insert(token.content).second) continue;
    spec->tokens.push_back(token.content);
    spec->types.push_back(token.special ? TokenType::kControl : TokenType::kUserDefined);
    spec->lookup.push_back(false);
    spec->added_tokens.push_back(std::move(token));
  }
  return Status::Ok();
}

/// Classes that build their post-processor from add_bos_token and add_eos_token; others ignore the two.
bool ClassHonorsAddBos(const std::string& name) {
  const auto starts_with = [&](const char* prefix) { return name.rfind(prefix, 0) == 0; };
  return starts_with("Llama") || starts_with("CodeLlama") || starts_with("Gemma") || starts_with("Cohere") ||
         starts_with("TokenizersBackend");
}

Status ApplyAddBos(const Json& config, TokenizerSpec* spec, Diagnostic* diagnostic) {
  const JsonAccess access("tokenizer_config.json", diagnostic);
  std::string name;
  LINNET_RETURN_IF_ERROR(access.ReadString(config, "tokenizer_class", &name));
  if (!ClassHonorsAddBos(name)) return Status::Ok();
  const struct {
    const char* key;
    int32_t id;
    std::vector<int32_t>* ids;
  } sides[] = {{"add_bos_token", spec->bos_id, &spec->prefix_ids}, {"add_eos_token", spec->eos_id, &spec->suffix_ids}};
  for (const auto& [key, id, ids] : sides) {
    if (JsonAccess::Find(config, key) == nullptr) continue;
    bool add = false;
    LINNET_RETURN_IF_ERROR(access.ReadBool(config, key, &add));
    if (add && id < 0) return access.Invalid(key, "is true, but there is no such token");
    ids->clear();
    if (add) ids->push_back(id);
  }
  return Status::Ok();
}

/// chat_template.jinja, else tokenizer_config.json's: a text, or a list of named ones.
Status ReadChatTemplate(const HuggingFaceFiles& files, const Json& config, std::string* out, Diagnostic* diagnostic) {
  const JsonAccess access("tokenizer_config.json", diagnostic);
  out->clear();
  const Json* value = JsonAccess::Find(config, "chat_template");
  if (files.chat_template_jinja.has_value()) {
    out->assign(*files.chat_template_jinja);
  } else if (value != nullptr && value->is_array()) {
    for (const Json& entry : *value) {
      std::string name, text;
      LINNET_RETURN_IF_ERROR(access.ReadString(entry, "name", &name));
      LINNET_RETURN_IF_ERROR(access.ReadString(entry, "template", &text));
      if (name == "default" || value->size() == 1) *out = std::move(text);
    }
  } else if (value != nullptr) {
    LINNET_RETURN_IF_ERROR(access.ReadString(config, "chat_template", out));
  }
  if (out->size() > kMaxTemplateBytes) return access.Invalid("chat_template", "is longer than 1 MiB");
  return Status::Ok();
}

/// The numbers of generation_config.json; what the sampler would refuse counts as not given.
Status ReadSampling(const Json& generation, GenerationDefaults* out, Diagnostic* diagnostic) {
  // The ranges of the sampler's options: greedy or a temperature whose inverse stays finite, a share, a divisor.
  constexpr float kMinTemperature = 1e-5f, kMaxTemperature = 1e4f;
  const JsonAccess access(kGenerationFile, diagnostic);
  LINNET_RETURN_IF_ERROR(access.ReadFloat(generation, "temperature", &out->temperature));
  const bool greedy = out->temperature == 0.0f;
  if (!greedy && !(out->temperature >= kMinTemperature && out->temperature <= kMaxTemperature))
    out->temperature = -1.0f;
  LINNET_RETURN_IF_ERROR(access.ReadFloat(generation, "top_p", &out->top_p));
  if (!(out->top_p >= 0.0f && out->top_p <= 1.0f)) out->top_p = -1.0f;
  LINNET_RETURN_IF_ERROR(access.ReadFloat(generation, "repetition_penalty", &out->repetition_penalty));
  if (!(out->repetition_penalty > 0.0f && std::isfinite(out->repetition_penalty))) out->repetition_penalty = -1.0f;
  int64_t top_k = -1;
  LINNET_RETURN_IF_ERROR(access.ReadInteger(generation, "top_k", INT64_MIN, INT64_MAX, &top_k));
  out->top_k = top_k >= 0 && top_k <= INT32_MAX ? static_cast<int32_t>(top_k) : -1;
  bool sample = true;
  LINNET_RETURN_IF_ERROR(access.ReadBool(generation, "do_sample", &sample));
  if (!sample) out->temperature = 0.0f;  // greedy
  return Status::Ok();
}

/// `vocab_size` of the model; 0: not known.
Status ReadGeneration(const Json& generation, const Json& config, const TokenizerSpec& spec, uint32_t vocab_size,
                      GenerationDefaults* out, Diagnostic* diagnostic) {
  const int64_t limit = vocab_size > 0 ? int64_t{vocab_size} : int64_t{INT32_MAX} + 1;
  const bool has_tokenizer = spec.kind != TokenizerKind::kNone;
  *out = {};
  std::vector<int32_t> bos;
  if (spec.bos_id >= 0 && spec.bos_id < limit) bos.push_back(spec.bos_id);
  LINNET_RETURN_IF_ERROR(ReadIds(kGenerationFile, generation, "bos_token_id", limit, &bos, diagnostic));
  LINNET_RETURN_IF_ERROR(ReadIds("config.json", config, "bos_token_id", limit, &bos, diagnostic));
  if (!bos.empty()) out->bos_id = bos.front();
  out->add_bos = has_tokenizer && !spec.prefix_ids.empty() && spec.prefix_ids.front() == out->bos_id;
  LINNET_RETURN_IF_ERROR(ReadIds(kGenerationFile, generation, "eos_token_id", limit, &out->end_ids, diagnostic));
  if (out->end_ids.empty()) {
    LINNET_RETURN_IF_ERROR(ReadIds("config.json", config, "eos_token_id", limit, &out->end_ids, diagnostic));
  }
  const bool known = std::find(out->end_ids.begin(), out->end_ids.end(), spec.eos_id) != out->end_ids.end();
  if (spec.eos_id >= 0 && spec.eos_id < limit && !known) {
    if (out->end_ids.size() >= kMaxEndIds) {
      return JsonAccess(kGenerationFile, diagnostic)
          .WrongType("eos_token_id", "at most 64 ids with the tokenizer's own");
    }
    out->end_ids.push_back(spec.eos_id);
  }
  return ReadSampling(generation, out, diagnostic);
}

void ReadSpecialIds(const Json& config, const Json& map, TokenizerSpec* spec) {
  const struct {
    const char* key;
    int32_t* id;
  } tokens[] = {{"bos_token", &spec->bos_id}, {"eos_token", &spec->eos_id}, {"pad_token", &spec->pad_id}};
  for (const auto& [key, id] : tokens) {
    *id = IdOfText(*spec, SpecialTokenText(config, key));
    if (*id < 0) *id = IdOfText(*spec, SpecialTokenText(map, key));
  }
}

}  // namespace

Status ReadHuggingFaceTokenizer(const HuggingFaceFiles& files, TokenizerSpec* tokenizer, std::string* chat_template,
                                GenerationDefaults* generation, Diagnostic* diagnostic) {
  *tokenizer = {};
  Json tokenizer_config, special_map, generation_config, config;
  LINNET_RETURN_IF_ERROR(Parse("tokenizer_config.json", files.tokenizer_config_json, &tokenizer_config, diagnostic));
  LINNET_RETURN_IF_ERROR(Parse("special_tokens_map.json", files.special_tokens_map_json, &special_map, diagnostic));
  LINNET_RETURN_IF_ERROR(Parse(kGenerationFile, files.generation_config_json, &generation_config, diagnostic));
  LINNET_RETURN_IF_ERROR(Parse("config.json", files.config_json, &config, diagnostic));
  if (files.tokenizer_json.has_value()) {
    LINNET_RETURN_IF_ERROR(ReadTokenizerJson(*files.tokenizer_json, tokenizer, diagnostic));
    LINNET_RETURN_IF_ERROR(AddTokensOfConfig(tokenizer_config, tokenizer, diagnostic));
    ReadSpecialIds(tokenizer_config, special_map, tokenizer);
    LINNET_RETURN_IF_ERROR(ApplyAddBos(tokenizer_config, tokenizer, diagnostic));
  } else if (files.tokenizer_model.has_value()) {
    return Fail(diagnostic, StatusCode::kUnsupported, "a tokenizer of an unsupported kind",
                "tokenizer.model: a SentencePiece model without a tokenizer.json beside it is not supported; save the "
                "tokenizer as tokenizer.json");
  }
  LINNET_RETURN_IF_ERROR(ReadChatTemplate(files, tokenizer_config, chat_template, diagnostic));
  return ReadGeneration(generation_config, config, *tokenizer, files.vocab_size, generation, diagnostic);
}

}  // namespace linnet::formats
