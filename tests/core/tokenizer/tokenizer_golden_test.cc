// Tiny tokenizers of many shapes against Hugging Face's library: tests/golden/make_tokenizer_goldens.py made the files.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/core/tokenizer/tokenizer_fixture.h"

namespace linnet {
namespace {

using nlohmann::json;

std::vector<std::filesystem::path> GoldenFiles() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(LINNET_TOKENIZER_GOLDENS)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// Streamed in any cuts, the text is the same.
void CheckStream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const std::string& expected) {
  std::string text;
  StreamDecoder decoder(tokenizer, {.skip_special = false});
  for (int32_t id : ids) {
    std::string part;
    decoder.Push(id, &part);
    CHECK(IsValidUtf8(part));
    text += part;
  }
  decoder.Flush(&text);
  CHECK(text == expected);
}

void CheckFile(const std::filesystem::path& path) {
  const json golden = json::parse(*testing::ReadFile(path));
  const testing::LoadedTokenizer loaded = testing::LoadJson(golden["tokenizer"].dump());
  for (const json& example : golden["cases"]) {
    const std::string text = example["text"];
    CAPTURE(text);
    const std::vector<int32_t> ids = example["ids"];
    CHECK(loaded.Encode(text, {.parse_special = true}) == ids);
    CHECK(loaded.Encode(text, {.add_special = true, .parse_special = true}) ==
          example["special_ids"].get<std::vector<int32_t>>());
    CHECK(loaded.tokenizer->Decode(ids, false) == example["decoded"].get<std::string>());
    CHECK(loaded.tokenizer->Decode(ids, true) == example["decoded_skip"].get<std::string>());
    CheckStream(*loaded.tokenizer, ids, example["decoded"]);
  }
}

}  // namespace

TEST_SUITE("tokenizer goldens") {
  TEST_CASE("every shape encodes and decodes as Hugging Face's library does") {
    const auto files = GoldenFiles();
    REQUIRE(files.size() >= 25);
    for (const auto& path : files) {
      const std::string name = path.stem();
      CAPTURE(name);
      CheckFile(path);
    }
  }
}

}  // namespace linnet
