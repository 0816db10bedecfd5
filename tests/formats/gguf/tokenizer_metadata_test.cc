// GGUF's tokenizer metadata: what is read, and what is refused.
#include "formats/gguf/tokenizer_metadata.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

namespace linnet::formats {
namespace {

/// A byte-level vocabulary in small, in the byte-level alphabet (U+0120 is the space).
struct ByteLevel {
  std::vector<std::string_view> tokens = {"a", "\xc4\xa0",
                                          "\xc4\xa0"
                                          "a",
                                          "<|im_end|>", "<user>"};
  std::vector<int32_t> types = {1, 1, 1, 3, 4};
  std::vector<std::string_view> merges = {"\xc4\xa0 a"};

  GgufTokenizerMetadata Metadata() const {
    GgufTokenizerMetadata metadata;
    metadata.model = "gpt2";
    metadata.pre = "qwen2";
    metadata.tokens = tokens;
    metadata.token_types = types;
    metadata.merges = merges;
    return metadata;
  }
};

struct Scored {
  std::vector<std::string_view> tokens = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "<0x0A>",
                                          "\xe2\x96\x81"
                                          "a",
                                          "a"};
  std::vector<float> scores = {0, 0, 0, 0, -1, -2};
  std::vector<int32_t> types = {2, 3, 3, 6, 1, 1};

  GgufTokenizerMetadata Metadata() const {
    GgufTokenizerMetadata metadata;
    metadata.model = "llama";
    metadata.tokens = tokens;
    metadata.scores = scores;
    metadata.token_types = types;
    return metadata;
  }
};

struct Outcome {
  Status status;
  TokenizerSpec spec;
  GenerationDefaults generation;
  std::string diagnostic;
};

Outcome Read(const GgufTokenizerMetadata& metadata) {
  Outcome outcome;
  Diagnostic diagnostic;
  outcome.status = TokenizerFromGgufMetadata(metadata, &outcome.spec, &outcome.generation, &diagnostic);
  outcome.diagnostic = diagnostic.text();
  return outcome;
}

void CheckRefused(const GgufTokenizerMetadata& metadata, StatusCode code, const std::string& named) {
  const Outcome outcome = Read(metadata);
  CAPTURE(outcome.diagnostic);
  CHECK(outcome.status.code() == code);
  CHECK(outcome.diagnostic.find(named) != std::string::npos);
}

}  // namespace

TEST_SUITE("gguf tokenizer") {
  TEST_CASE("gpt2: texts become bytes, merges ids, control tokens special, the turn's end an end id") {
    const ByteLevel source;
    const Outcome outcome = Read(source.Metadata());
    REQUIRE(outcome.status.ok());
    CHECK(outcome.spec.byte_level);
    CHECK(outcome.spec.tokens == std::vector<std::string>{"a", " ", " a", "<|im_end|>", "<user>"});
    CHECK(outcome.spec.merges == std::vector<TokenMerge>{{1, 0, 2}});
    CHECK(outcome.spec.lookup == std::vector<bool>{true, true, true, false, false});
    REQUIRE(outcome.spec.added_tokens.size() == 2);
    CHECK(outcome.spec.added_tokens[0].special);
    CHECK(!outcome.spec.added_tokens[1].special);
    CHECK(outcome.spec.prefix_ids.empty());
    CHECK(outcome.generation.end_ids == std::vector<int32_t>{3});
  }

  TEST_CASE("llama: defaults of absent keys, byte fallback, bos in front") {
    const Scored source;
    const Outcome outcome = Read(source.Metadata());
    REQUIRE(outcome.status.ok());
    CHECK(outcome.spec.kind == TokenizerKind::kSentencePieceBpe);
    CHECK(outcome.spec.byte_fallback);
    CHECK(outcome.spec.unk_id == 0);
    CHECK(outcome.spec.prefix_ids == std::vector<int32_t>{1});
    CHECK(outcome.spec.lookup == std::vector<bool>{false, false, false, false, true, true});
    CHECK(outcome.spec.normalizer.size() == 2);
    CHECK(outcome.generation.end_ids == std::vector<int32_t>{2});
    CHECK(outcome.generation.add_bos);
    GgufTokenizerMetadata metadata = source.Metadata();
    metadata.add_space_prefix = false;
    metadata.add_bos = false;
    metadata.eot_id = 4;
    const Outcome changed = Read(metadata);
    CHECK(changed.spec.normalizer.size() == 1);
    CHECK(changed.spec.prefix_ids.empty());
    CHECK(changed.generation.end_ids == std::vector<int32_t>{2, 4});
  }

  TEST_CASE("no tokenizer is kind kNone") {
    CHECK(Read({}).spec.kind == TokenizerKind::kNone);
    GgufTokenizerMetadata metadata;
    metadata.model = "no_vocab";
    CHECK(Read(metadata).status.ok());
  }

  TEST_CASE("unknown names are refused by name") {
    const ByteLevel source;
    GgufTokenizerMetadata metadata = source.Metadata();
    metadata.pre = "no-such-pre";
    CheckRefused(metadata, StatusCode::kUnsupported, "no-such-pre");
    metadata = source.Metadata();
    metadata.model = "rwkv";
    CheckRefused(metadata, StatusCode::kUnsupported, "rwkv");
  }

  TEST_CASE("arrays and ids that contradict each other are refused by key") {
    const ByteLevel source;
    GgufTokenizerMetadata metadata = source.Metadata();
    metadata.token_types = metadata.token_types.first(2);
    CheckRefused(metadata, StatusCode::kInvalidModel, "token_type");
    metadata = source.Metadata();
    metadata.tokens = {};
    CheckRefused(metadata, StatusCode::kInvalidModel, "tokens");
    metadata = source.Metadata();
    metadata.bos_id = 5;
    CheckRefused(metadata, StatusCode::kInvalidModel, "bos_token_id");
    metadata = source.Metadata();
    metadata.eos_id = -7;
    CheckRefused(metadata, StatusCode::kInvalidModel, "eos_token_id");
    const std::vector<int32_t> types = {1, 1, 1, 9, 4};
    metadata = source.Metadata();
    metadata.token_types = types;
    CheckRefused(metadata, StatusCode::kInvalidModel, "token_type");
    for (const char* merge : {"a", "a z", "a \xc4\xa0", "", " "}) {
      const std::vector<std::string_view> merges = {merge};
      metadata = source.Metadata();
      metadata.merges = merges;
      CheckRefused(metadata, StatusCode::kInvalidModel, "merges");
    }
    Scored scored;
    metadata = scored.Metadata();
    metadata.scores = {};
    CheckRefused(metadata, StatusCode::kInvalidModel, "scores");
    scored.scores[5] = std::numeric_limits<float>::quiet_NaN();
    CheckRefused(scored.Metadata(), StatusCode::kInvalidModel, "scores");
    const std::string long_token(5000, 'a');
    scored = {};
    scored.tokens[5] = long_token;
    CheckRefused(scored.Metadata(), StatusCode::kInvalidModel, "tokens");
  }
}

}  // namespace linnet::formats
