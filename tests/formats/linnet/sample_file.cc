#include "tests/formats/linnet/sample_file.h"

#include <doctest/doctest.h>

#include "core/base/float16.h"
#include "formats/linnet/model_file_writer.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace linnet::testing {

using formats::ModelContent;
using formats::TensorSpec;

namespace {

// One layer of each kind; the widths allow q4.
ModelConfig SampleConfig() {
  TinyModelOptions options;
  options.n_layers = 3;
  options.vocab_size = 40;
  options.qkv_bias = true;
  options.qk_norm = QkNorm::kPerHead;
  options.window = 16;
  ModelConfig config = TinyConfig(options);
  config.ropes[0].scaling = RopeScaling::kLongRope;
  config.ropes[0].original_context_length = 64;
  config.ropes[0].short_factors.assign(8, 1.25f);
  config.ropes[0].long_factors.assign(8, 3.5f);
  RopeSpec latent_rope;
  latent_rope.rope_dim = 32;
  latent_rope.layout = RopeLayout::kInterleaved;
  config.ropes.push_back(latent_rope);

  BlockSpec block = config.blocks[0];
  AttentionSpec& attention = block.attention;
  attention = {};
  attention.kind = AttentionKind::kLatent;
  attention.n_heads = attention.n_kv_heads = 2;
  attention.head_dim = 64;
  attention.value_dim = 32;
  attention.score_scale = 0.125f;
  attention.rope = 1;
  attention.q_lora_rank = 32;
  attention.kv_lora_rank = 64;
  attention.latent_norm = block.norm;
  block.ffn.n_experts = 4;
  block.ffn.top_k = 2;
  block.ffn.ffn_dim = 32;
  block.ffn.router_score = RouterScore::kSigmoid;
  block.ffn.selection_bias = true;
  block.ffn.n_groups = 2;
  block.ffn.routed_scale = 2.5f;
  block.ffn.shared_ffn_dim = 64;
  config.layer_block[2] = InternBlock(config, block);
  REQUIRE(std::string(ValidateModelConfig(config).message()) == "");
  return config;
}

}  // namespace

ModelContent SampleContent() {
  ModelContent content;
  content.config = SampleConfig();
  content.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}";
  content.license = "A licence\nof two lines";
  content.name = "sample \xc3\xa4";
  content.generation = {1, true, {2, 7}, 0.6f, 40, 0.95f, 1.1f};
  content.provenance.converter = "linnet test";
  content.provenance.sources = {{"config.json", 17, {1, 2, 3}}, {"model.safetensors", 5'000'000'000, {4, 5, 6}}};
  content.provenance.source_types = {{"BF16", 30, 123456}, {"F32", 10, 640}};
  content.goldens = {{{1, 5, 9}, 2, {3, 4, 5, 6, 7, 8}, {1.5f, 1.0f, 0.5f, 0.25f, -1.0f, -2.0f}}};
  return content;
}

std::vector<TensorSpec> SampleSpecs(const ModelConfig& config) {
  std::vector<TensorSpec> specs;
  size_t linear = 0;
  constexpr DType kTypes[] = {DType::kQ4, DType::kQ8, DType::kF16, DType::kBF16, DType::kF32};
  for (const TensorRequirement& tensor : RequiredTensors(config)) {
    TensorSpec spec;
    spec.role = tensor.role;
    spec.layer = tensor.layer;
    spec.rank = tensor.rank;
    spec.dims = tensor.dims;
    if (!tensor.must_be_f32) spec.dtype = kTypes[linear++ % std::size(kTypes)];
    if (spec.dtype == DType::kQ4) spec.block_size = 32;
    if (IsQuantized(spec.dtype)) spec.rotation_block = 32;
    specs.push_back(spec);
  }
  return specs;
}

std::vector<std::byte> SampleData(const TensorSpec& spec, uint64_t size_bytes, size_t index) {
  std::vector<std::byte> bytes(size_bytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i * 31 + index * 7) & 0x3f);
  if (spec.dtype != DType::kF32) return bytes;
  for (size_t i = 0; i < bytes.size() / 4; ++i) {
    const float value = static_cast<float>(i % 17) * 0.25f - 1.0f;
    std::memcpy(&bytes[4 * i], &value, 4);
  }
  return bytes;
}

std::vector<std::byte> SampleScales(const TensorSpec& spec, uint64_t size_bytes, size_t index) {
  std::vector<std::byte> bytes(size_bytes);
  const float value = 0.5f + static_cast<float>(index % 4);
  const uint16_t half = BF16FromF32(value);
  for (size_t i = 0; i + 2 <= bytes.size() && spec.dtype == DType::kQ4; i += 2) std::memcpy(&bytes[i], &half, 2);
  for (size_t i = 0; i + 4 <= bytes.size() && spec.dtype == DType::kQ8; i += 4) std::memcpy(&bytes[i], &value, 4);
  return bytes;
}

void WriteSample(const std::string& path, const ModelContent& content) {
  const std::vector<TensorSpec> specs = SampleSpecs(content.config);
  Diagnostic diagnostic;
  auto writer = formats::ModelFileWriter::Create(path, specs, &diagnostic);
  REQUIRE_MESSAGE(writer.ok(), diagnostic.text());
  for (size_t i = 0; i < specs.size(); ++i) {
    const formats::TensorPlace& place = writer->layout().places[i];
    writer->BeginTensor(i);
    REQUIRE(writer->WriteScales(SampleScales(specs[i], place.scales_bytes, i), &diagnostic).ok());
    REQUIRE(writer->WriteData(SampleData(specs[i], place.data_bytes, i), &diagnostic).ok());
  }
  const Status status = writer->Finish(content, &diagnostic);
  REQUIRE_MESSAGE(status.ok(), diagnostic.text());
}

AlignedBytes SampleBytes() {
  const TemporaryFolder folder;
  WriteSample(folder / "sample.linnet", SampleContent());
  const std::string bytes = ReadFile(folder / "sample.linnet");
  return AlignedBytes(std::as_bytes(std::span(bytes)));
}

}  // namespace linnet::testing
