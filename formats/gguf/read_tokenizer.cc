#include "formats/gguf/read_tokenizer.h"

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf/tokenizer_metadata.h"

namespace linnet::formats {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

// Switches that change the ids where they are true; language models leave them out.
constexpr const char* kUnsupportedSwitches[] = {"normalizer.lowercase", "normalizer.strip_accents",
                                                "remove_extra_whitespaces"};

/// Reads keys by their name without the prefix; the first failure is kept.
class TokenizerReader {
 public:
  TokenizerReader(const GgufFile& file, Diagnostic* diagnostic) : file_(file), diagnostic_(diagnostic) {}

  const Status& status() const { return status_; }

  std::string_view Text(const char* key) {
    return Read<std::string_view>(key, "a string", [](const GgufValue& v) { return v.AsString(); }).value_or("");
  }
  std::optional<bool> Bool(const char* key) {
    return Read<bool>(key, "a bool", [](const GgufValue& v) { return v.AsBool(); });
  }
  std::optional<int64_t> Id(const char* key) {
    return Read<int64_t>(key, "a token id", [](const GgufValue& v) -> std::optional<int64_t> {
      const std::optional<uint64_t> id = v.AsUnsigned();
      // Converters write -1 as its unsigned twin where there is no such token.
      if (!id || *id > std::numeric_limits<uint32_t>::max()) return std::nullopt;
      return *id == std::numeric_limits<uint32_t>::max() ? -1 : static_cast<int64_t>(*id);
    });
  }
  void Strings(const char* key, std::vector<std::string_view>& out) {
    const GgufValue* value = Find(key);
    if (value != nullptr && !value->AsStringArray(out)) WrongType(key, "an array of strings");
  }
  template <typename T>
  void Numbers(const char* key, const char* expected, GgufType type, GgufType other_type, std::vector<T>& out) {
    const GgufValue* value = Find(key);
    if (value == nullptr) return;
    std::vector<double> wide;
    const bool known = value->element_type() == type || value->element_type() == other_type;
    if (!known || !value->AsNumberArray(wide)) return WrongType(key, expected);
    out.reserve(wide.size());
    for (const double number : wide) {
      if (std::numeric_limits<T>::is_integer && !(number >= 0.0 && number <= 255.0)) return WrongType(key, expected);
      out.push_back(static_cast<T>(number));
    }
  }
  void RefuseSwitch(const char* key) {
    if (!Bool(key).value_or(false) || !status_.ok()) return;
    status_ = Fail(diagnostic_, StatusCode::kUnsupported, "a GGUF tokenizer switch is not supported",
                   "%s: %.*s%s is true, which is not supported", file_.name().c_str(), static_cast<int>(kPrefix.size()),
                   kPrefix.data(), key);
  }

 private:
  const GgufValue* Find(const char* key) const { return file_.Find(std::string(kPrefix) + key); }

  template <typename T, typename Convert>
  std::optional<T> Read(const char* key, const char* expected, Convert convert) {
    const GgufValue* value = Find(key);
    if (value == nullptr) return std::nullopt;
    const std::optional<T> result = convert(*value);
    if (!result) WrongType(key, expected);
    return result;
  }
  void WrongType(const char* key, const char* expected) {
    if (!status_.ok()) return;
    status_ = Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF tokenizer key has another type than expected",
                   "%s: %.*s%s: expected %s", file_.name().c_str(), static_cast<int>(kPrefix.size()), kPrefix.data(),
                   key, expected);
  }

  const GgufFile& file_;
  Diagnostic* diagnostic_;
  Status status_;
};

}  // namespace

Status ReadGgufTokenizer(const GgufFile& file, TokenizerSpec* tokenizer, GenerationDefaults* generation,
                         Diagnostic* diagnostic) {
  TokenizerReader reader(file, diagnostic);
  std::vector<std::string_view> tokens, merges;
  std::vector<float> scores;
  std::vector<int32_t> types;
  reader.Strings("tokens", tokens);
  reader.Strings("merges", merges);
  reader.Numbers("scores", "an array of float32", GgufType::kFloat32, GgufType::kFloat32, scores);
  reader.Numbers("token_type", "an array of token types", GgufType::kInt32, GgufType::kUint32, types);
  for (const char* key : kUnsupportedSwitches) reader.RefuseSwitch(key);
  GgufTokenizerMetadata metadata;
  metadata.model = reader.Text("model");
  metadata.pre = reader.Text("pre");
  metadata.tokens = tokens;
  metadata.scores = scores;
  metadata.token_types = types;
  metadata.merges = merges;
  metadata.add_bos = reader.Bool("add_bos_token");
  metadata.add_eos = reader.Bool("add_eos_token");
  metadata.add_space_prefix = reader.Bool("add_space_prefix");
  metadata.bos_id = reader.Id("bos_token_id");
  metadata.eos_id = reader.Id("eos_token_id");
  metadata.eot_id = reader.Id("eot_token_id");
  metadata.eom_id = reader.Id("eom_token_id");
  metadata.unk_id = reader.Id("unknown_token_id");
  metadata.pad_id = reader.Id("padding_token_id");
  LINNET_RETURN_IF_ERROR(reader.status());
  return TokenizerFromGgufMetadata(metadata, tokenizer, generation, diagnostic);
}

}  // namespace linnet::formats
