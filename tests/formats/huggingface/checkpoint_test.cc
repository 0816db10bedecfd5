#include "formats/huggingface/checkpoint.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/base/model_view.h"
#include "formats/safetensors/safetensors_set.h"
#include "tests/formats/huggingface/goldens.h"
#include "tests/formats/safetensors/safetensors_writer.h"
#include "tests/platforms/temporary_folder.h"

namespace linnet::formats {
namespace {

using linnet::testing::GoldenFolders;
using linnet::testing::ReadFile;
using linnet::testing::SafetensorsWriter;
using linnet::testing::TemporaryFolder;
using linnet::testing::WriteFile;
using nlohmann::json;

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::unique_ptr<Checkpoint> Open(const std::string& directory) {
  Diagnostic diagnostic;
  auto checkpoint = OpenHuggingFaceCheckpoint(directory, &diagnostic);
  REQUIRE_MESSAGE(checkpoint.ok(), std::string(diagnostic.text()));
  return std::move(checkpoint).value();
}

std::string Refusal(const std::string& directory, StatusCode code) {
  Diagnostic diagnostic;
  const auto checkpoint = OpenHuggingFaceCheckpoint(directory, &diagnostic);
  CHECK_FALSE(checkpoint.ok());
  if (!checkpoint.ok()) CHECK(checkpoint.status().code() == code);
  CHECK(std::string(diagnostic.text()).find('\n') == std::string::npos);
  return diagnostic.text();
}

uint64_t Elements(const TensorRequirement& tensor) {
  uint64_t elements = 1;
  for (uint32_t i = 0; i < tensor.rank; ++i) elements *= tensor.dims[i];
  return elements;
}

uint64_t RowsOf(const TensorRequirement& tensor) { return tensor.rank == 1 ? 1 : tensor.dims[tensor.rank - 2]; }
uint64_t GroupsOf(const TensorRequirement& tensor) { return tensor.rank == 3 ? tensor.dims[0] : 1; }
uint64_t ColumnsOf(const TensorRequirement& tensor) { return tensor.dims[tensor.rank - 1]; }

/// The whole tensor, `chunk` rows at a time.
std::vector<float> ReadAll(const Checkpoint& checkpoint, const TensorRequirement& tensor, uint64_t chunk) {
  std::vector<float> values(Elements(tensor));
  const uint64_t rows = RowsOf(tensor), columns = ColumnsOf(tensor);
  for (uint64_t group = 0; group < GroupsOf(tensor); ++group) {
    for (uint64_t row = 0; row < rows; row += chunk) {
      const uint64_t count = std::min(chunk, rows - row);
      const std::span<float> out = std::span(values).subspan((group * rows + row) * columns, count * columns);
      Diagnostic diagnostic;
      const Status status = checkpoint.ReadRows(tensor, group, row, count, out, &diagnostic);
      REQUIRE_MESSAGE(status.ok(), std::string(diagnostic.text()));
    }
  }
  return values;
}

TensorRequirement Required(const ModelConfig& config, TensorRole role, int32_t layer) {
  for (const TensorRequirement& tensor : RequiredTensors(config)) {
    if (tensor.role == role && tensor.layer == layer) return tensor;
  }
  FAIL("the description asks for no such tensor");
  return {};
}

std::vector<float> RawValues(const SafetensorsSet& source, const std::string& name) {
  const SafetensorsTensor* tensor = source.Find(name);
  REQUIRE(tensor != nullptr);
  uint64_t count = 1;
  for (uint64_t dim : tensor->shape) count *= dim;
  std::vector<float> values(count);
  ReadAsF32(*tensor, {0, count, 1, 1}, values.data());
  return values;
}

/// One golden's checkpoint beside its raw tensors. False where the shared data is absent.
struct Golden {
  explicit Golden(const std::string& name) {
    const std::string folder = std::string(LINNET_SHARED_DIR) + "/golden/" + name;
    if (!std::filesystem::exists(folder)) {
      MESSAGE("skipped: no " << folder);
      return;
    }
    checkpoint = Open(folder);
    auto opened = SafetensorsSet::Open(folder, nullptr);
    REQUIRE(opened.ok());
    source = std::move(opened).value();
  }
  explicit operator bool() const { return checkpoint != nullptr; }
  const ModelConfig& config() const { return checkpoint->info().config; }
  std::vector<float> Role(TensorRole role, int32_t layer) const {
    return ReadAll(*checkpoint, Required(config(), role, layer), 7);
  }
  std::vector<float> Raw(const std::string& name) const { return RawValues(source, name); }

  std::unique_ptr<Checkpoint> checkpoint;
  SafetensorsSet source;
};

/// A tiny llama of one layer: 4 wide, 2 heads of 2, 3 tokens, untied.
std::map<std::string, std::vector<uint64_t>> TinyShapes() {
  return {{"model.embed_tokens.weight", {3, 4}},
          {"model.norm.weight", {4}},
          {"lm_head.weight", {3, 4}},
          {"model.layers.0.input_layernorm.weight", {4}},
          {"model.layers.0.post_attention_layernorm.weight", {4}},
          {"model.layers.0.self_attn.q_proj.weight", {4, 4}},
          {"model.layers.0.self_attn.k_proj.weight", {4, 4}},
          {"model.layers.0.self_attn.v_proj.weight", {4, 4}},
          {"model.layers.0.self_attn.o_proj.weight", {4, 4}},
          {"model.layers.0.mlp.gate_proj.weight", {5, 4}},
          {"model.layers.0.mlp.up_proj.weight", {5, 4}},
          {"model.layers.0.mlp.down_proj.weight", {4, 5}}};
}
constexpr char kTinyConfig[] = R"({"model_type":"llama","hidden_size":4,"intermediate_size":5,"num_hidden_layers":1,
  "num_attention_heads":2,"vocab_size":3,"max_position_embeddings":16,"tie_word_embeddings":false})";

void WriteTiny(const TemporaryFolder& folder, const std::map<std::string, std::vector<uint64_t>>& shapes) {
  SafetensorsWriter writer;
  for (const auto& [name, shape] : shapes) {
    const uint64_t count = std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), static_cast<float>(name.size()));
    writer.Add(name, shape, values);
  }
  WriteFile(folder / "model.safetensors", writer.Bytes());
  WriteFile(folder / "config.json", kTinyConfig);
}

TEST_SUITE("huggingface") {
  TEST_CASE("OpenHuggingFaceCheckpoint: every golden is read whole, from either config, whatever the chunk") {
    for (const auto& golden : GoldenFolders()) {
      for (const char* config_name : {"config.json", "config_legacy.json"}) {
        const std::string name = golden.filename().string() + "/" + config_name;
        CAPTURE(name);
        TemporaryFolder folder;
        for (const auto& entry : std::filesystem::directory_iterator(golden)) {
          const std::string file = entry.path().filename().string();
          if (file.starts_with("model")) std::filesystem::create_symlink(entry.path(), folder / file);
        }
        WriteFile(folder / "config.json", ReadFile(golden / config_name));
        const auto checkpoint = Open(folder.path());
        const auto source = SafetensorsSet::Open(folder.path(), nullptr);
        REQUIRE(source.ok());
        double stored = 0.0, read = 0.0;
        uint64_t stored_count = 0, read_count = 0;
        for (const SafetensorsTensor& tensor : source->tensors()) {
          if (tensor.name.ends_with(".attn.bias")) continue;  // GPT-2's mask buffer
          for (float value : RawValues(*source, tensor.name)) stored += std::abs(value);
          stored_count += tensor.bytes.size() / SafetensorsTypeBytes(tensor.type);
        }
        for (const TensorRequirement& tensor : RequiredTensors(checkpoint->info().config)) {
          const std::vector<float> whole = ReadAll(*checkpoint, tensor, RowsOf(tensor));
          CHECK(whole == ReadAll(*checkpoint, tensor, 3));
          for (float value : whole) read += std::abs(value);
          read_count += whole.size();
          checkpoint->Release(tensor);
        }
        CHECK(read_count == stored_count);
        CHECK(read == doctest::Approx(stored).epsilon(1e-9));  // another order of the same f64 sum
      }
    }
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: q, k and v are stacked in that order, gate before up") {
    const Golden golden("llama");
    if (!golden) return;
    std::vector<float> expected = golden.Raw("model.layers.1.self_attn.q_proj.weight");
    for (const char* part : {"k", "v"}) {
      const auto next = golden.Raw(std::string("model.layers.1.self_attn.") + part + "_proj.weight");
      expected.insert(expected.end(), next.begin(), next.end());
    }
    CHECK(golden.Role(TensorRole::kQkv, 1) == expected);
    expected = golden.Raw("model.layers.2.mlp.gate_proj.weight");
    const auto up = golden.Raw("model.layers.2.mlp.up_proj.weight");
    expected.insert(expected.end(), up.begin(), up.end());
    CHECK(golden.Role(TensorRole::kFfnUp, 2) == expected);
    CHECK(std::string(golden.checkpoint->TypeOf(Required(golden.config(), TensorRole::kQkv, 1)).name) == "F32");
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: GPT-2's matrices are transposed") {
    const Golden golden("gpt2_noprefix");
    if (!golden) return;
    const auto raw = golden.Raw("h.1.mlp.c_fc.weight");  // [64, 256]
    const auto read = golden.Role(TensorRole::kFfnUp, 1);
    for (size_t n = 0; n < 256; ++n) {
      for (size_t k = 0; k < 64; ++k) REQUIRE(read[n * 64 + k] == raw[k * 256 + n]);
    }
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: GPT-NeoX's q, k and v are taken from each head") {
    const Golden golden("gpt_neox");
    if (!golden) return;
    const auto raw = golden.Raw("gpt_neox.layers.0.attention.query_key_value.weight");  // [4 * 3 * 16, 64]
    const auto bias = golden.Raw("gpt_neox.layers.0.attention.query_key_value.bias");
    const auto read = golden.Role(TensorRole::kQkv, 0);
    const auto read_bias = golden.Role(TensorRole::kQkvBias, 0);
    for (size_t part = 0; part < 3; ++part) {
      for (size_t head = 0; head < 4; ++head) {
        for (size_t i = 0; i < 16; ++i) {
          const size_t to = part * 64 + head * 16 + i, from = head * 48 + part * 16 + i;
          REQUIRE(read_bias[to] == bias[from]);
          for (size_t k = 0; k < 64; ++k) REQUIRE(read[to * 64 + k] == raw[from * 64 + k]);
        }
      }
    }
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: Falcon's groups are two query heads, a key and a value") {
    const Golden golden("falcon_new");
    if (!golden) return;
    const auto raw = golden.Raw("transformer.h.2.self_attention.query_key_value.weight");  // [2 * (2 + 1 + 1) * 16, 64]
    const auto read = golden.Role(TensorRole::kQkv, 2);
    const auto row_equal = [&](size_t to, size_t from) {
      return std::equal(read.begin() + to * 64, read.begin() + (to + 1) * 64, raw.begin() + from * 64);
    };
    for (size_t i = 0; i < 16; ++i) {
      for (size_t head = 0; head < 4; ++head) CHECK(row_equal(head * 16 + i, head / 2 * 64 + head % 2 * 16 + i));
      for (size_t kv = 0; kv < 2; ++kv) {
        CHECK(row_equal(64 + kv * 16 + i, kv * 64 + 32 + i));
        CHECK(row_equal(96 + kv * 16 + i, kv * 64 + 48 + i));
      }
    }
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: gpt-oss's experts are transposed and gate and up unwoven") {
    const Golden golden("gpt_oss");
    if (!golden) return;
    const auto raw = golden.Raw("model.layers.0.mlp.experts.gate_up_proj");  // [4, 64, 128]
    const auto bias = golden.Raw("model.layers.0.mlp.experts.gate_up_proj_bias");
    const auto read = golden.Role(TensorRole::kExpertUp, 0);  // [4, 128, 64]
    const auto read_bias = golden.Role(TensorRole::kExpertUpBias, 0);
    const auto down = golden.Raw("model.layers.0.mlp.experts.down_proj");  // [4, 64, 64]
    const auto read_down = golden.Role(TensorRole::kExpertDown, 0);
    for (size_t expert = 0; expert < 4; ++expert) {
      for (size_t n = 0; n < 128; ++n) {
        const size_t from = n < 64 ? 2 * n : 2 * (n - 64) + 1;
        REQUIRE(read_bias[expert * 128 + n] == bias[expert * 128 + from]);
        for (size_t k = 0; k < 64; ++k) {
          REQUIRE(read[(expert * 128 + n) * 64 + k] == raw[(expert * 64 + k) * 128 + from]);
        }
      }
      for (size_t n = 0; n < 64; ++n) {
        for (size_t k = 0; k < 64; ++k)
          REQUIRE(read_down[(expert * 64 + n) * 64 + k] == down[(expert * 64 + k) * 64 + n]);
      }
    }
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: DeepSeek's kv_b is split per head, its key half transposed") {
    const Golden golden("deepseek_v2");
    if (!golden) return;
    const auto raw = golden.Raw("model.layers.1.self_attn.kv_b_proj.weight");  // [4 * (16 + 16), 32]
    const auto key = golden.Role(TensorRole::kLatentKeyUp, 1);                 // [4, 32, 16]
    const auto value = golden.Role(TensorRole::kLatentValueUp, 1);             // [4, 16, 32]
    for (size_t head = 0; head < 4; ++head) {
      for (size_t c = 0; c < 16; ++c) {
        for (size_t r = 0; r < 32; ++r) {
          REQUIRE(key[(head * 32 + r) * 16 + c] == raw[(head * 32 + c) * 32 + r]);
          REQUIRE(value[(head * 16 + c) * 32 + r] == raw[(head * 32 + 16 + c) * 32 + r]);
        }
      }
    }
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: experts and heads that are tensors of their own are groups") {
    const Golden mixtral("mixtral");
    if (!mixtral) return;
    const auto up = mixtral.Role(TensorRole::kExpertUp, 1);  // [4, 128, 64]: w1 over w3
    const auto w3 = mixtral.Raw("model.layers.1.block_sparse_moe.experts.2.w3.weight");
    CHECK(std::equal(w3.begin(), w3.end(), up.begin() + (2 * 128 + 64) * 64));
    const Golden stablelm("stablelm_qknorm");
    const auto gains = stablelm.Role(TensorRole::kQNormGain, 1);  // [4, 16]
    const auto head3 = stablelm.Raw("model.layers.1.self_attn.q_layernorm.norms.3.weight");
    CHECK(std::equal(head3.begin(), head3.end(), gains.begin() + 3 * 16));
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: the text part of a Gemma 3 that sees is the text model") {
    const Golden golden("gemma3");
    if (!golden) return;
    for (const std::string base : {"language_model.model.", "model.language_model."}) {
      CAPTURE(base);
      TemporaryFolder folder;
      SafetensorsWriter writer;
      for (const SafetensorsTensor& tensor : golden.source.tensors()) {
        const std::string_view bytes(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
        writer.AddBytes(base + tensor.name.substr(std::string("model.").size()), "F32", tensor.shape,
                        std::string(bytes));
      }
      writer.Add("vision_tower.vision_model.embeddings.patch_embedding.bias", {1}, {0});
      writer.Add("multi_modal_projector.mm_soft_emb_norm.weight", {1}, {0});
      WriteFile(folder / "model.safetensors", writer.Bytes());
      const std::string text = ReadFile(std::string(LINNET_SHARED_DIR) + "/golden/gemma3/config.json");
      WriteFile(folder / "config.json",
                R"({"model_type":"gemma3","mm_tokens_per_image":256,"vision_config":{},"text_config":)" + text + "}");
      const auto checkpoint = Open(folder.path());
      ModelConfig expected = golden.config();
      expected.family = "gemma3";
      CHECK(checkpoint->info().config == expected);
      const TensorRequirement tensor = Required(expected, TensorRole::kQkv, 3);
      CHECK(ReadAll(*checkpoint, tensor, 7) == golden.Role(TensorRole::kQkv, 3));
    }
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: bf16 weights are widened") {
    const Golden golden("llama_bf16");
    if (!golden) return;
    const TensorRequirement head = Required(golden.config(), TensorRole::kHead, -1);
    CHECK(std::string(golden.checkpoint->TypeOf(head).name) == "BF16");
    CHECK(golden.checkpoint->TypeOf(head).bits_per_weight == 16.0);
    for (float value : golden.Role(TensorRole::kHead, -1)) {
      REQUIRE((std::bit_cast<uint32_t>(value) & 0xffffu) == 0u);
    }
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: a small checkpoint of one's own opens; its files and licence are told") {
    TemporaryFolder folder;
    WriteTiny(folder, TinyShapes());
    WriteFile(folder / "LICENSE.txt", "Apache-2.0");
    WriteFile(folder / "generation_config.json", R"({"eos_token_id":[1,2,1000000]})");  // the last is no token
    const auto checkpoint = Open(folder.path());
    CHECK(checkpoint->info().license == "Apache-2.0");
    CHECK(checkpoint->info().name == std::filesystem::path(folder.path()).filename().string());
    CHECK(checkpoint->info().tokenizer.kind == TokenizerKind::kNone);
    CHECK(checkpoint->info().generation.end_ids == std::vector<int32_t>{1, 2});
    std::vector<std::string> names;
    for (const SourceFile& file : checkpoint->files()) names.push_back(file.name);
    std::sort(names.begin(), names.end());
    CHECK(names == std::vector<std::string>{"config.json", "generation_config.json", "model.safetensors"});
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: a real directory opens with its tokenizer and end tokens") {
    const std::string folder = std::string(LINNET_SHARED_DIR) + "/real/stories260k";
    if (!std::filesystem::exists(folder)) {
      MESSAGE("skipped: no " << folder);
      return;
    }
    const auto checkpoint = Open(folder);
    const CheckpointInfo& info = checkpoint->info();
    CHECK(info.name == "stories260k");
    CHECK(info.config.vocab_size == 512);
    CHECK(info.tokenizer.tokens.size() == 512);
    CHECK(std::count(info.generation.end_ids.begin(), info.generation.end_ids.end(), 2) == 1);
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: a layer's experts in one tensor are read as its single ones are") {
    constexpr uint64_t kExperts = 2, kWidth = 5, kDim = 4;
    for (const bool mixtral : {true, false}) {
      CAPTURE(mixtral);
      json config = json::parse(kTinyConfig);
      config["model_type"] = mixtral ? "mixtral" : "qwen3_moe";
      config["num_experts"] = kExperts;
      config["num_experts_per_tok"] = 1;
      config["num_key_value_heads"] = config["num_attention_heads"];
      config["moe_intermediate_size"] = mixtral ? json() : json(kWidth);
      config["head_dim"] = kDim / config["num_attention_heads"].get<uint64_t>();
      auto shapes = TinyShapes();
      std::erase_if(shapes, [](const auto& entry) { return Contains(entry.first, ".mlp."); });
      shapes["model.layers.0.mlp.gate.weight"] = {kExperts, kDim};
      shapes["model.layers.0.mlp.experts.gate_up_proj"] = {kExperts, 2 * kWidth, kDim};
      shapes["model.layers.0.mlp.experts.down_proj"] = {kExperts, kDim, kWidth};
      if (!mixtral) {
        const uint64_t head_dim = config["head_dim"];
        shapes["model.layers.0.self_attn.q_norm.weight"] =
            shapes["model.layers.0.self_attn.k_norm.weight"] = {head_dim};
      }
      TemporaryFolder folder;
      WriteTiny(folder, shapes);
      WriteFile(folder / "config.json", config.dump());
      const auto checkpoint = Open(folder.path());
      // The file's order is Linnet's: expert, then the gate's rows before up's. WriteTiny counts up from the name's
      // size.
      for (const auto& [role, name] : {std::pair(TensorRole::kExpertUp, "model.layers.0.mlp.experts.gate_up_proj"),
                                       std::pair(TensorRole::kExpertDown, "model.layers.0.mlp.experts.down_proj")}) {
        const std::vector<float> values = ReadAll(*checkpoint, Required(checkpoint->info().config, role, 0), 3);
        for (size_t i = 0; i < values.size(); ++i) {
          REQUIRE(values[i] == static_cast<float>(std::string(name).size() + i));
        }
      }
    }
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: a missing tensor is refused with the name tried") {
    for (const auto& [name, shape] : TinyShapes()) {
      CAPTURE(name);
      TemporaryFolder folder;
      auto shapes = TinyShapes();
      shapes.erase(name);
      WriteTiny(folder, shapes);
      CHECK(Contains(Refusal(folder.path(), StatusCode::kInvalidModel), name));
    }
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: a tensor of another shape is refused with expected and found") {
    for (const auto& [name, shape] : TinyShapes()) {
      CAPTURE(name);
      TemporaryFolder folder;
      auto shapes = TinyShapes();
      shapes[name].front() += 1;
      WriteTiny(folder, shapes);
      const std::string text = Refusal(folder.path(), StatusCode::kInvalidModel);
      CHECK(Contains(text, name));
      CHECK(Contains(text, "expected shape [" + std::to_string(shape.front())));
      CHECK(Contains(text, "found [" + std::to_string(shape.front() + 1)));
    }
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: a tensor without meaning is refused by name, buffers are passed over") {
    TemporaryFolder folder;
    auto shapes = TinyShapes();
    shapes["model.layers.0.self_attn.rotary_emb.inv_freq"] = {1};
    WriteTiny(folder, shapes);
    Open(folder.path());
    shapes["model.layers.0.self_attn.q_proj.bias"] = {4};
    WriteTiny(folder, shapes);
    CHECK(Contains(Refusal(folder.path(), StatusCode::kUnsupported), "model.layers.0.self_attn.q_proj.bias"));
    shapes.erase("model.layers.0.self_attn.q_proj.bias");
    shapes["model.layers.1.input_layernorm.weight"] = {4};
    WriteTiny(folder, shapes);
    CHECK(Contains(Refusal(folder.path(), StatusCode::kUnsupported), "model.layers.1.input_layernorm.weight"));
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: a tied head that is stored all the same is passed over") {
    TemporaryFolder folder;
    WriteTiny(folder, TinyShapes());
    std::string config = kTinyConfig;
    config.replace(config.find("false"), 5, "true");
    WriteFile(folder / "config.json", config);
    CHECK(Open(folder.path())->info().config.tied_head);
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: names without the prefix model. are read too") {
    TemporaryFolder folder;
    std::map<std::string, std::vector<uint64_t>> shapes;
    for (const auto& [name, shape] : TinyShapes()) shapes[name.starts_with("model.") ? name.substr(6) : name] = shape;
    WriteTiny(folder, shapes);
    Open(folder.path());
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: weights of a type that is not read are refused by name and type") {
    TemporaryFolder folder;
    WriteTiny(folder, {});
    SafetensorsWriter writer;
    for (const auto& [name, shape] : TinyShapes()) {
      const uint64_t count = std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
      if (name == "lm_head.weight") {
        writer.AddBytes(name, "I8", shape, std::string(count, '\0'));
      } else {
        writer.Add(name, shape, std::vector<float>(count));
      }
    }
    WriteFile(folder / "model.safetensors", writer.Bytes());
    const std::string text = Refusal(folder.path(), StatusCode::kUnsupported);
    CHECK(Contains(text, "lm_head.weight"));
    CHECK(Contains(text, "I8"));
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: what is no checkpoint is refused") {
    TemporaryFolder folder;
    CHECK(Contains(Refusal(folder / "absent", StatusCode::kIoError), "absent"));
    CHECK(Contains(Refusal(folder.path(), StatusCode::kIoError), "config.json"));
    WriteFile(folder / "config.json", kTinyConfig);
    CHECK(Contains(Refusal(folder.path(), StatusCode::kIoError), "model.safetensors"));
    WriteTiny(folder, {});
    CHECK(Contains(Refusal(folder.path(), StatusCode::kInvalidModel), "model.embed_tokens.weight"));
  }

  TEST_CASE("ReadRows: rows outside the tensor are refused") {
    TemporaryFolder folder;
    WriteTiny(folder, TinyShapes());
    const auto checkpoint = Open(folder.path());
    const TensorRequirement head = Required(checkpoint->info().config, TensorRole::kHead, -1);
    std::vector<float> out(8);
    CHECK(checkpoint->ReadRows(head, 0, 1, 2, out, nullptr).ok());
    CHECK_FALSE(checkpoint->ReadRows(head, 0, 2, 2, out, nullptr).ok());
    CHECK_FALSE(checkpoint->ReadRows(head, 1, 0, 2, out, nullptr).ok());
    CHECK_FALSE(checkpoint->ReadRows(head, 0, UINT64_MAX, 2, out, nullptr).ok());
    CHECK_FALSE(checkpoint->ReadRows(head, 0, 0, 1, out, nullptr).ok());
  }
}

}  // namespace
}  // namespace linnet::formats
