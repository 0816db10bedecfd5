#include "formats/gguf/pre_tokenizers.h"

#include <algorithm>
#include <array>

namespace linnet::formats {
namespace {

using Text = std::string_view;

#define LINNET_GPT2_WORDS R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))"
#define LINNET_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LINNET_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define LINNET_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LINNET_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define LINNET_CASED_WORDS(tail)                                                                       \
  R"([^\r\n\p{L}\p{N}]?)" LINNET_UPPER "*" LINNET_LOWER "+" tail R"(|[^\r\n\p{L}\p{N}]?)" LINNET_UPPER \
  "+" LINNET_LOWER "*" tail

constexpr Text kGpt2 = LINNET_GPT2_WORDS R"(|\s+)";
constexpr Text kLlama3 =
    LINNET_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" LINNET_SPACES;
constexpr Text kQwen2 =
    LINNET_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" LINNET_SPACES;
constexpr Text kTekken = LINNET_CASED_WORDS("") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" LINNET_SPACES;
constexpr Text kGpt4o =
    LINNET_CASED_WORDS(LINNET_CONTRACTIONS "?") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" LINNET_SPACES;
constexpr Text kDeepSeek3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" LINNET_SPACES;

constexpr Text kPatternsGpt2[] = {kGpt2};
constexpr Text kPatternsDigits[] = {R"(\p{N})", kGpt2};
constexpr Text kPatternsLlama3[] = {kLlama3};
constexpr Text kPatternsQwen2[] = {kQwen2};
constexpr Text kPatternsTekken[] = {kTekken};
constexpr Text kPatternsGpt4o[] = {kGpt4o};
constexpr Text kPatternsDefault[] = {R"([\p{P}\$\+<=>\^~\|]+)", LINNET_GPT2_WORDS, R"(\p{N}+)", "[0-9][0-9][0-9]"};
constexpr Text kPatternsFalcon[] = {R"([\p{P}\$\+<=>\^~\|`]+)", LINNET_GPT2_WORDS, "[0-9][0-9][0-9]"};
// DeepSeek's list of cased letters is, range by range, the categories Lu, Ll and Lt.
constexpr Text kPatternsDeepSeek[] = {
    R"([\r\n])",
    R"(\s?[\p{Lu}\p{Ll}\p{Lt}]+)",
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    R"([\x{4e00}-\x{9fa5}\x{0800}-\x{4e00}\x{ac00}-\x{d7ff}]+)",
    R"(\p{N}+)"};
constexpr Text kPatternsDeepSeekCoder[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                           R"([\x{4e00}-\x{9fa5}\x{0800}-\x{4e00}\x{ac00}-\x{d7ff}]+)", R"(\p{N})"};
constexpr Text kPatternsDeepSeek3[] = {R"(\p{N}{1,3})", R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)",
                                       kDeepSeek3Words};
constexpr Text kPatternsBloom[] = {R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{0964}\x{06d4}\x{060c})]+)"};

constexpr Text kNamesGpt2[] = {"gpt-2", "phi-2", "jais", "trillion", "mellum", "gigachat"};
constexpr Text kNamesNeoX[] = {"olmo", "mpt"};
constexpr Text kNamesDigits[] = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"};
constexpr Text kNamesLlama3[] = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"};
constexpr Text kNamesCl100k[] = {"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"};
constexpr Text kNamesQwen2[] = {"qwen2", "deepseek-r1-qwen"};
constexpr Text kNamesStableLm2[] = {"stablelm2"};
constexpr Text kNamesTekken[] = {"tekken"};
constexpr Text kNamesGpt4o[] = {"gpt-4o", "llama4"};
constexpr Text kNamesDefault[] = {"default", ""};
constexpr Text kNamesFalcon[] = {"falcon"};
constexpr Text kNamesDeepSeek[] = {"deepseek-llm"};
constexpr Text kNamesDeepSeekCoder[] = {"deepseek-coder"};
constexpr Text kNamesDeepSeek3[] = {"deepseek-v3"};
constexpr Text kNamesBloom[] = {"bloom", "poro-chat", "gpt3-finnish"};

constexpr GgufPreTokenizer kPreTokenizers[] = {
    {kNamesGpt2, kPatternsGpt2},
    {kNamesNeoX, kPatternsGpt2, /*nfc=*/true},
    {kNamesDigits, kPatternsDigits},
    {kNamesLlama3, kPatternsLlama3, false, /*ignore_merges=*/true, /*add_bos=*/true},
    {kNamesCl100k, kPatternsLlama3},
    {kNamesQwen2, kPatternsQwen2, /*nfc=*/true},
    {kNamesStableLm2, kPatternsQwen2},
    {kNamesTekken, kPatternsTekken, false, /*ignore_merges=*/true, /*add_bos=*/true},
    {kNamesGpt4o, kPatternsGpt4o},
    {kNamesDefault, kPatternsDefault},
    {kNamesFalcon, kPatternsFalcon},
    {kNamesDeepSeek, kPatternsDeepSeek},
    {kNamesDeepSeekCoder, kPatternsDeepSeekCoder},
    {kNamesDeepSeek3, kPatternsDeepSeek3},
    {kNamesBloom, kPatternsBloom},
};

#undef LINNET_GPT2_WORDS
#undef LINNET_CONTRACTIONS
#undef LINNET_SPACES
#undef LINNET_UPPER
#undef LINNET_LOWER
#undef LINNET_CASED_WORDS

}  // namespace

const GgufPreTokenizer* FindGgufPreTokenizer(std::string_view name) {
  for (const GgufPreTokenizer& entry : kPreTokenizers) {
    if (std::find(entry.names.begin(), entry.names.end(), name) != entry.names.end()) return &entry;
  }
  return nullptr;
}

}  // namespace linnet::formats
