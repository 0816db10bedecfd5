// The seeds of the fuzzers, made by the project's own code. A format that changes makes this test fail until they are
// written anew: seeds of an old format would be refused at their first bytes and test nothing.
#include <doctest/doctest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/base/tokenizer_spec.h"
#include "formats/linnet/file_layout.h"
#include "formats/linnet/tokenizer_section.h"
#include "tests/formats/linnet/sample_file.h"
#include "tests/formats/safetensors/safetensors_writer.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/guarded.h"

namespace linnet {
namespace {

using Seeds = std::map<std::string, std::string>;  // "fuzzer/name" -> bytes
using test::GgufWriter;

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AddSafetensors(Seeds& seeds) {
  testing::SafetensorsWriter writer;
  writer.Add("model.norm.weight", {2}, {1.0f, 2.0f});
  writer.AddBytes("w", "BF16", {2, 3}, std::string(12, '\x3f'));
  writer.AddBytes("empty", "I64", {0, 4}, "");
  seeds["safetensors/three_tensors"] = writer.Bytes();
  seeds["safetensors/metadata"] = testing::SafetensorsBytes(
      R"({"__metadata__":{"format":"pt"},"s":{"dtype":"F16","shape":[],"data_offsets":[0,2]}})", "\x01\x3c");
  seeds["safetensors_index/two_shards"] = R"({"metadata":{"total_size":16},"weight_map":{"x":"a","y":"b"}})";
  seeds["safetensors_index/missing"] = R"({"weight_map":{"x":"a","z":"../b"}})";
}

// A llama of one layer whose rows are as long as ggml's longest block; each matrix of another type.
constexpr uint64_t kWidth = 256;

void SetLlama(GgufWriter& writer) {
  writer.Set("general.architecture", "llama");
  writer.Set("llama.block_count", uint32_t{1});
  writer.Set("llama.context_length", uint32_t{16});
  writer.Set("llama.embedding_length", static_cast<uint32_t>(kWidth));
  writer.Set("llama.feed_forward_length", uint32_t{4});
  writer.Set("llama.attention.head_count", uint32_t{2});
  writer.Set("llama.attention.head_count_kv", uint32_t{1});
  writer.Set("llama.attention.key_length", uint32_t{4});
  writer.Set("llama.attention.value_length", uint32_t{4});
  writer.Set("llama.rope.dimension_count", uint32_t{4});
  writer.Set("llama.vocab_size", uint32_t{6});
  writer.Set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

void SetTokenizer(GgufWriter& writer) {
  const std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "<0x0A>", "\xe2\x96\x81", "a"};
  const std::vector<float> scores = {0, 0, 0, 0, -1, -2};
  const std::vector<int32_t> types = {2, 3, 3, 6, 1, 1};
  writer.Set("tokenizer.ggml.model", "llama");
  writer.Set("tokenizer.ggml.tokens", std::span(tokens));
  writer.Set("tokenizer.ggml.scores", std::span<const float>(scores));
  writer.Set("tokenizer.ggml.token_type", std::span<const int32_t>(types));
  writer.Set("tokenizer.ggml.bos_token_id", uint32_t{1});
  writer.Set("tokenizer.ggml.eos_token_id", uint32_t{2});
  writer.Set("tokenizer.ggml.add_bos_token", true);
  writer.Set("tokenizer.chat_template", "{{ messages[0].content }}");
}

void AddRandom(GgufWriter& writer, const char* name, std::vector<uint64_t> dims, uint32_t type) {
  const formats::GgmlType& info = *formats::FindGgmlType(type);
  uint64_t count = 1;
  for (const uint64_t dim : dims) count *= dim;
  testing::Random random(type);
  std::vector<std::byte> data(count / info.block_size * info.block_bytes);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random.Bits() & 0x3f);  // no scale is NaN
  writer.AddTensor(name, std::move(dims), type, data);
}

std::string Llama(const std::vector<uint32_t>& types) {
  GgufWriter writer;
  SetLlama(writer);
  SetTokenizer(writer);
  size_t next = 0;
  const auto add = [&](const char* name, uint64_t rows) {
    AddRandom(writer, name, {rows, kWidth}, types[next++ % types.size()]);
  };
  add("token_embd.weight", 6);
  AddRandom(writer, "output_norm.weight", {kWidth}, formats::kGgmlF32);
  AddRandom(writer, "blk.0.attn_norm.weight", {kWidth}, formats::kGgmlF32);
  add("blk.0.attn_q.weight", 8);
  add("blk.0.attn_k.weight", 4);
  add("blk.0.attn_v.weight", 4);
  AddRandom(writer, "blk.0.attn_output.weight", {kWidth, 8}, formats::kGgmlF16);
  AddRandom(writer, "blk.0.ffn_norm.weight", {kWidth}, formats::kGgmlF32);
  add("blk.0.ffn_gate.weight", 4);
  add("blk.0.ffn_up.weight", 4);
  AddRandom(writer, "blk.0.ffn_down.weight", {kWidth, 4}, formats::kGgmlBF16);
  return Text(writer.Finish());
}

void AddGguf(Seeds& seeds) {
  using namespace formats;
  seeds["gguf/k_quants"] = Llama({kGgmlQ2_K, kGgmlQ3_K, kGgmlQ4_K, kGgmlQ5_K, kGgmlQ6_K, kGgmlQ8_K});
  seeds["gguf/legacy"] = Llama({kGgmlQ4_0, kGgmlQ4_1, kGgmlQ5_0, kGgmlQ5_1, kGgmlQ8_0, kGgmlMXFP4});
  seeds["gguf/other"] = Llama({kGgmlIQ4_NL, kGgmlIQ4_XS, kGgmlTQ1_0, kGgmlTQ2_0});
}

void AddModel(Seeds& seeds) {
  const testing::AlignedBytes file = testing::SampleBytes();
  formats::FileHeader header;
  std::memcpy(&header, file.span().data(), sizeof(header));
  seeds["model/sample"] = Text(file.span().first(sizeof(header))) + Text(file.span().subspan(header.metadata_offset));
}

TokenizerSpec ByteLevelSpec() {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kBpe;
  spec.byte_level = true;
  spec.tokens = {"a", "b", "ab", " ", "<s>"};
  spec.types.assign(4, TokenType::kNormal);
  spec.types.push_back(TokenType::kControl);
  spec.lookup = {true, true, true, true, false};
  spec.merges = {{0, 1, 2}};
  spec.normalizer = {{NormalizerKind::kNfc, false, "", ""}, {NormalizerKind::kReplace, true, "x+", "a"}};
  PreTokenizerStep split;
  split.regex = true;
  split.pattern = "\\s+|\\p{L}+";
  spec.pre_tokenizer = {split};
  AddedToken added;
  added.id = 4;
  added.content = "<s>";
  added.special = added.lstrip = true;
  spec.added_tokens = {added};
  spec.bos_id = 4;
  spec.prefix_ids = {4};
  return spec;
}

TokenizerSpec ScoredSpec() {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePieceBpe;
  spec.byte_fallback = spec.fuse_unk = true;
  spec.tokens = {"<unk>", "<0x0A>", "\xe2\x96\x81", "a",
                 "\xe2\x96\x81"
                 "a"};
  spec.types = {TokenType::kUnknown, TokenType::kByte, TokenType::kNormal, TokenType::kNormal, TokenType::kNormal};
  spec.scores = {0, 0, -3, -2, -1};
  spec.lookup.assign(5, true);
  spec.unk_id = 0;
  spec.normalizer = {{NormalizerKind::kPrepend, false, "", "\xe2\x96\x81"},
                     {NormalizerKind::kReplace, false, " ", "\xe2\x96\x81"}};
  DecoderStep replace, strip;
  replace.kind = DecoderKind::kReplace;
  replace.pattern = "\xe2\x96\x81";
  replace.content = " ";
  strip.kind = DecoderKind::kStrip;
  strip.content = " ";
  strip.start = 1;
  spec.decoder = {replace, {DecoderKind::kByteFallback, PrependScheme::kNever, 0, 0, "", ""}, {}, strip};
  return spec;
}

void AddSections(Seeds& seeds) {
  for (const auto& [name, spec] : {std::pair{"byte_level", ByteLevelSpec()}, {"scored", ScoredSpec()}}) {
    Diagnostic diagnostic;
    const auto section = formats::WriteTokenizerSection(spec, &diagnostic);
    REQUIRE_MESSAGE(section.ok(), std::string(diagnostic.text()));
    seeds[std::string("tokenizer_section/") + name] = std::string("ab a\xff <s>b\xcc\x81\n") + '\0' + Text(*section);
  }
}

void AddTokenizerJson(Seeds& seeds) {
  const std::string byte_level = R"({"version":"1.0","added_tokens":[{"id":3,"content":"<s>","single_word":false,
    "lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":{"type":"NFC"},
    "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},
    "post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},
    "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]}})";
  const std::string metaspace = R"({"added_tokens":[],"normalizer":{"type":"Sequence","normalizers":[
    {"type":"Prepend","prepend":"_"},{"type":"Replace","pattern":{"String":" "},"content":"_"}]},"pre_tokenizer":null,
    "decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},
    {"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
    "model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,"vocab":{"<unk>":0,"<0x0A>":1,
    "_":2,"a":3,"_a":4},"merges":["_ a"]}})";
  const std::string rest = std::string(1, '\0') +
                           R"({"bos_token":"<s>","add_bos_token":true,"chat_template":"{{ x }}"})" + '\0' +
                           R"({"eos_token":{"content":"<s>"}})" + '\0' + R"({"eos_token_id":[3],"top_k":4})" + '\0' +
                           R"({"bos_token_id":3})" + '\0' + "ab <s>\xc3\xa4\n";
  seeds["tokenizer_json/byte_level"] = byte_level + rest;
  seeds["tokenizer_json/metaspace"] = metaspace + std::string(5, '\0') + "a a\nb";
}

void AddConfigs(Seeds& seeds) {
  seeds["config_json/llama"] = R"({"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,
    "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":300,"max_position_embeddings":256,"rope_theta":1e4,
    "rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
    "original_max_position_embeddings":64},"rms_norm_eps":1e-5,"tie_word_embeddings":false,"hidden_act":"silu"})";
  seeds["config_json/gemma"] = R"({"model_type":"gemma3_text","hidden_size":64,"intermediate_size":96,
    "num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":1,"head_dim":16,"vocab_size":300,
    "max_position_embeddings":256,"query_pre_attn_scalar":16,"sliding_window":8,"sliding_window_pattern":2,
    "layer_types":["sliding_attention","full_attention","sliding_attention"],"rope_local_base_freq":10000.0})";
  seeds["config_json/mixture"] = R"({"model_type":"mixtral","hidden_size":64,"intermediate_size":96,
    "num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2,"num_local_experts":4,"num_experts_per_tok":2,"vocab_size":300,
    "max_position_embeddings":256,"sliding_window":null,"router_aux_loss_coef":0.02})";
}

void AddTemplates(Seeds& seeds) {
  const std::string loop =
      "{%- for m in messages %}{% if m['role'] == 'user' and not loop.last %}<|{{ m.role | upper }}|>{{ m.content | "
      "trim }}{% else %}{{ bos_token ~ m.content[1:3] }}{% endif %}{% endfor %}{% if add_generation_prompt %}x{% endif "
      "%}";
  const std::string rest =
      "{% set ns = namespace(n=0) %}{% macro f(a, b=2) %}{{ a + b }}{% endmacro %}{% for i in range(3) %}{% set ns.n = "
      "ns.n + i %}{% endfor %}{{ f(ns.n) }}{{ tools | tojson(indent=2) }}{{ '%s-%d' % ('a', 3) }}{{ [1,2]|join(',') "
      "}}{{ {'a': 1}.items() | list }}{{ raise_exception('no') if ns.n > 9 }}";
  seeds["chat_template/loop"] = loop + '\0' + R"([{"role":"user","content":"hello"},{"role":"tool","content":[]}])";
  seeds["chat_template/rest"] = rest;
}

std::string SamplerSeed(float temperature, int32_t top_k, float top_p, float penalty) {
  std::string seed;
  for (const float value : {temperature, std::bit_cast<float>(top_k), top_p, 0.01f, penalty}) Append(seed, value);
  Append(seed, uint32_t{8});
  Append(seed, uint64_t{42});
  Append(seed, uint16_t{2});
  Append(seed, uint32_t{0x00030001});
  for (const float logit : testing::RandomVector(200, 5, 4.0f)) Append(seed, logit);
  return seed;
}

void AddNumbers(Seeds& seeds) {
  seeds["sampler/greedy"] = SamplerSeed(0.0f, 0, 1.0f, 1.0f);
  seeds["sampler/all_options"] = SamplerSeed(0.8f, 20, 0.9f, 1.2f);
  seeds["sampler/top_p"] = SamplerSeed(1.5f, 0, 0.95f, 1.0f);
  for (uint8_t kernel = 0; kernel < 4; ++kernel) {
    std::string seed(1, static_cast<char>(kernel));
    Append(seed, uint16_t{1});
    Append(seed, uint16_t{66});
    Append(seed, uint16_t{kernel});
    for (const float value : testing::RandomVector(300, kernel + 1u)) Append(seed, value);
    seeds["kernels/" + std::to_string(kernel)] = seed;
  }
}

Seeds AllSeeds() {
  Seeds seeds;
  AddSafetensors(seeds);
  AddGguf(seeds);
  AddModel(seeds);
  AddSections(seeds);
  AddTokenizerJson(seeds);
  AddConfigs(seeds);
  AddTemplates(seeds);
  AddNumbers(seeds);
  return seeds;
}

constexpr size_t kMaxCorpusBytes = 100'000;  // it is part of the repository

}  // namespace

TEST_SUITE("fuzz") {
  TEST_CASE("Corpus: every seed is what the code makes today") {
    const std::filesystem::path corpus = LINNET_FUZZ_CORPUS;
    const bool write = std::getenv("LINNET_WRITE_CORPUS") != nullptr;
    size_t total = 0;
    for (const auto& [name, bytes] : AllSeeds()) {
      CAPTURE(name);
      total += bytes.size();
      if (write) {
        std::filesystem::create_directories((corpus / name).parent_path());
        testing::WriteFile(corpus / name, bytes);
      }
      CHECK(testing::ReadFile(corpus / name) == bytes);
    }
    CHECK(total < kMaxCorpusBytes);
  }
}

}  // namespace linnet
