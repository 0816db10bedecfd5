#include "formats/huggingface/tokenizer_components.h"

#include <string>
#include <utility>
#include <vector>

namespace linnet::formats {

const char kByteLevelPattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

using Json = nlohmann::json;

constexpr int kMaxNesting = 8;                          // of Sequence in Sequence; published files nest once
constexpr const char* kMetaspaceMark = "\xe2\x96\x81";  // U+2581
// \w as the tokenizers library's Whitespace has it (Unicode UTS #18).
constexpr const char* kWhitespacePattern =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";
constexpr const char* kPunctuationPattern = R"([!-/:-@\[-`{-~\p{P}])";

class ComponentReader {
 public:
  ComponentReader(const JsonAccess& access, TokenizerSpec* spec) : access_(access), spec_(spec) {}

  Status Run(const Json& root) {
    if (const Json* normalizer = JsonAccess::Find(root, "normalizer"))
      LINNET_RETURN_IF_ERROR(Normalizer(*normalizer, 0));
    if (byte_level_normalizer_) AddSplitStep(PreTokenizerKind::kByteLevel);
    if (const Json* steps = JsonAccess::Find(root, "pre_tokenizer")) LINNET_RETURN_IF_ERROR(PreTokenizer(*steps, 0));
    const Json* decoder = JsonAccess::Find(root, "decoder");
    if (decoder == nullptr) return access_.Unsupported("decoder", "type", "null");
    LINNET_RETURN_IF_ERROR(Decoder(*decoder, 0));
    LINNET_RETURN_IF_ERROR(CheckByteLevel());
    const Json* processor = JsonAccess::Find(root, "post_processor");
    return processor == nullptr ? Status::Ok() : PostProcessor(*processor, 0);
  }

 private:
  /// Reads "type" and, of a Sequence, calls `read(member)` for each element of `list_key`. `*done`: it was a Sequence.
  template <typename Read>
  Status TypeOf(const char* where, const Json& component, const char* list_key, int depth, std::string* type,
                bool* done, const Read& read) {
    *done = false;
    type->clear();
    LINNET_RETURN_IF_ERROR(access_.ReadString(component, "type", type));
    if (type->empty()) return access_.Invalid(where, "expected an object with a \"type\"");
    if (*type != "Sequence") return Status::Ok();
    *done = true;
    const Json* list = JsonAccess::Find(component, list_key);
    if (list == nullptr || !list->is_array()) return access_.WrongType(list_key, "an array");
    if (depth >= kMaxNesting || list->size() > TokenizerSpec::kMaxSteps) {
      return access_.Invalid(where, "sequences are nested too deeply or too long");
    }
    for (const Json& member : *list) LINNET_RETURN_IF_ERROR(read(member));
    return Status::Ok();
  }

  /// {"String": text} or {"Regex": expression}.
  Status Pattern(const char* where, const Json& component, std::string* pattern, bool* regex) {
    const Json* value = JsonAccess::Find(component, "pattern");
    if (value == nullptr) return access_.Invalid(where, "expected a \"pattern\"");
    *regex = JsonAccess::Find(*value, "Regex") != nullptr;
    LINNET_RETURN_IF_ERROR(access_.ReadString(*value, *regex ? "Regex" : "String", pattern));
    if (pattern->empty()) return access_.Invalid(where, "the pattern is empty or of an unknown kind");
    if (pattern->size() > TokenizerSpec::kMaxPatternBytes) return access_.Invalid(where, "the pattern is too long");
    return Status::Ok();
  }

  Status Normalizer(const Json& component, int depth) {
    std::string type;
    bool done = false;
    LINNET_RETURN_IF_ERROR(TypeOf("normalizer", component, "normalizers", depth, &type, &done,
                                  [&](const Json& member) { return Normalizer(member, depth + 1); }));
    if (done) return Status::Ok();
    if (byte_level_normalizer_) return access_.Unsupported("normalizer", "behind ByteLevel, type", type);
    NormalizerStep step;
    if (type == "ByteLevel") {
      byte_level_normalizer_ = true;
      return Status::Ok();
    }
    if (type == "Strip") return StripNormalizer(component);
    if (type == "NFC") {
      step.kind = NormalizerKind::kNfc;
    } else if (type == "NFD") {
      step.kind = NormalizerKind::kNfd;
    } else if (type == "NFKC") {
      step.kind = NormalizerKind::kNfkc;
    } else if (type == "NFKD") {
      step.kind = NormalizerKind::kNfkd;
    } else if (type == "Lowercase") {
      step.kind = NormalizerKind::kLowercase;
    } else if (type == "StripAccents") {
      step.kind = NormalizerKind::kStripAccents;
    } else if (type == "Prepend") {
      step.kind = NormalizerKind::kPrepend;
      LINNET_RETURN_IF_ERROR(access_.ReadString(component, "prepend", &step.content));
    } else if (type == "Replace") {
      step.kind = NormalizerKind::kReplace;
      LINNET_RETURN_IF_ERROR(Pattern("normalizer", component, &step.pattern, &step.regex));
      LINNET_RETURN_IF_ERROR(access_.ReadString(component, "content", &step.content));
    } else {
      return access_.Unsupported("normalizer", "type", type);
    }
    spec_->normalizer.push_back(std::move(step));
    return Status::Ok();
  }

  Status StripNormalizer(const Json& component) {
    bool left = true, right = true;
    LINNET_RETURN_IF_ERROR(access_.ReadBool(component, "strip_left", &left));
    LINNET_RETURN_IF_ERROR(access_.ReadBool(component, "strip_right", &right));
    if (left) spec_->normalizer.push_back({NormalizerKind::kStripLeft, false, {}, {}});
    if (right) spec_->normalizer.push_back({NormalizerKind::kStripRight, false, {}, {}});
    return Status::Ok();
  }

  PreTokenizerStep& AddSplitStep(PreTokenizerKind kind) {
    PreTokenizerStep& step = spec_->pre_tokenizer.emplace_back();
    step.kind = kind;
    if (kind == PreTokenizerKind::kByteLevel) spec_->byte_level = true;
    return step;
  }
  void AddRegexSplit(const char* pattern, SplitBehavior behavior, bool invert = false) {
    PreTokenizerStep& step = AddSplitStep(PreTokenizerKind::kSplit);
    step.regex = true;
    step.pattern = pattern;
    step.behavior = behavior;
    step.invert = invert;
  }

  Status PreTokenizer(const Json& component, int depth) {
    std::string type;
    bool done = false;
    LINNET_RETURN_IF_ERROR(TypeOf("pre_tokenizer", component, "pretokenizers", depth, &type, &done,
                                  [&](const Json& member) { return PreTokenizer(member, depth + 1); }));
    if (done) return Status::Ok();
    if (type == "ByteLevel") return ByteLevel(component);
    if (type == "Split") return Split(component);
    if (type == "Metaspace") return Metaspace(component);
    if (type == "Digits") {
      bool individual = false;
      LINNET_RETURN_IF_ERROR(access_.ReadBool(component, "individual_digits", &individual));
      AddRegexSplit("\\p{N}", individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
      return Status::Ok();
    }
    if (type == "Punctuation") {
      SplitBehavior behavior = SplitBehavior::kIsolated;
      LINNET_RETURN_IF_ERROR(Behavior(component, &behavior));
      AddRegexSplit(kPunctuationPattern, behavior);
      return Status::Ok();
    }
    if (type == "Whitespace") {
      AddRegexSplit(kWhitespacePattern, SplitBehavior::kRemoved, true);
    } else if (type == "WhitespaceSplit") {
      AddRegexSplit("\\s+", SplitBehavior::kRemoved);
    } else if (type == "BertPreTokenizer") {
      AddRegexSplit("\\s+", SplitBehavior::kRemoved);
      AddRegexSplit(kPunctuationPattern, SplitBehavior::kIsolated);
    } else {
      return access_.Unsupported("pre_tokenizer", "type", type);
    }
    return Status::Ok();
  }

  Status ByteLevel(const Json& component) {
    bool prefix_space = true, use_regex = true;
    LINNET_RETURN_IF_ERROR(access_.ReadBool(component, "add_prefix_space", &prefix_space));
    LINNET_RETURN_IF_ERROR(access_.ReadBool(component, "use_regex", &use_regex));
    if (spec_->byte_level) return access_.Unsupported("pre_tokenizer", "behind ByteLevel, type", "ByteLevel");
    if (prefix_space) AddSplitStep(PreTokenizerKind::kPrefixSpace);
    if (use_regex) AddRegexSplit(kByteLevelPattern, SplitBehavior::kIsolated);
    AddSplitStep(PreTokenizerKind::kByteLevel);
    return Status::Ok();
  }

  Status Behavior(const Json& component, SplitBehavior* behavior) {
    std::string name = "Isolated";
    LINNET_RETURN_IF_ERROR(access_.ReadString(component, "behavior", &name));
    if (name == "Isolated") {
      *behavior = SplitBehavior::kIsolated;
    } else if (name == "Removed") {
      *behavior = SplitBehavior::kRemoved;
    } else if (name == "MergedWithPrevious") {
      *behavior = SplitBehavior::kMergedWithPrevious;
    } else if (name == "MergedWithNext") {
      *behavior = SplitBehavior::kMergedWithNext;
    } else if (name == "Contiguous") {
      *behavior = SplitBehavior::kContiguous;
    } else {
      return access_.Unsupported("pre_tokenizer", "behavior", name);
    }
    return Status::Ok();
  }

  Status Split(const Json& component) {
    PreTokenizerStep step;
    step.kind = PreTokenizerKind::kSplit;
    LINNET_RETURN_IF_ERROR(Pattern("pre_tokenizer", component, &step.pattern, &step.regex));
    LINNET_RETURN_IF_ERROR(Behavior(component, &step.behavior));
    LINNET_RETURN_IF_ERROR(access_.ReadBool(component, "invert", &step.invert));
    spec_->pre_tokenizer.push_back(std::move(step));
    return Status::Ok();
  }

  /// "prepend_scheme", or add_prefix_space of older files.
  Status Prepend(const char* where, const Json& component, PrependScheme* scheme) {
    bool prefix_space = true;
    LINNET_RETURN_IF_ERROR(access_.ReadBool(component, "add_prefix_space", &prefix_space));
    std::string name = prefix_space ? "always" : "never";
    LINNET_RETURN_IF_ERROR(access_.ReadString(component, "prepend_scheme", &name));
    if (name != "always" && name != "never" && name != "first")
      return access_.Unsupported(where, "prepend_scheme", name);
    *scheme = name == "always"  ? PrependScheme::kAlways
              : name == "first" ? PrependScheme::kFirst
                                : PrependScheme::kNever;
    return Status::Ok();
  }

  Status Metaspace(const Json& component) {
    PreTokenizerStep& step = AddSplitStep(PreTokenizerKind::kMetaspace);
    step.pattern = kMetaspaceMark;
    LINNET_RETURN_IF_ERROR(access_.ReadString(component, "replacement", &step.pattern));
    LINNET_RETURN_IF_ERROR(access_.ReadBool(component, "split", &step.split));
    if (step.pattern.empty()) return access_.Invalid("pre_tokenizer", "Metaspace has an empty replacement");
    return Prepend("pre_tokenizer", component, &step.prepend);
  }

  Status Decoder(const Json& component, int depth) {
    std::string type;
    bool done = false;
    LINNET_RETURN_IF_ERROR(TypeOf("decoder", component, "decoders", depth, &type, &done,
                                  [&](const Json& member) { return Decoder(member, depth + 1); }));
    if (done) return Status::Ok();
    DecoderStep step;
    if (type == "ByteLevel") {
      byte_level_decoder_ = true;
      return Status::Ok();
    }
    if (type == "Fuse") {
      step.kind = DecoderKind::kFuse;
    } else if (type == "ByteFallback") {
      step.kind = DecoderKind::kByteFallback;
    } else if (type == "Replace") {
      step.kind = DecoderKind::kReplace;
      bool regex = false;
      LINNET_RETURN_IF_ERROR(Pattern("decoder", component, &step.pattern, &regex));
      if (regex) return access_.Unsupported("decoder", "Replace with the expression", step.pattern);
      LINNET_RETURN_IF_ERROR(access_.ReadString(component, "content", &step.content));
    } else if (type == "Strip") {
      step.kind = DecoderKind::kStrip;
      int64_t start = 0, stop = 0;
      LINNET_RETURN_IF_ERROR(access_.ReadString(component, "content", &step.content));
      LINNET_RETURN_IF_ERROR(access_.ReadInteger(component, "start", 0, 1024, &start));
      LINNET_RETURN_IF_ERROR(access_.ReadInteger(component, "stop", 0, 1024, &stop));
      step.start = static_cast<uint32_t>(start);
      step.stop = static_cast<uint32_t>(stop);
      if (step.content.empty()) return access_.Invalid("decoder", "Strip without a content");
    } else if (type == "Metaspace") {
      step.kind = DecoderKind::kMetaspace;
      step.pattern = kMetaspaceMark;
      LINNET_RETURN_IF_ERROR(access_.ReadString(component, "replacement", &step.pattern));
      LINNET_RETURN_IF_ERROR(Prepend("decoder", component, &step.prepend));
      if (step.pattern.empty()) return access_.Invalid("decoder", "Metaspace has an empty replacement");
    } else {
      return access_.Unsupported("decoder", "type", type);
    }
    spec_->decoder.push_back(std::move(step));
    return Status::Ok();
  }

  /// Vocabularies are stored as bytes where the pre-tokenizer is byte-level, so the decoder must be byte-level as well.
  Status CheckByteLevel() {
    if (byte_level_decoder_ != spec_->byte_level) {
      return access_.Unsupported("decoder", "type",
                                 byte_level_decoder_ ? "ByteLevel without a ByteLevel pre-tokenizer"
                                                     : "other than ByteLevel behind a ByteLevel pre-tokenizer");
    }
    if (!spec_->byte_level) return Status::Ok();
    for (const DecoderStep& step : spec_->decoder) {
      if (step.kind != DecoderKind::kFuse)
        return access_.Unsupported("decoder", "beside ByteLevel, step of kind",
                                   std::to_string(static_cast<int>(step.kind)));
    }
    spec_->decoder.clear();
    return Status::Ok();
  }

  Status PostProcessor(const Json& component, int depth) {
    std::string type;
    bool done = false;
    LINNET_RETURN_IF_ERROR(TypeOf("post_processor", component, "processors", depth, &type, &done,
                                  [&](const Json& member) { return PostProcessor(member, depth + 1); }));
    if (done || type == "ByteLevel") return Status::Ok();  // ByteLevel only trims offsets here
    std::vector<int32_t> prefix, suffix;
    if (type == "TemplateProcessing") {
      LINNET_RETURN_IF_ERROR(Template(component, &prefix, &suffix));
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      LINNET_RETURN_IF_ERROR(TokenAndId(component, "cls", &prefix));
      LINNET_RETURN_IF_ERROR(TokenAndId(component, "sep", &suffix));
    } else {
      return access_.Unsupported("post_processor", "type", type);
    }
    // Each processor of a sequence wraps what the ones before it made.
    spec_->prefix_ids.insert(spec_->prefix_ids.begin(), prefix.begin(), prefix.end());
    spec_->suffix_ids.insert(spec_->suffix_ids.end(), suffix.begin(), suffix.end());
    return Status::Ok();
  }

  Status AddId(const Json& value, std::vector<int32_t>* ids) {
    int64_t id = 0;
    if (!JsonAccess::IntegerOf(value, &id) || id < 0 || id >= static_cast<int64_t>(TokenizerSpec::kMaxTokens) ||
        ids->size() >= TokenizerSpec::kMaxAffixIds) {
      return access_.Invalid("post_processor", "expected at most 64 token ids");
    }
    ids->push_back(static_cast<int32_t>(id));
    return Status::Ok();
  }

  /// ["</s>", 2]
  Status TokenAndId(const Json& component, const char* key, std::vector<int32_t>* ids) {
    const Json* pair = JsonAccess::Find(component, key);
    if (pair == nullptr || !pair->is_array() || pair->size() != 2) return access_.WrongType(key, "a token and its id");
    return AddId((*pair)[1], ids);
  }

  Status Template(const Json& component, std::vector<int32_t>* prefix, std::vector<int32_t>* suffix) {
    const Json* single = JsonAccess::Find(component, "single");
    const Json* tokens = JsonAccess::Find(component, "special_tokens");
    if (single == nullptr || !single->is_array()) return access_.WrongType("single", "an array");
    bool after_text = false;
    for (const Json& item : *single) {
      if (JsonAccess::Find(item, "Sequence") != nullptr) {
        if (after_text) return access_.Unsupported("post_processor", "template with the text", "twice");
        after_text = true;
        continue;
      }
      std::string name;
      const Json* token = JsonAccess::Find(item, "SpecialToken");
      if (token != nullptr) LINNET_RETURN_IF_ERROR(access_.ReadString(*token, "id", &name));
      const Json* entry = tokens == nullptr ? nullptr : JsonAccess::Find(*tokens, name.c_str());
      const Json* ids = entry == nullptr ? nullptr : JsonAccess::Find(*entry, "ids");
      if (ids == nullptr || !ids->is_array()) {
        return access_.Invalid("post_processor", "the template's token \"" + name + "\" has no ids");
      }
      for (const Json& id : *ids) LINNET_RETURN_IF_ERROR(AddId(id, after_text ? suffix : prefix));
    }
    if (!after_text) return access_.Invalid("post_processor", "the template has no place for the text");
    return Status::Ok();
  }

  const JsonAccess& access_;
  TokenizerSpec* spec_;
  bool byte_level_normalizer_ = false;
  bool byte_level_decoder_ = false;
};

}  // namespace

Status ReadTokenizerComponents(const nlohmann::json& root, const JsonAccess& access, TokenizerSpec* spec) {
  return ComponentReader(access, spec).Run(root);
}

}  // namespace linnet::formats
