// A tokenizer with the memory that it points to.
#ifndef LINNET_TESTS_CORE_TOKENIZER_TOKENIZER_FIXTURE_H_
#define LINNET_TESTS_CORE_TOKENIZER_TOKENIZER_FIXTURE_H_

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/utf8.h"
#include "core/tokenizer.h"
#include "formats/huggingface/tokenizer_json.h"
#include "formats/linnet/tokenizer_section.h"

namespace linnet::testing {

/// A file's bytes, or nothing.
inline std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// Takes every tokenizer the way of the program: description -> section of the model file -> view -> Tokenizer.
struct LoadedTokenizer {
  std::vector<std::byte> section;
  std::optional<Tokenizer> tokenizer;

  std::vector<int32_t> Encode(std::string_view text, EncodeOptions options = {}) const {
    std::vector<int32_t> ids;
    Diagnostic diagnostic;
    const Status status = tokenizer->Encode(text, options, &ids, &diagnostic);
    INFO(diagnostic.text());
    REQUIRE(status.ok());
    return ids;
  }
};

inline LoadedTokenizer Load(const TokenizerSpec& spec) {
  Diagnostic diagnostic;
  LoadedTokenizer loaded;
  auto section = formats::WriteTokenizerSection(spec, &diagnostic);
  INFO(diagnostic.text());
  REQUIRE(section.ok());
  loaded.section = std::move(section).value();
  auto view = formats::ReadTokenizerSection(loaded.section, &diagnostic);
  REQUIRE(view.ok());
  auto tokenizer = Tokenizer::Create(std::move(view).value(), &diagnostic);
  INFO(diagnostic.text());
  REQUIRE(tokenizer.ok());
  loaded.tokenizer.emplace(std::move(tokenizer).value());
  return loaded;
}

inline TokenizerSpec ReadSpec(std::string_view tokenizer_json) {
  formats::HuggingFaceFiles files;
  files.tokenizer_json = tokenizer_json;
  TokenizerSpec spec;
  std::string chat_template;
  GenerationDefaults generation;
  Diagnostic diagnostic;
  const Status status = formats::ReadHuggingFaceTokenizer(files, &spec, &chat_template, &generation, &diagnostic);
  INFO(diagnostic.text());
  REQUIRE(status.ok());
  return spec;
}

inline LoadedTokenizer LoadJson(std::string_view tokenizer_json) { return Load(ReadSpec(tokenizer_json)); }

}  // namespace linnet::testing

#endif  // LINNET_TESTS_CORE_TOKENIZER_TOKENIZER_FIXTURE_H_
