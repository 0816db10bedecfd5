// tokenizer.json and its neighbours: what is read, and what is refused by name.
#include "formats/huggingface/tokenizer_json.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace linnet::formats {
namespace {

struct Outcome {
  Status status;
  TokenizerSpec spec;
  std::string chat_template;
  GenerationDefaults generation;
  std::string diagnostic;
};

Outcome Read(const HuggingFaceFiles& files) {
  Outcome outcome;
  Diagnostic diagnostic;
  outcome.status =
      ReadHuggingFaceTokenizer(files, &outcome.spec, &outcome.chat_template, &outcome.generation, &diagnostic);
  outcome.diagnostic = diagnostic.text();
  return outcome;
}

const std::string kModel =
    R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<s>": 3, "</s>": 4}, "merges": ["a b"]})";
const std::string kFuse = R"("decoder": {"type": "Fuse"})";
const std::string kAdded =
    R"("added_tokens": [{"id": 3, "content": "<s>", "special": true}, {"id": 4, "content": "</s>", "special": true}, {"id": 6, "content": "<u>"}])";

Outcome ReadJson(const std::string& tokenizer_json) {
  HuggingFaceFiles files;
  files.tokenizer_json = tokenizer_json;
  return Read(files);
}

void CheckRefused(const std::string& tokenizer_json, StatusCode code, const std::string& named) {
  CAPTURE(tokenizer_json);
  const Outcome outcome = ReadJson(tokenizer_json);
  CHECK(outcome.status.code() == code);
  CAPTURE(outcome.diagnostic);
  CHECK(outcome.diagnostic.find(named) != std::string::npos);
}

}  // namespace

TEST_SUITE("huggingface tokenizer") {
  TEST_CASE("tokenizer.json: vocabulary, merges, added tokens and holes") {
    const Outcome outcome = ReadJson("{" + kModel + "," + kFuse + "," + kAdded + "}");
    CAPTURE(outcome.diagnostic);
    REQUIRE(outcome.status.ok());
    CHECK(outcome.spec.kind == TokenizerKind::kBpe);
    CHECK(outcome.spec.tokens == std::vector<std::string>{"a", "b", "ab", "<s>", "</s>", "", "<u>"});
    CHECK(outcome.spec.merges == std::vector<TokenMerge>{{0, 1, 2}});
    CHECK(outcome.spec.types[3] == TokenType::kControl);
    CHECK(outcome.spec.types[5] == TokenType::kUnused);
    CHECK(outcome.spec.types[6] == TokenType::kUserDefined);
    CHECK(!outcome.spec.lookup[6]);
    CHECK(outcome.spec.added_tokens.size() == 3);
  }

  TEST_CASE("tokenizer.json: both spellings of merges") {
    const std::string vocab = R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": )";
    CHECK(ReadJson(vocab + R"([["a", "b"]]}, )" + kFuse + "}").spec.merges == std::vector<TokenMerge>{{0, 1, 2}});
    CHECK(ReadJson(vocab + R"(["a b"]}, )" + kFuse + "}").spec.merges == std::vector<TokenMerge>{{0, 1, 2}});
    for (const char* merges : {R"(["ab"])", R"(["a b b"])", R"([["a"]])", R"([["a", "b", "b"]])", R"([["a", 1]])",
                               R"(["b a"])", R"(["a z"])"}) {
      CheckRefused(vocab + merges + "}, " + kFuse + "}", StatusCode::kInvalidModel, "tokenizer.json");
    }
  }

  TEST_CASE("tokenizer.json: unknown components are refused by their name") {
    const auto with = [](const std::string& component) { return "{" + kModel + "," + component + "}"; };
    CheckRefused(with(kFuse + R"(, "normalizer": {"type": "Precompiled"})"), StatusCode::kUnsupported, "Precompiled");
    CheckRefused(with(kFuse + R"(, "pre_tokenizer": {"type": "UnicodeScripts"})"), StatusCode::kUnsupported,
                 "UnicodeScripts");
    CheckRefused(with(kFuse + R"(, "post_processor": {"type": "Foo"})"), StatusCode::kUnsupported, "Foo");
    CheckRefused(with(R"("decoder": {"type": "CTC"})"), StatusCode::kUnsupported, "CTC");
    CheckRefused(with(R"("decoder": null)"), StatusCode::kUnsupported, "decoder");
    CheckRefused(with(R"("decoder": {"type": "ByteLevel"})"), StatusCode::kUnsupported, "ByteLevel");
    CheckRefused(with(kFuse + R"(, "pre_tokenizer": {"type": "ByteLevel"})"), StatusCode::kUnsupported, "ByteLevel");
    CheckRefused(with(kFuse + R"(, "pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "Odd"})"),
                 StatusCode::kUnsupported, "Odd");
    for (const char* type : {"Unigram", "WordPiece", "WordLevel"}) {
      CheckRefused("{\"model\": {\"type\": \"" + std::string(type) + "\", \"vocab\": {\"a\": 0}}, " + kFuse + "}",
                   StatusCode::kUnsupported, type);
    }
    CheckRefused(R"({"model": {"type": "Unigram", "vocab": [["a", 0.5]]}})", StatusCode::kUnsupported, "Unigram");
    CheckRefused(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>"}})",
                 StatusCode::kUnsupported, "</w>");
  }

  TEST_CASE("tokenizer.json: malformed files are refused with what is wrong") {
    for (const char* text : {"", "[]", "null", "{", "{}", "{\"model\": 3}", "{\"model\": {}}", "\xff"}) {
      CheckRefused(text, StatusCode::kInvalidModel, "tokenizer.json");
    }
    CheckRefused(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}}, "decoder": {"type": "Fuse"}})",
                 StatusCode::kInvalidModel, "id 0");
    CheckRefused(R"({"model": {"type": "BPE", "vocab": {"a": -1}}, "decoder": {"type": "Fuse"}})",
                 StatusCode::kInvalidModel, "-1");
    CheckRefused(R"({"model": {"type": "BPE", "vocab": {"a": 4000000}}, "decoder": {"type": "Fuse"}})",
                 StatusCode::kInvalidModel, "4000000");
    CheckRefused(R"({"model": {"type": "BPE", "vocab": {"a": "x"}}, "decoder": {"type": "Fuse"}})",
                 StatusCode::kInvalidModel, "vocab");
    CheckRefused("{" + kModel + "," + kFuse + R"(, "added_tokens": [{"content": "x"}]})", StatusCode::kInvalidModel,
                 "added_tokens");
    CheckRefused("{" + kModel + "," + kFuse + R"(, "added_tokens": [{"id": 5, "content": 5}]})",
                 StatusCode::kInvalidModel, "content");
    CheckRefused("{" + kModel + "," + kFuse + R"(, "pre_tokenizer": {"type": "Split", "behavior": "Isolated"}})",
                 StatusCode::kInvalidModel, "pattern");
    CheckRefused("{" + kModel + "," + kFuse + R"(, "normalizer": {"type": "Sequence", "normalizers": 3}})",
                 StatusCode::kInvalidModel, "normalizers");
    CheckRefused(
        "{" + kModel + "," + kFuse +
            R"(, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]}})",
        StatusCode::kInvalidModel, "\"x\"");
    CheckRefused("{" + kModel + "," + kFuse +
                     R"(, "post_processor": {"type": "RobertaProcessing", "cls": ["a", 99], "sep": ["b", 1]}})",
                 StatusCode::kInvalidModel, "99");
    std::string deep;
    for (int i = 0; i < 100000; ++i) deep += "[";
    CheckRefused("{\"model\": " + deep, StatusCode::kInvalidModel, "tokenizer.json");
  }

  TEST_CASE("tokenizer_config.json: special tokens, their positions, and the chat template") {
    const std::string tokenizer = "{" + kModel + "," + kFuse + "," + kAdded + "}";
    HuggingFaceFiles files;
    files.tokenizer_json = tokenizer;
    files.tokenizer_config_json =
        R"({"tokenizer_class": "LlamaTokenizer", "bos_token": {"content": "<s>"}, "eos_token": "</s>",
        "add_bos_token": true, "chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}],
        "added_tokens_decoder": {"8": {"content": "<e>", "special": true}, "7": {"content": "<d>"}, "3": {"content": "<other>"}}})";
    files.special_tokens_map_json = R"({"pad_token": "<u>", "bos_token": "b"})";
    Outcome outcome = Read(files);
    CAPTURE(outcome.diagnostic);
    REQUIRE(outcome.status.ok());
    CHECK(outcome.spec.bos_id == 3);
    CHECK(outcome.spec.eos_id == 4);
    CHECK(outcome.spec.pad_id == 6);
    CHECK(outcome.spec.prefix_ids == std::vector<int32_t>{3});
    CHECK(outcome.spec.tokens.size() == 9);
    CHECK(outcome.spec.tokens[8] == "<e>");
    CHECK(outcome.chat_template == "D");
    CHECK(outcome.generation.bos_id == 3);
    CHECK(outcome.generation.add_bos);
    CHECK(outcome.generation.end_ids == std::vector<int32_t>{4});
    files.chat_template_jinja = "J";
    CHECK(Read(files).chat_template == "J");
    files.tokenizer_config_json =
        R"({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "add_bos_token": true, "chat_template": "C"})";
    outcome = Read(files);
    CHECK(outcome.spec.prefix_ids.empty());  // that class goes by the post-processor alone
    CHECK(!outcome.generation.add_bos);
    files.tokenizer_config_json = R"({"chat_template": 3})";
    files.chat_template_jinja.reset();
    CHECK(Read(files).status.code() == StatusCode::kInvalidModel);
  }

  TEST_CASE("generation_config.json: end ids are joined, numbers are read") {
    const std::string tokenizer = "{" + kModel + "," + kFuse + "," + kAdded + "}";
    HuggingFaceFiles files;
    files.tokenizer_json = tokenizer;
    files.tokenizer_config_json = R"({"eos_token": "</s>"})";
    files.generation_config_json =
        R"({"eos_token_id": [1, 2, 1], "temperature": 0.5, "top_k": 20, "top_p": 0.25, "repetition_penalty": 1.5})";
    files.config_json = R"({"eos_token_id": 0, "bos_token_id": 3})";
    Outcome outcome = Read(files);
    REQUIRE(outcome.status.ok());
    CHECK(outcome.generation.end_ids == std::vector<int32_t>{1, 2, 4});
    CHECK(outcome.generation.bos_id == 3);
    CHECK(outcome.generation.temperature == 0.5f);
    CHECK(outcome.generation.top_k == 20);
    CHECK(outcome.generation.top_p == 0.25f);
    CHECK(outcome.generation.repetition_penalty == 1.5f);
    files.generation_config_json = R"({"do_sample": false, "temperature": 0.5})";
    outcome = Read(files);
    CHECK(outcome.generation.end_ids == std::vector<int32_t>{0, 4});
    CHECK(outcome.generation.temperature == 0.0f);
    files.generation_config_json = R"({"eos_token_id": "x"})";
    CHECK(Read(files).status.code() == StatusCode::kInvalidModel);
    files.generation_config_json = R"({"temperature": "hot"})";
    CHECK(Read(files).status.code() == StatusCode::kInvalidModel);
  }

  TEST_CASE("generation: ids outside the vocabulary are dropped, numbers that no sampler takes count as not given") {
    HuggingFaceFiles files;
    files.vocab_size = 10;
    files.generation_config_json =
        R"({"bos_token_id": 10, "eos_token_id": [9, 10, -7, 5000000000], "temperature": -0.5, "top_p": 1.5, "top_k": -3,
            "repetition_penalty": 0})";
    files.config_json = R"({"bos_token_id": 2, "eos_token_id": 3})";
    Outcome outcome = Read(files);
    REQUIRE(outcome.status.ok());
    CHECK(outcome.generation.bos_id == 2);
    CHECK(outcome.generation.end_ids == std::vector<int32_t>{9});
    CHECK(outcome.generation.temperature == -1.0f);
    CHECK(outcome.generation.top_p == -1.0f);
    CHECK(outcome.generation.top_k == -1);
    CHECK(outcome.generation.repetition_penalty == -1.0f);
    files.generation_config_json = R"({"temperature": 1e5, "top_p": -0.1, "repetition_penalty": 1e300})";
    outcome = Read(files);
    REQUIRE(outcome.status.ok());
    CHECK(outcome.generation.temperature == -1.0f);
    CHECK(outcome.generation.top_p == -1.0f);
    CHECK(outcome.generation.repetition_penalty == -1.0f);
    files.generation_config_json = R"({"temperature": 1e4, "top_p": 1, "repetition_penalty": 0.5})";
    outcome = Read(files);
    CHECK(outcome.generation.temperature == 1e4f);
    CHECK(outcome.generation.top_p == 1.0f);
    CHECK(outcome.generation.repetition_penalty == 0.5f);
    for (const char* broken : {"{", "", "[]", R"({"top_k": "many"})"}) {
      CAPTURE(broken);
      files.generation_config_json = broken;
      outcome = Read(files);
      CHECK(outcome.status.code() == StatusCode::kInvalidModel);
      CHECK(outcome.diagnostic.find("generation_config.json") != std::string::npos);
      CHECK(std::string(outcome.status.message()).find("tokenizer") == std::string::npos);
    }
  }

  TEST_CASE("a directory without tokenizer.json has no tokenizer, and SentencePiece alone is refused") {
    HuggingFaceFiles files;
    files.config_json = R"({"eos_token_id": 2})";
    const Outcome outcome = Read(files);
    REQUIRE(outcome.status.ok());
    CHECK(outcome.spec.kind == TokenizerKind::kNone);
    CHECK(outcome.generation.end_ids == std::vector<int32_t>{2});
    files.tokenizer_model = "x";
    CHECK(Read(files).status.code() == StatusCode::kUnsupported);
  }
}

}  // namespace linnet::formats
