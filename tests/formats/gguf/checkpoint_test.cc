#include "formats/gguf/checkpoint.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/file_mapping.h"
#include "core/base/model_view.h"
#include "formats/safetensors/safetensors_file.h"
#include "tests/support/gguf_writer.h"

TEST_SUITE_BEGIN("formats/gguf");

namespace linnet::formats {
namespace {

using test::GgufWriter;
using Bytes = GgufWriter::Bytes;

// A llama of 1 layer: model_dim 8, 2 heads of 4, 1 kv head, ffn_dim 6, 5 tokens. Tests change or leave out parts.
struct TinyLlama {
  std::map<std::string, uint32_t> numbers = {
      {"llama.block_count", 1},         {"llama.context_length", 16},      {"llama.embedding_length", 8},
      {"llama.feed_forward_length", 6}, {"llama.attention.head_count", 2}, {"llama.attention.head_count_kv", 1},
      {"llama.vocab_size", 5}};
  std::map<std::string, std::vector<uint64_t>> tensors = {
      {"token_embd.weight", {5, 8}},        {"output_norm.weight", {8}},      {"blk.0.attn_norm.weight", {8}},
      {"blk.0.attn_q.weight", {8, 8}},      {"blk.0.attn_k.weight", {4, 8}},  {"blk.0.attn_v.weight", {4, 8}},
      {"blk.0.attn_output.weight", {8, 8}}, {"blk.0.ffn_norm.weight", {8}},   {"blk.0.ffn_gate.weight", {6, 8}},
      {"blk.0.ffn_up.weight", {6, 8}},      {"blk.0.ffn_down.weight", {8, 6}}};
  std::string architecture = "llama";
  std::map<std::string, std::string> texts;
  std::map<std::string, float> floats = {{"llama.attention.layer_norm_rms_epsilon", 1e-5f}};
  std::map<std::string, std::vector<float>> vectors;  // given values; all others count up

  GgufWriter Writer() const {
    GgufWriter writer;
    writer.Set("general.architecture", std::string_view(architecture));
    for (const auto& [key, value] : numbers) writer.Set(key, value);
    for (const auto& [key, value] : texts) writer.Set(key, std::string_view(value));
    for (const auto& [key, value] : floats) writer.Set(key, value);
    for (const auto& [name, dims] : tensors) {
      uint64_t count = 1;
      for (const uint64_t dim : dims) count *= dim;
      std::vector<float> values(count);
      for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
      const auto given = vectors.find(name);
      writer.AddF32(name, dims, given == vectors.end() ? values : given->second);
    }
    return writer;
  }
  Bytes Make() const { return Writer().Finish(); }
};

std::unique_ptr<Checkpoint> OpenOrFail(const Bytes& bytes) {
  Diagnostic diagnostic;
  Result<std::unique_ptr<Checkpoint>> checkpoint = OpenGgufCheckpointFromBytes(bytes, "tiny.gguf", &diagnostic);
  INFO(std::string(diagnostic.text()));
  REQUIRE(checkpoint.ok());
  return std::move(checkpoint).value();
}

void CheckRefused(const Bytes& bytes, StatusCode code, const std::string& part) {
  Diagnostic diagnostic;
  const Result<std::unique_ptr<Checkpoint>> checkpoint = OpenGgufCheckpointFromBytes(bytes, "tiny.gguf", &diagnostic);
  const std::string text = diagnostic.text();
  CAPTURE(part);
  REQUIRE_FALSE(checkpoint.ok());
  CAPTURE(text);
  CHECK(checkpoint.status().code() == code);
  CHECK(text.find(part) != std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
}

TensorRequirement Find(const Checkpoint& checkpoint, TensorRole role, int32_t layer) {
  for (const TensorRequirement& tensor : RequiredTensors(checkpoint.info().config)) {
    if (tensor.role == role && tensor.layer == layer) return tensor;
  }
  FAIL("the description asks for no such tensor");
  return {};
}

std::vector<float> ReadAll(const Checkpoint& checkpoint, TensorRole role, int32_t layer) {
  const TensorRequirement tensor = Find(checkpoint, role, layer);
  const uint64_t rows = tensor.rank == 1 ? 1 : tensor.dims[tensor.rank - 2];
  std::vector<float> values(rows * tensor.dims[tensor.rank - 1]);
  Diagnostic diagnostic;
  REQUIRE(checkpoint.ReadRows(tensor, 0, 0, rows, values, &diagnostic).ok());
  return values;
}

TEST_CASE("OpenGgufCheckpoint: describes a tiny llama") {
  const Bytes bytes = TinyLlama().Make();
  const std::unique_ptr<Checkpoint> checkpoint = OpenOrFail(bytes);
  const ModelConfig& config = checkpoint->info().config;
  CHECK(config.family == "llama");
  CHECK(config.vocab_size == 5);
  CHECK(config.tied_head);
  REQUIRE(config.ropes.size() == 1);
  CHECK(config.ropes[0].theta == 10000.0);
  CHECK(config.ropes[0].rope_dim == 4);
  CHECK(config.layer(0).attention.score_scale == 0.5f);
  CHECK_FALSE(config.layer(0).attention.qkv_bias);
  CHECK(checkpoint->info().tokenizer.kind == TokenizerKind::kNone);
  REQUIRE(checkpoint->files().size() == 1);
  CHECK(checkpoint->files()[0].name == "tiny.gguf");
  CHECK(checkpoint->files()[0].bytes.size() == bytes.size());
}

TEST_CASE("OpenGgufCheckpoint: puts llama's q and k rows, and their biases, back in order") {
  TinyLlama tiny;
  tiny.tensors["blk.0.attn_q.bias"] = {8};
  tiny.tensors["blk.0.attn_k.bias"] = {4};
  tiny.tensors["blk.0.attn_v.bias"] = {4};
  const Bytes bytes = tiny.Make();
  const std::unique_ptr<Checkpoint> checkpoint = OpenOrFail(bytes);
  const std::vector<float> qkv = ReadAll(*checkpoint, TensorRole::kQkv, 0);
  // Row r of a tensor begins with 8 r. Stored heads alternate between halves: 0 2 1 3 is the order that undoes it.
  const float expected[16] = {0, 2, 1, 3, 4, 6, 5, 7, 0, 2, 1, 3, 0, 1, 2, 3};
  for (size_t row = 0; row < 16; ++row) CHECK(qkv[row * 8] == 8.0f * expected[row]);
  const std::vector<float> bias = ReadAll(*checkpoint, TensorRole::kQkvBias, 0);
  CHECK(bias == std::vector<float>(std::begin(expected), std::end(expected)));
}

TEST_CASE("OpenGgufCheckpoint: reads any run of rows of stacked tensors") {
  const Bytes bytes = TinyLlama().Make();
  const std::unique_ptr<Checkpoint> checkpoint = OpenOrFail(bytes);
  for (const TensorRole role : {TensorRole::kQkv, TensorRole::kFfnUp}) {
    const TensorRequirement tensor = Find(*checkpoint, role, 0);
    const std::vector<float> all = ReadAll(*checkpoint, role, 0);
    for (uint64_t begin = 0; begin <= tensor.dims[0]; ++begin) {
      for (uint64_t count = 0; begin + count <= tensor.dims[0]; ++count) {
        std::vector<float> run(count * 8);
        REQUIRE(checkpoint->ReadRows(tensor, 0, begin, count, run, nullptr).ok());
        CHECK(std::equal(run.begin(), run.end(), all.begin() + static_cast<std::ptrdiff_t>(begin * 8)));
      }
    }
    std::vector<float> run(tensor.dims[0] * 8);
    CHECK_FALSE(checkpoint->ReadRows(tensor, 0, 1, tensor.dims[0], run, nullptr).ok());
    CHECK_FALSE(checkpoint->ReadRows(tensor, 1, 0, 1, run, nullptr).ok());
    CHECK_FALSE(checkpoint->ReadRows(tensor, 0, 0, 2, std::span(run).first(15), nullptr).ok());
    CHECK_FALSE(checkpoint->ReadRows(tensor, 0, ~uint64_t{0}, 2, run, nullptr).ok());
  }
}

TEST_CASE("OpenGgufCheckpoint: a head of its own is not tied; fused q, k, v are permuted too") {
  TinyLlama tiny;
  tiny.tensors["output.weight"] = {5, 8};
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"}) {
    tiny.tensors.erase(name);
  }
  tiny.tensors["blk.0.attn_qkv.weight"] = {16, 8};
  const Bytes bytes = tiny.Make();
  const std::unique_ptr<Checkpoint> checkpoint = OpenOrFail(bytes);
  CHECK_FALSE(checkpoint->info().config.tied_head);
  const std::vector<float> qkv = ReadAll(*checkpoint, TensorRole::kQkv, 0);
  const float expected[16] = {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 13, 14, 15};
  for (size_t row = 0; row < 16; ++row) CHECK(qkv[row * 8] == 8.0f * expected[row]);
}

TEST_CASE("OpenGgufCheckpoint: Llama 3's rope factors divide the frequencies") {
  TinyLlama tiny;
  tiny.tensors["rope_freqs.weight"] = {2};
  tiny.vectors["rope_freqs.weight"] = {1.0f, 8.0f};
  const Bytes bytes = tiny.Make();
  const std::unique_ptr<Checkpoint> checkpoint = OpenOrFail(bytes);
  const RopeSpec& rope = checkpoint->info().config.ropes[0];
  CHECK(rope.scaling == RopeScaling::kLongRope);
  CHECK(rope.short_factors == std::vector<float>{1.0f, 8.0f});
  CHECK(rope.long_factors == rope.short_factors);
  tiny.vectors["rope_freqs.weight"] = {0.0f, 8.0f};
  CheckRefused(tiny.Make(), StatusCode::kInvalidModel, "factor");
  tiny.tensors["rope_freqs.weight"] = {3};
  tiny.vectors.clear();
  CheckRefused(tiny.Make(), StatusCode::kInvalidModel, "\"rope_freqs.weight\": expected 2 values");
}

TEST_CASE("OpenGgufCheckpoint: tensors that are missing, unexpected or of another shape are named") {
  const TinyLlama whole;
  for (const auto& [name, dims] : whole.tensors) {
    TinyLlama tiny = whole;
    tiny.tensors.erase(name);
    CheckRefused(tiny.Make(), StatusCode::kInvalidModel, "tensor \"" + name + "\" is missing");
    tiny = whole;
    tiny.tensors[name].back() += 1;
    CheckRefused(tiny.Make(), StatusCode::kInvalidModel, "tensor \"" + name + "\"");
  }
  TinyLlama extra = whole;
  extra.tensors["blk.0.attn_q_norm.weight"] = {4};
  CheckRefused(extra.Make(), StatusCode::kUnsupported, "tensor \"blk.0.attn_q_norm.weight\" [4] has no place");
  TinyLlama layer = whole;
  layer.tensors["blk.1.attn_norm.weight"] = {8};
  CheckRefused(layer.Make(), StatusCode::kUnsupported, "blk.1.attn_norm.weight");
}

TEST_CASE("OpenGgufCheckpoint: a tensor type without a conversion is refused by name") {
  TinyLlama tiny;
  tiny.numbers["llama.embedding_length"] = 256;
  tiny.tensors.erase("token_embd.weight");
  GgufWriter writer = tiny.Writer();
  const std::vector<std::byte> data(66 * 5);
  writer.AddTensor("token_embd.weight", {5, 256}, 16, data);
  CheckRefused(writer.Finish(), StatusCode::kUnsupported,
               "\"token_embd.weight\" has type IQ2_XXS, which is not supported");
}

TEST_CASE("OpenGgufCheckpoint: unknown architectures, keys and values are refused by name") {
  TinyLlama tiny;
  tiny.architecture = "mamba";
  CheckRefused(tiny.Make(), StatusCode::kUnsupported, "general.architecture \"mamba\" is not supported");
  tiny = {};
  tiny.texts["general.type"] = "adapter";
  CheckRefused(tiny.Make(), StatusCode::kUnsupported, "general.type \"adapter\"");
  tiny = {};
  tiny.floats["llama.attention.clamp_kqv"] = 8.0f;
  CheckRefused(tiny.Make(), StatusCode::kUnsupported, "metadata key \"llama.attention.clamp_kqv\" is not supported");
  tiny = {};
  tiny.texts["llama.rope.scaling.type"] = "foo";
  CheckRefused(tiny.Make(), StatusCode::kUnsupported, "rope.scaling.type \"foo\" is not supported");
  tiny = {};
  tiny.texts["llama.rope.scaling.type"] = "longrope";
  CheckRefused(tiny.Make(), StatusCode::kInvalidModel, "rope_factors_long.weight");
  tiny = {};
  tiny.texts["llama.block_count"] = "many";
  tiny.numbers.erase("llama.block_count");
  CheckRefused(tiny.Make(), StatusCode::kInvalidModel, "llama.block_count: expected an integer");
}

TEST_CASE("OpenGgufCheckpoint: required keys, and sizes that cannot be") {
  const TinyLlama whole;
  for (const char* key :
       {"llama.block_count", "llama.embedding_length", "llama.context_length", "llama.attention.head_count"}) {
    TinyLlama tiny = whole;
    tiny.numbers.erase(key);
    CheckRefused(tiny.Make(), StatusCode::kInvalidModel, std::string("metadata key \"") + key + "\" is missing");
    tiny.numbers[key] = 0;
    CheckRefused(tiny.Make(), StatusCode::kInvalidModel, "tiny.gguf");
    tiny.numbers[key] = 4000000000u;
    CheckRefused(tiny.Make(), StatusCode::kInvalidModel, key);
  }
  TinyLlama tiny = whole;
  tiny.floats.clear();
  CheckRefused(tiny.Make(), StatusCode::kInvalidModel, "llama.attention.layer_norm_rms_epsilon\" is missing");
  tiny = whole;
  tiny.numbers["llama.attention.head_count_kv"] = 3;
  CheckRefused(tiny.Make(), StatusCode::kInvalidModel, "n_kv_heads");
  tiny = whole;
  tiny.numbers["llama.rope.dimension_count"] = 2;
  CheckRefused(tiny.Make(), StatusCode::kUnsupported, "llama.rope.dimension_count");
}

TEST_CASE("OpenGgufCheckpoint: a file with any byte of its head changed opens or is refused") {
  const Bytes bytes = TinyLlama().Make();
  const GgufFile file = std::move(GgufFile::Parse(bytes, "tiny.gguf", nullptr)).value();
  const size_t head = static_cast<size_t>(file.tensors().front().data.data() - bytes.data());
  for (size_t at = 0; at < head; ++at) {
    for (const int flip : {0x01, 0x10, 0xff}) {
      Bytes changed = bytes;
      changed[at] ^= static_cast<std::byte>(flip);
      Diagnostic diagnostic;
      const auto checkpoint = OpenGgufCheckpointFromBytes(changed, "tiny.gguf", &diagnostic);
      CHECK((checkpoint.ok() || !diagnostic.empty()));
    }
  }
}

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(std::filesystem::temp_directory_path() / ("linnet-gguf-" + std::to_string(Unique()))) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string Write(const std::string& name, const Bytes& bytes) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return (path_ / name).string();
  }

 private:
  static uintptr_t Unique() {
    static int anchor = 0;
    return reinterpret_cast<uintptr_t>(&anchor) ^
           static_cast<uintptr_t>(std::filesystem::hash_value(std::filesystem::current_path()));
  }
  std::filesystem::path path_;
};

TEST_CASE("OpenGgufCheckpoint: a split model is read from all its parts") {
  const TemporaryFolder folder;
  TinyLlama first, second;
  first.numbers["split.count"] = second.numbers["split.count"] = 2;
  first.numbers["split.no"] = 0;
  first.numbers["split.tensors.count"] = 11;
  second.numbers = {{"split.count", 2}, {"split.no", 1}};
  second.floats.clear();
  for (auto it = first.tensors.begin(); it != first.tensors.end();) {
    const bool ffn = it->first.find("ffn") != std::string::npos;
    ffn ? static_cast<void>(it = first.tensors.erase(it)) : static_cast<void>(++it);
  }
  for (const auto& [name, dims] : first.tensors) second.tensors.erase(name);
  const std::string path = folder.Write("tiny-00001-of-00002.gguf", first.Make());
  Diagnostic diagnostic;
  const auto missing = OpenGgufCheckpoint(path, &diagnostic);
  CHECK(missing.status().code() == StatusCode::kIoError);
  CHECK(std::string(diagnostic.text()).find("tiny-00002-of-00002.gguf") != std::string::npos);

  const std::string other = folder.Write("tiny-00002-of-00002.gguf", second.Make());
  const auto whole = OpenGgufCheckpoint(path, &diagnostic);
  INFO(std::string(diagnostic.text()));
  REQUIRE(whole.ok());
  CHECK((*whole)->files().size() == 2);
  CHECK(ReadAll(**whole, TensorRole::kFfnDown, 0)[47] == 47.0f);
  (*whole)->Release(Find(**whole, TensorRole::kFfnDown, 0));
  CHECK(ReadAll(**whole, TensorRole::kFfnDown, 0)[47] == 47.0f);

  CHECK(OpenGgufCheckpoint(other, &diagnostic).status().code() == StatusCode::kInvalidArgument);
  second.numbers["split.no"] = 0;
  folder.Write("tiny-00002-of-00002.gguf", second.Make());
  CHECK(OpenGgufCheckpoint(path, &diagnostic).status().code() == StatusCode::kInvalidModel);
}

TEST_CASE("OpenGgufCheckpoint: a vocabulary, a folder and a missing file are refused") {
  GgufWriter writer;
  writer.Set("general.architecture", "llama");
  CheckRefused(writer.Finish(), StatusCode::kInvalidModel, "no tensors");
  Diagnostic diagnostic;
  CHECK(OpenGgufCheckpoint("/nonexistent/x.gguf", &diagnostic).status().code() == StatusCode::kIoError);
  CHECK(std::string(diagnostic.text()).find("/nonexistent/x.gguf") != std::string::npos);
  CHECK(OpenGgufCheckpoint("/", &diagnostic).status().code() == StatusCode::kIoError);
}

// The shared tiny trained model, as the Hugging Face directory has it.
class Stories {
 public:
  bool Open() {
    const std::string path = std::string(LINNET_SHARED_DIR) + "/real/stories260k/model.safetensors";
    Result<FileMapping> mapping = FileMapping::Open(path, nullptr);
    if (!mapping.ok()) return false;
    mapping_ = std::move(mapping).value();
    const Result<std::vector<SafetensorsTensor>> parsed = ParseSafetensors(mapping_.bytes(), path, nullptr);
    REQUIRE(parsed.ok());
    for (const SafetensorsTensor& tensor : *parsed) tensors_[tensor.name] = tensor;
    return true;
  }
  // The rows of the parts, one part after another.
  std::vector<float> Read(const std::vector<std::string>& names) const {
    std::vector<float> values;
    for (const std::string& name : names) {
      const SafetensorsTensor& tensor = tensors_.at(name);
      const size_t count = tensor.bytes.size() / SafetensorsTypeBytes(tensor.type), begin = values.size();
      values.resize(begin + count);
      ReadAsF32(tensor, {0, count, 1, 1}, values.data() + begin);
    }
    return values;
  }

 private:
  FileMapping mapping_;
  std::map<std::string, SafetensorsTensor> tensors_;
};

std::vector<std::string> StoriesNames(const TensorRequirement& tensor) {
  const std::string layer = "model.layers." + std::to_string(tensor.layer) + ".";
  switch (tensor.role) {
    case TensorRole::kTokenEmbedding:
      return {"model.embed_tokens.weight"};
    case TensorRole::kFinalNormGain:
      return {"model.norm.weight"};
    case TensorRole::kAttentionNormGain:
      return {layer + "input_layernorm.weight"};
    case TensorRole::kFfnNormGain:
      return {layer + "post_attention_layernorm.weight"};
    case TensorRole::kQkv:
      return {layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight", layer + "self_attn.v_proj.weight"};
    case TensorRole::kAttentionOut:
      return {layer + "self_attn.o_proj.weight"};
    case TensorRole::kFfnUp:
      return {layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight"};
    default:
      return {layer + "mlp.down_proj.weight"};
  }
}

// The most that a value of a block of 32 whose largest magnitude is `peak` can be off: half a step, a whole one at
// the end of Q4_0's and Q5_0's range that has one value less, and the rounding of the scale to f16.
double ErrorBound(const std::string& type, double value, double peak) {
  if (type == "F32") return 0.0;
  if (type == "F16") return std::fabs(value) * 0x1p-11 + 0x1p-25;
  const double scale = peak * 0x1p-11;
  if (type == "Q8_0") return peak / 254 + scale;
  if (type == "Q5_0") return peak / 16 + scale;
  REQUIRE(type == "Q4_0");
  return peak / 8 + scale;
}

void CheckStoriesTensor(const Checkpoint& checkpoint, const TensorRequirement& tensor, const Stories& stories) {
  CAPTURE(std::string(TensorRoleName(tensor.role)));
  CAPTURE(tensor.layer);
  const std::vector<float> expected = stories.Read(StoriesNames(tensor));
  const std::vector<float> found = ReadAll(checkpoint, tensor.role, tensor.layer);
  const std::string type = checkpoint.TypeOf(tensor).name;
  const size_t columns = tensor.dims[tensor.rank - 1];
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const size_t row = i / columns * columns, begin = row + (i - row) / 32 * 32;
    double peak = 0;
    for (size_t j = begin; j < std::min(begin + 32, row + columns); ++j) {
      peak = std::max(peak, std::fabs(static_cast<double>(expected[j])));
    }
    CAPTURE(i);
    REQUIRE(std::fabs(static_cast<double>(found[i]) - expected[i]) <= ErrorBound(type, expected[i], peak));
  }
}

TEST_CASE("OpenGgufCheckpoint: stories260k equals its Hugging Face weights within each type's error") {
  Stories stories;
  if (!stories.Open()) {
    MESSAGE("skipped: shared data is absent: real/stories260k");
    return;
  }
  for (const char* name : {"f32", "F16", "Q8_0", "Q5_0", "Q4_0", "Q4_K_M"}) {
    CAPTURE(std::string(name));
    const std::string path = std::string(LINNET_SHARED_DIR) + "/real/stories260k/gguf/stories260K-" + name + ".gguf";
    Diagnostic diagnostic;
    const Result<std::unique_ptr<Checkpoint>> checkpoint = OpenGgufCheckpoint(path, &diagnostic);
    INFO(std::string(diagnostic.text()));
    REQUIRE(checkpoint.ok());
    const CheckpointInfo& info = (*checkpoint)->info();
    CHECK(info.name == "stories260K");
    CHECK(info.config.context_length == 512);
    CHECK(info.tokenizer.tokens.size() == 512);
    CHECK(info.generation.bos_id == 1);
    CHECK(info.generation.add_bos);
    CHECK(info.generation.end_ids == std::vector<int32_t>{2});
    for (const TensorRequirement& tensor : RequiredTensors(info.config)) {
      CheckStoriesTensor(**checkpoint, tensor, stories);
    }
  }
}

TEST_CASE("OpenGgufCheckpoint: Q4_K_M of stories260k tells the types that it mixes") {
  const std::string path = std::string(LINNET_SHARED_DIR) + "/real/stories260k/gguf/stories260K-Q4_K_M.gguf";
  const Result<std::unique_ptr<Checkpoint>> checkpoint = OpenGgufCheckpoint(path, nullptr);
  if (!checkpoint.ok()) {
    MESSAGE("skipped: shared data is absent: " << path);
    return;
  }
  const SourceType qkv = (*checkpoint)->TypeOf(Find(**checkpoint, TensorRole::kQkv, 0));
  CHECK(std::string(qkv.name) == "Q5_0");
  CHECK(qkv.bits_per_weight == 5.5);
  const SourceType down = (*checkpoint)->TypeOf(Find(**checkpoint, TensorRole::kFfnDown, 0));
  CHECK(std::string(down.name) == "F16");
}

}  // namespace
}  // namespace linnet::formats

TEST_SUITE_END();
