// Q4_0 is q4's own grid: its integers are handed over as they are.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/float16.h"
#include "core/base/model_view.h"
#include "formats/convert/convert.h"
#include "formats/gguf/checkpoint.h"
#include "formats/linnet/model_file.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

TEST_SUITE_BEGIN("formats/gguf");

namespace linnet::formats {
namespace {

using linnet::testing::TemporaryFolder;
using test::GgufWriter;
using Bytes = GgufWriter::Bytes;

// Random blocks with scales of both signs, as Q4_0's quantizer makes them.
Bytes RandomQ4_0(uint64_t weights, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes;
  for (uint64_t block = 0; block < weights / 32; ++block) {
    const float scale = 0.001f + static_cast<float>(random() % 1000) / 50000.0f;
    GgufWriter::Append(bytes, F16FromF32(random() % 2 == 0 ? scale : -scale));
    for (size_t i = 0; i < 16; ++i) bytes.push_back(static_cast<std::byte>(random() & 0xff));
  }
  return bytes;
}

// A llama of one layer: 64 wide, 2 heads of 32, 1 kv head, ffn 96, 8 tokens; linear layers Q4_0, but for `other`.
Bytes MakeModel(const std::string& other = "", const std::vector<std::pair<size_t, uint16_t>>& scales = {}) {
  GgufWriter writer;
  writer.Set("general.architecture", "llama");
  writer.Set("llama.block_count", uint32_t{1});
  writer.Set("llama.context_length", uint32_t{16});
  writer.Set("llama.embedding_length", uint32_t{64});
  writer.Set("llama.feed_forward_length", uint32_t{96});
  writer.Set("llama.attention.head_count", uint32_t{2});
  writer.Set("llama.attention.head_count_kv", uint32_t{1});
  writer.Set("llama.vocab_size", uint32_t{8});
  writer.Set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  struct Tensor {
    const char* name;
    std::vector<uint64_t> dims;
  };
  const Tensor tensors[] = {
      {"token_embd.weight", {8, 64}},         {"output_norm.weight", {64}},       {"blk.0.attn_norm.weight", {64}},
      {"blk.0.attn_q.weight", {64, 64}},      {"blk.0.attn_k.weight", {32, 64}},  {"blk.0.attn_v.weight", {32, 64}},
      {"blk.0.attn_output.weight", {64, 64}}, {"blk.0.ffn_norm.weight", {64}},    {"blk.0.ffn_gate.weight", {96, 64}},
      {"blk.0.ffn_up.weight", {96, 64}},      {"blk.0.ffn_down.weight", {64, 96}}};
  uint32_t seed = 0;
  for (const Tensor& tensor : tensors) {
    const uint64_t count = tensor.dims[0] * (tensor.dims.size() == 2 ? tensor.dims[1] : 1);
    if (tensor.dims.size() == 1 || tensor.name == other || std::string(tensor.name) == "token_embd.weight") {
      writer.AddF32(tensor.name, tensor.dims, std::vector<float>(count, 0.5f));
      continue;
    }
    Bytes blocks = RandomQ4_0(count, ++seed);
    if (std::string(tensor.name) == "blk.0.ffn_down.weight") {
      for (const auto& [block, bits] : scales) std::memcpy(blocks.data() + block * 18, &bits, 2);
    }
    writer.AddTensor(tensor.name, tensor.dims, kGgmlQ4_0, blocks);
  }
  return writer.Finish();
}

std::unique_ptr<Checkpoint> Open(const Bytes& bytes) {
  Diagnostic diagnostic;
  auto checkpoint = OpenGgufCheckpointFromBytes(bytes, "tiny.gguf", &diagnostic);
  REQUIRE_MESSAGE(checkpoint.ok(), std::string(diagnostic.text()));
  return std::move(checkpoint).value();
}

TensorRequirement Required(const Checkpoint& checkpoint, TensorRole role) {
  for (const TensorRequirement& tensor : RequiredTensors(checkpoint.info().config)) {
    if (tensor.role == role) return tensor;
  }
  FAIL("no such tensor");
  return {};
}

constexpr TensorRole kRoles[] = {TensorRole::kQkv, TensorRole::kAttentionOut, TensorRole::kFfnUp, TensorRole::kFfnDown};

std::vector<float> ReadAll(const Checkpoint& checkpoint, const TensorRequirement& tensor) {
  std::vector<float> values(tensor.dims[0] * tensor.dims[1]);
  REQUIRE(checkpoint.ReadRows(tensor, 0, 0, tensor.dims[0], values, nullptr).ok());
  return values;
}

TEST_CASE("OpenGgufCheckpoint: Q4_0's integers and scales are those of its values, in any run of rows") {
  const Bytes bytes = MakeModel();
  const auto checkpoint = Open(bytes);
  for (const TensorRole role : kRoles) {
    const TensorRequirement tensor = Required(*checkpoint, role);
    REQUIRE(checkpoint->Q4GridBlock(tensor) == 32);
    const std::vector<float> values = ReadAll(*checkpoint, tensor);
    const uint64_t rows = tensor.dims[0], columns = tensor.dims[1];
    for (const uint64_t chunk : {rows, uint64_t{7}}) {
      for (uint64_t begin = 0; begin < rows; begin += chunk) {
        const uint64_t count = std::min(chunk, rows - begin);
        std::vector<uint8_t> levels(count * columns / 2);
        std::vector<float> scales(count * columns / 32);
        REQUIRE(checkpoint->ReadQ4Grid(tensor, 0, begin, count, {levels, scales}, nullptr).ok());
        for (uint64_t i = 0; i < count * columns; ++i) {
          const int level = (i % 2 == 0 ? levels[i / 2] & 15 : levels[i / 2] >> 4) - 8;
          REQUIRE(scales[i / 32] * static_cast<float>(level) == values[begin * columns + i]);
        }
      }
    }
    std::vector<uint8_t> levels(columns / 2);
    std::vector<float> scales(columns / 32);
    CHECK_FALSE(checkpoint->ReadQ4Grid(tensor, 0, rows, 1, {levels, scales}, nullptr).ok());
    CHECK_FALSE(checkpoint->ReadQ4Grid(tensor, 1, 0, 1, {levels, scales}, nullptr).ok());
    CHECK_FALSE(checkpoint->ReadQ4Grid(tensor, 0, 0, 2, {levels, scales}, nullptr).ok());
  }
}

TEST_CASE("OpenGgufCheckpoint: a stack with another type in it is no grid") {
  const Bytes bytes = MakeModel("blk.0.attn_v.weight");
  const auto checkpoint = Open(bytes);
  CHECK(checkpoint->Q4GridBlock(Required(*checkpoint, TensorRole::kQkv)) == 0);
  CHECK(checkpoint->Q4GridBlock(Required(*checkpoint, TensorRole::kTokenEmbedding)) == 0);
  CHECK(checkpoint->Q4GridBlock(Required(*checkpoint, TensorRole::kFfnUp)) == 32);
}

TEST_CASE("Convert: q4 keeps Q4_0's integers, negative scales and blocks of zeros included") {
  const uint16_t zero = 0, negative_zero = 0x8000;
  const Bytes bytes = MakeModel("", {{0, zero}, {4, negative_zero}});
  const auto checkpoint = Open(bytes);
  const TemporaryFolder folder;
  const std::string path = folder / "out.linnet";
  ConvertOptions options;
  options.weights = DType::kQ4;
  ConvertReport report;
  Diagnostic diagnostic;
  const Status status = Convert(*checkpoint, options, path, {}, &report, &diagnostic);
  REQUIRE_MESSAGE(status.ok(), std::string(diagnostic.text()));
  const auto file = ModelFile::Open(path, &diagnostic);
  REQUIRE(file.ok());
  for (const TensorRole role : kRoles) {
    const TensorView* stored = file->view().Find(role, 0);
    REQUIRE(stored != nullptr);
    REQUIRE(stored->dtype == DType::kQ4);
    CHECK(stored->rotation_block == 0);
    const std::vector<float> source = ReadAll(*checkpoint, Required(*checkpoint, role));
    const std::vector<float> kept = linnet::testing::DequantizeTensor(*stored);
    // A scale is rounded once, to 8 bits.
    for (size_t i = 0; i < kept.size(); ++i) REQUIRE(std::abs(kept[i] - source[i]) <= std::abs(source[i]) * 0x1p-8f);
  }
  CHECK(ConvertReportText(report).find("q4/32 kept") != std::string::npos);
  CHECK(ConvertReportJson(report).find("\"kept\":true") != std::string::npos);
}

TEST_CASE("Convert: a Q4_0 scale that is not finite is named") {
  const Bytes bytes = MakeModel("", {{5, 0x7c00}});
  const auto checkpoint = Open(bytes);
  const TemporaryFolder folder;
  ConvertOptions options;
  options.weights = DType::kQ4;
  Diagnostic diagnostic;
  const Status status = Convert(*checkpoint, options, folder / "out.linnet", {}, nullptr, &diagnostic);
  CHECK(status.code() == StatusCode::kInvalidModel);
  const std::string text = diagnostic.text();
  CAPTURE(text);
  CHECK(text.find("ffn.down") != std::string::npos);
  CHECK(text.find("row 1, column 64") != std::string::npos);
}

TEST_CASE("PlanTensors: wider blocks than the grid's, and types other than q4, round the values") {
  const Bytes bytes = MakeModel();
  const auto checkpoint = Open(bytes);
  const TemporaryFolder folder;
  const auto down = [&](const ConvertOptions& options) {
    const std::string path = folder / "out.linnet";
    REQUIRE(Convert(*checkpoint, options, path, {}, nullptr, nullptr).ok());
    auto file = ModelFile::Open(path, nullptr);
    REQUIRE(file.ok());
    const TensorView* tensor = file->view().Find(TensorRole::kAttentionOut, 0);
    return std::pair{tensor->dtype, tensor->rotation_block};
  };
  const auto options = [](DType weights, uint32_t block_size = 32) {
    ConvertOptions chosen;
    chosen.weights = weights;
    chosen.block_size = block_size;
    return chosen;
  };
  CHECK(down({}) == std::pair{DType::kQ8, uint32_t{64}});  // a small model, automatic
  CHECK(down(options(DType::kQ8)) == std::pair{DType::kQ8, uint32_t{64}});
  CHECK(down(options(DType::kQ4)) == std::pair{DType::kQ4, uint32_t{0}});
  CHECK(down(options(DType::kQ4, 64)) == std::pair{DType::kQ4, uint32_t{64}});
  CHECK(down(options(DType::kF32)) == std::pair{DType::kF32, uint32_t{0}});
}

}  // namespace
}  // namespace linnet::formats

TEST_SUITE_END();
