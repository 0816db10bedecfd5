// The tokenizer's section of the model file: what is written is read, and damage is refused or harmless.
#include "formats/linnet/tokenizer_section.h"

#include <doctest/doctest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/core/tokenizer/tokenizer_fixture.h"

namespace linnet {
namespace {

TokenizerSpec GoldenSpec(const char* name) {
  const std::string path = std::string(LINNET_TOKENIZER_GOLDENS) + "/" + name + ".json";
  return testing::ReadSpec(nlohmann::json::parse(*testing::ReadFile(path))["tokenizer"].dump());
}

StatusCode WriteCode(const TokenizerSpec& spec) {
  Diagnostic diagnostic;
  const Status status = formats::WriteTokenizerSection(spec, &diagnostic).status();
  if (!status.ok()) CHECK(diagnostic.text()[0] != '\0');
  return status.code();
}

}  // namespace

TEST_SUITE("tokenizer section") {
  TEST_CASE("Write and Read: the view says what the description says") {
    for (const char* name : {"llama3", "llama2", "falcon", "whitespace"}) {
      const std::string shown = name;
      CAPTURE(shown);
      const TokenizerSpec spec = GoldenSpec(name);
      const testing::LoadedTokenizer loaded = testing::Load(spec);
      const TokenizerView& view = loaded.tokenizer->view();
      REQUIRE(view.token_count() == static_cast<int32_t>(spec.tokens.size()));
      for (int32_t id = 0; id < view.token_count(); ++id) {
        const auto i = static_cast<size_t>(id);
        CHECK(view.TokenText(id) == spec.tokens[i]);
        CHECK(view.Type(id) == spec.types[i]);
        if (spec.lookup[i]) CHECK(view.FindToken(spec.tokens[i]) == id);
      }
      for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
        CHECK(view.FindMerge(spec.merges[rank].left, spec.merges[rank].right) == static_cast<int32_t>(rank));
      }
      CHECK(view.FindToken("no such token") == -1);
      CHECK(view.FindMerge(0, 0) == -1);
      CHECK(view.normalizer == spec.normalizer);
      CHECK(view.pre_tokenizer == spec.pre_tokenizer);
      CHECK(view.decoder == spec.decoder);
      CHECK(view.added_tokens.size() == spec.added_tokens.size());
      CHECK(std::vector<int32_t>(view.prefix_ids.begin(), view.prefix_ids.end()) == spec.prefix_ids);
      CHECK(view.unk_id == spec.unk_id);
      CHECK(loaded.tokenizer->memory_bytes() < 100'000);
    }
  }

  TEST_CASE("Write: no tokenizer gives no bytes, and no bytes give no tokenizer") {
    Diagnostic diagnostic;
    CHECK(formats::WriteTokenizerSection({}, &diagnostic)->empty());
    CHECK(formats::ReadTokenizerSection({}, &diagnostic)->kind == TokenizerKind::kNone);
  }

  TEST_CASE("Write: descriptions that contradict themselves are refused") {
    const TokenizerSpec good = GoldenSpec("llama2");
    REQUIRE(WriteCode(good) == StatusCode::kOk);
    const auto count = static_cast<int32_t>(good.tokens.size());
    TokenizerSpec spec = good;
    spec.types.pop_back();
    CHECK(WriteCode(spec) == StatusCode::kInvalidModel);
    spec = good;
    spec.scores.assign(good.tokens.size(), 0.0f);  // of no use to BPE by rank
    CHECK(WriteCode(spec) == StatusCode::kInvalidModel);
    spec = good;
    spec.merges[0].result = count;
    CHECK(WriteCode(spec) == StatusCode::kInvalidModel);
    spec = good;
    spec.merges[0].left = -1;
    CHECK(WriteCode(spec) == StatusCode::kInvalidModel);
    spec = good;
    spec.added_tokens[0].id = count;
    CHECK(WriteCode(spec) == StatusCode::kInvalidModel);
    spec = good;
    spec.added_tokens[0].content = "\xff";
    CHECK(WriteCode(spec) == StatusCode::kInvalidModel);
    spec = good;
    spec.added_tokens.push_back(spec.added_tokens[0]);
    CHECK(WriteCode(spec) == StatusCode::kInvalidModel);
    spec = good;
    spec.prefix_ids = {count};
    CHECK(WriteCode(spec) == StatusCode::kInvalidModel);
    spec = good;
    spec.eos_id = -2;
    CHECK(WriteCode(spec) == StatusCode::kInvalidModel);
    spec = good;
    spec.tokens[0].assign(TokenizerSpec::kMaxTokenBytes + 1, 'a');
    CHECK(WriteCode(spec) == StatusCode::kInvalidModel);
    spec = good;
    spec.normalizer.resize(TokenizerSpec::kMaxSteps + 1);
    CHECK(WriteCode(spec) == StatusCode::kInvalidModel);
    spec = good;
    spec.decoder[0].pattern.clear();
    CHECK(WriteCode(spec) == StatusCode::kInvalidModel);
    spec = good;
    spec.kind = static_cast<TokenizerKind>(9);
    CHECK(WriteCode(spec) == StatusCode::kInvalidModel);
  }

  TEST_CASE("Read: truncated sections are refused") {
    Diagnostic diagnostic;
    const auto section = formats::WriteTokenizerSection(GoldenSpec("llama3"), &diagnostic);
    REQUIRE(section.ok());
    for (size_t size = 1; size < section->size(); size += 1 + size / 50) {
      const std::vector<std::byte> part(section->begin(), section->begin() + static_cast<ptrdiff_t>(size));
      CAPTURE(size);
      CHECK(formats::ReadTokenizerSection(part, &diagnostic).status().code() == StatusCode::kInvalidModel);
    }
  }

  TEST_CASE("Read: damaged sections are refused, or serve without reading outside their bytes") {
    // Under the sanitizers this is where a missing check shows.
    Diagnostic diagnostic;
    std::mt19937 random(3);
    for (const char* name : {"llama3", "llama2", "metaspace_split"}) {
      const auto section = formats::WriteTokenizerSection(GoldenSpec(name), &diagnostic);
      REQUIRE(section.ok());
      for (int round = 0; round < 1500; ++round) {
        std::vector<std::byte> bytes = *section;
        for (size_t flips = 1 + random() % 4; flips > 0; --flips) {
          const size_t at = random() % 2 == 0 ? random() % 256 : random();  // the tables' fields are at the start
          bytes[at % bytes.size()] = static_cast<std::byte>(random());
        }
        auto view = formats::ReadTokenizerSection(bytes, &diagnostic);
        if (!view.ok()) continue;
        auto tokenizer = Tokenizer::Create(std::move(view).value(), &diagnostic);
        if (!tokenizer.ok()) continue;
        std::vector<int32_t> ids;
        const Status status = tokenizer->Encode("Hello wor\xc3\xa9ld <s> 123 \xe6\x88\x91",
                                                {.add_special = true, .parse_special = true}, &ids);
        if (!status.ok()) continue;
        for (int32_t id : ids) CHECK(tokenizer->view().HasToken(id));
        CHECK(IsValidUtf8(tokenizer->Decode(ids, false)));
      }
    }
  }
}

}  // namespace linnet
