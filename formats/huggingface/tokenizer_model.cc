#include "formats/huggingface/tokenizer_model.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/utf8.h"
#include "formats/huggingface/json_access.h"
#include "formats/huggingface/tokenizer_components.h"

namespace linnet::formats {
namespace {

using Json = nlohmann::json;

constexpr int kMaxJsonDepth = 32;
// Ids need not be dense, but a single entry must not ask for millions of empty ones.
constexpr size_t kMaxHoles = 65536;

/// Texts one after another; small entries without a heap block each.
class TextList {
 public:
  void Add(std::string_view text) {
    pool_.append(text);
    ends_.push_back(pool_.size());
  }
  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(pool_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string pool_;
  std::vector<size_t> ends_;
};

/// What is taken out of the text while it is parsed.
struct ModelTables {
  TextList vocabulary;       // texts
  std::vector<int64_t> ids;  // of vocabulary
  TextList merge_parts;      // left, right, left, right, ...
  const char* error = nullptr;
};

/// The parser's callback: keeps the vocabulary and the merges in ModelTables and drops them from the tree.
class TableExtractor {
 public:
  explicit TableExtractor(ModelTables* tables) : tables_(tables) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMaxJsonDepth) {
      tables_->error = "nested too deeply";
      return false;
    }
    if (event == Event::key) {
      if (depth == 1) section_ = Text(parsed);
      if (depth == 2) table_ = Text(parsed);
      if (depth != 3 || !InTable("vocab")) return true;
      token_ = Text(parsed);
      return false;  // the parser hands over the value all the same
    }
    if (depth < 3 || section_ != "model") return true;
    if (table_ == "vocab" && depth == 3 && event == Event::value) return AddToken(parsed);
    if (table_ == "merges") return AddMerge(depth, event, parsed);
    return true;
  }

 private:
  static std::string Text(const Json& value) {
    const auto* text = value.get_ptr<const Json::string_t*>();
    return text == nullptr ? std::string() : *text;
  }
  bool InTable(const char* name) const { return section_ == "model" && table_ == name; }

  bool AddToken(const Json& value) {
    int64_t id = 0;
    if (!JsonAccess::IntegerOf(value, &id)) {
      tables_->error = "model.vocab: expected an id for each token";
      return false;
    }
    tables_->vocabulary.Add(token_);
    tables_->ids.push_back(id);
    return false;
  }

  bool AddMerge(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth == 3 && event == Event::array_start) {
      parts_of_pair_ = 0;
    } else if (depth == 3 && event == Event::array_end) {
      if (parts_of_pair_ != 2) tables_->error = "model.merges: expected pairs of texts";
      return false;
    } else if (depth == 4 && event == Event::value) {
      AddPart(parsed);
      ++parts_of_pair_;
      return false;
    } else if (depth == 3 && event == Event::value) {
      const std::string text = Text(parsed);
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        tables_->error = "model.merges: expected two texts with one space between them";
        return false;
      }
      tables_->merge_parts.Add(std::string_view(text).substr(0, space));
      tables_->merge_parts.Add(std::string_view(text).substr(space + 1));
      return false;
    }
    return true;
  }

  void AddPart(const Json& value) {
    const auto* text = value.get_ptr<const Json::string_t*>();
    if (text == nullptr) {
      tables_->error = "model.merges: expected pairs of texts";
    } else {
      tables_->merge_parts.Add(*text);
    }
  }

  ModelTables* tables_;
  std::string section_, table_, token_;  // the keys that the parser is inside of
  int parts_of_pair_ = 0;
};

using IdOfText = std::unordered_map<std::string_view, int32_t>;

class TokenizerReader {
 public:
  TokenizerReader(const Json& root, const ModelTables& tables, TokenizerSpec* spec, Diagnostic* diagnostic)
      : root_(root), tables_(tables), spec_(spec), diagnostic_(diagnostic), access_("tokenizer.json", diagnostic) {}

  Status Run() {
    LINNET_RETURN_IF_ERROR(ReadModel());
    LINNET_RETURN_IF_ERROR(ReadTokenizerComponents(root_, access_, spec_));
    LINNET_RETURN_IF_ERROR(ReadVocabulary());
    LINNET_RETURN_IF_ERROR(ReadMerges());
    LINNET_RETURN_IF_ERROR(ReadAddedTokens());
    SetByteTypes();
    return CheckAffixes();
  }

 private:
  Status Refuse(const std::string& why) { return access_.Invalid("model", why); }

  Status ReadModel() {
    const Json* model = JsonAccess::Find(root_, "model");
    if (model == nullptr) return Refuse("missing");
    std::string type = "BPE";  // files of old versions do not say
    LINNET_RETURN_IF_ERROR(access_.ReadString(*model, "type", &type));
    if (type != "BPE") return access_.Unsupported("model", "type", type);
    if (tables_.ids.empty()) return Refuse("\"vocab\" is missing or empty");
    spec_->kind = TokenizerKind::kBpe;
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      std::string affix;
      LINNET_RETURN_IF_ERROR(access_.ReadString(*model, key, &affix));
      if (!affix.empty()) return access_.Unsupported("model", key, affix);
    }
    LINNET_RETURN_IF_ERROR(access_.ReadBool(*model, "byte_fallback", &spec_->byte_fallback));
    LINNET_RETURN_IF_ERROR(access_.ReadBool(*model, "fuse_unk", &spec_->fuse_unk));
    LINNET_RETURN_IF_ERROR(access_.ReadBool(*model, "ignore_merges", &spec_->ignore_merges));
    return access_.ReadString(*model, "unk_token", &unk_token_);
  }

  /// Makes `id` a valid index. Errors: an id that no list of this length justifies.
  Status GrowTo(int64_t id) {
    const size_t limit = std::min(TokenizerSpec::kMaxTokens, 2 * tables_.ids.size() + kMaxHoles);
    if (id < 0 || static_cast<uint64_t>(id) >= limit)
      return Refuse("the id " + std::to_string(id) + " is out of range");
    const auto size = static_cast<size_t>(id) + 1;
    if (spec_->tokens.size() < size) {
      spec_->tokens.resize(size);
      spec_->types.resize(size, TokenType::kUnused);
      spec_->lookup.resize(size, false);
    }
    return Status::Ok();
  }

  Status ReadVocabulary() {
    id_of_.reserve(tables_.ids.size());
    for (size_t i = 0; i < tables_.ids.size(); ++i) {
      LINNET_RETURN_IF_ERROR(GrowTo(tables_.ids[i]));
      const auto id = static_cast<int32_t>(tables_.ids[i]);
      const auto index = static_cast<size_t>(id);
      if (spec_->types[index] != TokenType::kUnused) return Refuse("two tokens have the id " + std::to_string(id));
      SetToken(index, tables_.vocabulary[i]);
      spec_->types[index] = TokenType::kNormal;
      id_of_[tables_.vocabulary[i]] = id;
    }
    const auto unk = id_of_.find(unk_token_);
    if (unk != id_of_.end() && !unk_token_.empty()) spec_->unk_id = unk->second;
    return spec_->byte_level ? CheckBytesOfByteLevel() : Status::Ok();
  }

  /// Byte-level vocabularies are stored as bytes. What is not written in the byte-level alphabet stays as it is and can
  /// not come out of the model.
  void SetToken(size_t index, std::string_view text) {
    std::string& token = spec_->tokens[index];
    spec_->lookup[index] = !spec_->byte_level || AppendBytesOfAlphabet(text, &token);
    if (token.empty()) token = text;
  }

  /// byte_fallback has no meaning where every byte is a token; otherwise it would fall back on the alphabet's own
  /// bytes.
  Status CheckBytesOfByteLevel() {
    if (!spec_->byte_fallback) return Status::Ok();
    for (const uint16_t character : kByteAlphabet) {
      std::string text;
      AppendUtf8(character, &text);
      if (id_of_.find(text) == id_of_.end())
        return access_.Unsupported("model", "byte_fallback without the byte", text);
    }
    spec_->byte_fallback = false;
    return Status::Ok();
  }

  Status ReadMerges() {
    const TextList& parts = tables_.merge_parts;
    if (parts.size() / 2 > TokenizerSpec::kMaxMerges) return Refuse("too many merges");
    spec_->merges.reserve(parts.size() / 2);
    std::string joined;
    for (size_t i = 0; i + 1 < parts.size(); i += 2) {
      joined.assign(parts[i]).append(parts[i + 1]);
      const auto left = id_of_.find(parts[i]), right = id_of_.find(parts[i + 1]), result = id_of_.find(joined);
      if (left == id_of_.end() || right == id_of_.end() || result == id_of_.end()) {
        return Refuse("the merge of \"" + std::string(parts[i]) + "\" and \"" + std::string(parts[i + 1]) +
                      "\" needs tokens that are not in the vocabulary");
      }
      spec_->merges.push_back({left->second, right->second, result->second});
    }
    return Status::Ok();
  }

  Status ReadAddedTokens() {
    const Json* list = JsonAccess::Find(root_, "added_tokens");
    if (list == nullptr) return Status::Ok();
    if (!list->is_array() || list->size() > TokenizerSpec::kMaxAddedTokens)
      return access_.WrongType("added_tokens", "an array");
    for (const Json& entry : *list) {
      AddedToken token;
      int64_t id = -1;
      LINNET_RETURN_IF_ERROR(access_.ReadInteger(entry, "id", 0, TokenizerSpec::kMaxTokens - 1, &id));
      LINNET_RETURN_IF_ERROR(access_.ReadString(entry, "content", &token.content));
      LINNET_RETURN_IF_ERROR(access_.ReadBool(entry, "single_word", &token.single_word));
      LINNET_RETURN_IF_ERROR(access_.ReadBool(entry, "lstrip", &token.lstrip));
      LINNET_RETURN_IF_ERROR(access_.ReadBool(entry, "rstrip", &token.rstrip));
      LINNET_RETURN_IF_ERROR(access_.ReadBool(entry, "normalized", &token.normalized));
      LINNET_RETURN_IF_ERROR(access_.ReadBool(entry, "special", &token.special));
      if (id < 0) return access_.Invalid("added_tokens", "a token without an \"id\"");
      if (token.content.empty()) continue;  // can never be found in a text
      LINNET_RETURN_IF_ERROR(GrowTo(id));
      token.id = static_cast<int32_t>(id);
      AddToken(std::move(token));
    }
    return Status::Ok();
  }

  void AddToken(AddedToken token) {
    const auto index = static_cast<size_t>(token.id);
    if (spec_->types[index] == TokenType::kUnused) {
      // The decoder reads an added token by the alphabet too, where it is written in it.
      SetToken(index, token.content);
      spec_->lookup[index] = false;
    }
    spec_->types[index] = !token.special              ? TokenType::kUserDefined
                          : token.id == spec_->unk_id ? TokenType::kUnknown
                                                      : TokenType::kControl;
    const auto same = [&](const AddedToken& other) { return other.content == token.content; };
    // A list that names a text twice means the later one.
    auto& tokens = spec_->added_tokens;
    if (contents_.count(token.content) != 0) {
      *std::find_if(tokens.begin(), tokens.end(), same) = std::move(token);
      return;
    }
    contents_.emplace(token.content, true);
    tokens.push_back(std::move(token));
  }

  void SetByteTypes() {
    const bool decodes_bytes = std::any_of(spec_->decoder.begin(), spec_->decoder.end(), [](const DecoderStep& step) {
      return step.kind == DecoderKind::kByteFallback;
    });
    for (size_t i = 0; decodes_bytes && i < spec_->tokens.size(); ++i) {
      if (spec_->types[i] == TokenType::kNormal && ByteOfByteToken(spec_->tokens[i]) >= 0)
        spec_->types[i] = TokenType::kByte;
    }
  }

  Status CheckAffixes() {
    for (const auto* ids : {&spec_->prefix_ids, &spec_->suffix_ids}) {
      for (int32_t id : *ids) {
        if (static_cast<size_t>(id) >= spec_->tokens.size()) {
          return access_.Invalid("post_processor", "the id " + std::to_string(id) + " is not in the vocabulary");
        }
      }
    }
    return Status::Ok();
  }

  const Json& root_;
  const ModelTables& tables_;
  TokenizerSpec* spec_;
  Diagnostic* diagnostic_;
  JsonAccess access_;
  IdOfText id_of_;
  std::string unk_token_;
  std::unordered_map<std::string, bool> contents_;  // of the added tokens so far
};

}  // namespace

Status ReadTokenizerJson(std::string_view text, TokenizerSpec* spec, Diagnostic* diagnostic) {
  *spec = {};
  ModelTables tables;
  const Json root = Json::parse(text.begin(), text.end(), TableExtractor(&tables), /*allow_exceptions=*/false);
  const JsonAccess access("tokenizer.json", diagnostic);
  if (tables.error != nullptr) return access.Invalid("text", tables.error);
  if (!root.is_object()) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a tokenizer file is invalid",
                "tokenizer.json: expected a JSON object, found %zu bytes that are none", text.size());
  }
  return TokenizerReader(root, tables, spec, diagnostic).Run();
}

}  // namespace linnet::formats
