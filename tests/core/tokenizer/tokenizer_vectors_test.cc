// Vectors of published tokenizers. Data that is not part of the project: cases say what they skip where it is absent.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/file_mapping.h"
#include "formats/gguf/gguf_file.h"
#include "formats/gguf/read_tokenizer.h"
#include "tests/core/tokenizer/tokenizer_fixture.h"

namespace linnet {
namespace {

using testing::LoadedTokenizer;
using testing::ReadFile;

const std::string kFolder = std::string(LINNET_SHARED_DIR) + "/real/tokenizers/";

constexpr size_t kPieceCount = 47;

/// Pieces are divided by a line of their own.
std::vector<std::string> ReadPieces(const std::string& path) {
  const std::string divider = "\n__ggml_vocab_test__\n";
  const std::string text = ReadFile(path).value_or("");
  std::vector<std::string> pieces;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + divider.size()) {
    end = text.find(divider, begin);
    pieces.push_back(text.substr(begin, end - begin));
  }
  return pieces;
}

std::vector<std::vector<int32_t>> ReadIds(const std::string& path) {
  std::istringstream lines(ReadFile(path).value_or(""));
  std::vector<std::vector<int32_t>> all;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    std::vector<int32_t>& ids = all.emplace_back();
    for (int32_t id = 0; numbers >> id;) ids.push_back(id);
  }
  return all;
}

void CheckVectors(const LoadedTokenizer& loaded, const std::string& inputs, const std::string& outputs) {
  const auto pieces = ReadPieces(kFolder + inputs);
  auto expected = ReadIds(kFolder + outputs);
  if (expected.size() + 1 == pieces.size())
    expected.emplace_back();  // some files leave out the line of the last, empty piece
  REQUIRE(pieces.size() == kPieceCount);
  REQUIRE(pieces.back().empty());
  REQUIRE(expected.size() == pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    CAPTURE(i);
    CAPTURE(pieces[i]);
    CHECK(loaded.Encode(pieces[i]) == expected[i]);
    CHECK(loaded.tokenizer->Decode(loaded.Encode(pieces[i]), false) == pieces[i]);
  }
}

bool Available(const std::string& path) {
  if (std::filesystem::exists(path)) return true;
  MESSAGE("skipped: " << path << " is not there");
  return false;
}

LoadedTokenizer LoadGguf(const std::string& path) {
  Diagnostic diagnostic;
  auto mapping = FileMapping::Open(path, &diagnostic);
  INFO(diagnostic.text());
  REQUIRE(mapping.ok());
  auto file = formats::GgufFile::Parse(mapping->bytes(), path, &diagnostic);
  INFO(diagnostic.text());
  REQUIRE(file.ok());
  TokenizerSpec spec;
  GenerationDefaults generation;
  const Status status = formats::ReadGgufTokenizer(*file, &spec, &generation, &diagnostic);
  INFO(diagnostic.text());
  REQUIRE(status.ok());
  return testing::Load(spec);
}

/// Linnet's cache folder, where the scripts put what they fetch.
std::string CacheFolder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (!variable("LINNET_CACHE").empty()) return variable("LINNET_CACHE") + "/";
  if (!variable("XDG_CACHE_HOME").empty()) return variable("XDG_CACHE_HOME") + "/linnet/";
  return variable("HOME") + "/.cache/linnet/";
}

void CheckFetched(const char* name, const char* inputs, const char* outputs) {
  const std::string path = CacheFolder() + "tokenizers/" + name + "/tokenizer.json";
  if (!std::filesystem::exists(path)) {
    MESSAGE("skipped: " << path << " is not there; tests/golden/fetch_tokenizers.sh fetches it");
    return;
  }
  if (!Available(kFolder + inputs)) return;
  CheckVectors(testing::LoadJson(*ReadFile(path)), inputs, outputs);
}

}  // namespace

TEST_SUITE("tokenizer vectors") {
  TEST_CASE("gpt-2 from GGUF equals its vectors") {
    if (!Available(kFolder + "ggml-vocab-gpt-2.gguf")) return;
    CheckVectors(LoadGguf(kFolder + "ggml-vocab-gpt-2.gguf"), "ggml-vocab-gpt-2.gguf.inp", "ggml-vocab-gpt-2.gguf.out");
  }

  TEST_CASE("llama-spm from GGUF equals its vectors") {
    if (!Available(kFolder + "ggml-vocab-llama-spm.gguf")) return;
    CheckVectors(LoadGguf(kFolder + "ggml-vocab-llama-spm.gguf"), "ggml-vocab-llama-spm.gguf.inp",
                 "ggml-vocab-llama-spm.gguf.out");
  }

  TEST_CASE("llama-bpe from tokenizer.json equals its vectors") {
    CheckFetched("llama3_1", "ggml-vocab-llama-bpe.gguf.inp", "ggml-vocab-llama-bpe.gguf.out");
  }

  TEST_CASE("qwen2 from tokenizer.json equals its vectors") {
    CheckFetched("qwen3", "ggml-vocab-qwen2.gguf.inp", "ggml-vocab-qwen2.gguf.out");
  }

  TEST_CASE("Gemma 3 and SmolLM2 from GGUF equal their vectors") {
    for (const auto& [file, outputs] : {std::pair("gemma-3-270m.Q4_K_M.gguf", "gemma3.out"),
                                        std::pair("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2.out")}) {
      const std::string path = CacheFolder() + "models/" + file;
      CAPTURE(path);
      if (Available(path) && Available(kFolder + outputs)) {
        CheckVectors(LoadGguf(path), "ggml-vocab-gpt-2.gguf.inp", outputs);
      }
    }
  }

  TEST_CASE("SmolLM2 from tokenizer.json equals its vectors") {
    const std::string path = std::string(LINNET_SHARED_DIR) + "/real/smollm2-hf/tokenizer.json";
    if (!Available(path)) return;
    CheckVectors(testing::LoadJson(*ReadFile(path)), "ggml-vocab-gpt-2.gguf.inp", "smollm2.out");
  }
}

}  // namespace linnet
