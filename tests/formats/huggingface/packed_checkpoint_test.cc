// GPTQ and AWQ checkpoints against values computed from their definition.
#include "tests/formats/huggingface/packed_checkpoint.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "core/base/model_view.h"
#include "formats/convert/convert.h"
#include "formats/huggingface/checkpoint.h"
#include "formats/linnet/model_file.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace linnet::formats {
namespace {

using linnet::testing::PackedCheckpoint;
using linnet::testing::PackedLayer;
using linnet::testing::PackedOptions;
using linnet::testing::TemporaryFolder;
using Tensors = std::map<std::string, PackedCheckpoint::Stored>;

struct Opened {
  explicit Opened(const PackedOptions& options) : packed(options), tensors(packed.Tensors()) { Reopen(); }
  void Reopen() {
    packed.Write(folder, tensors);
    Diagnostic diagnostic;
    auto result = OpenHuggingFaceCheckpoint(folder.path(), &diagnostic);
    REQUIRE_MESSAGE(result.ok(), std::string(diagnostic.text()));
    checkpoint = std::move(result).value();
  }
  TensorRequirement Required(TensorRole role) const {
    for (const TensorRequirement& tensor : RequiredTensors(checkpoint->info().config)) {
      if (tensor.role == role) return tensor;
    }
    FAIL("no such tensor");
    return {};
  }
  /// The layers behind a role, in the order of its rows.
  std::vector<const PackedLayer*> Layers(TensorRole role) const {
    std::vector<const char*> names;
    if (role == TensorRole::kQkv) names = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    if (role == TensorRole::kAttentionOut) names = {"self_attn.o_proj"};
    if (role == TensorRole::kFfnUp) names = {"mlp.gate_proj", "mlp.up_proj"};
    if (role == TensorRole::kFfnDown) names = {"mlp.down_proj"};
    std::vector<const PackedLayer*> layers;
    for (const char* name : names) layers.push_back(&packed.layers.at(std::string("model.layers.0.") + name));
    return layers;
  }
  std::vector<float> Expected(TensorRole role) const {
    std::vector<float> values;
    for (const PackedLayer* layer : Layers(role)) {
      for (uint32_t n = 0; n < layer->rows; ++n) {
        for (uint32_t k = 0; k < layer->columns; ++k) values.push_back(layer->Weight(n, k));
      }
    }
    return values;
  }
  std::vector<float> Read(TensorRole role, uint64_t chunk) const {
    const TensorRequirement tensor = Required(role);
    std::vector<float> values(tensor.dims[0] * tensor.dims[1]);
    for (uint64_t row = 0; row < tensor.dims[0]; row += chunk) {
      const uint64_t count = std::min(chunk, tensor.dims[0] - row);
      const auto out = std::span(values).subspan(row * tensor.dims[1], count * tensor.dims[1]);
      REQUIRE(checkpoint->ReadRows(tensor, 0, row, count, out, nullptr).ok());
    }
    return values;
  }

  TemporaryFolder folder;
  PackedCheckpoint packed;
  Tensors tensors;
  std::unique_ptr<Checkpoint> checkpoint;
};

constexpr TensorRole kRoles[] = {TensorRole::kQkv, TensorRole::kAttentionOut, TensorRole::kFfnUp, TensorRole::kFfnDown};

/// Opens the checkpoint after `change` and returns the refusal's line.
std::string Refusal(const PackedOptions& options, StatusCode code,
                    const std::function<void(PackedCheckpoint&, Tensors&)>& change) {
  TemporaryFolder folder;
  PackedCheckpoint packed(options);
  Tensors tensors = packed.Tensors();
  change(packed, tensors);
  packed.Write(folder, tensors);
  Diagnostic diagnostic;
  const auto result = OpenHuggingFaceCheckpoint(folder.path(), &diagnostic);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == code);
  return diagnostic.text();
}

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_SUITE("huggingface") {
  TEST_CASE("OpenHuggingFaceCheckpoint: packed layers have the values of their definition") {
    PackedOptions options;
    SUBCASE("GPTQ") {}
    SUBCASE("GPTQ, second format") { options.second_format = true; }
    SUBCASE("GPTQ, zero points of all values") { options.symmetric = false; }
    SUBCASE("GPTQ, second format, zero points") { options.symmetric = false, options.second_format = true; }
    SUBCASE("GPTQ, act order") { options.symmetric = false, options.act_order = true; }
    SUBCASE("GPTQ, 8 bits") { options.bits = 8, options.symmetric = false; }
    SUBCASE("GPTQ, 2 bits") { options.bits = 2, options.symmetric = false; }
    SUBCASE("GPTQ, whole rows") { options.group_size = 0; }
    SUBCASE("GPTQ, groups wider than the rows") { options.group_size = 128; }
    SUBCASE("GPTQ, groups that do not divide the width") { options.group_size = 40; }
    SUBCASE("GPTQ without index") { options.with_index = false, options.group_size = 64; }
    SUBCASE("AWQ") { options.awq = true; }
    SUBCASE("AWQ, zero points") { options.awq = true, options.symmetric = false; }
    const Opened opened(options);
    for (const TensorRole role : kRoles) {
      CAPTURE(std::string(TensorRoleName(role)));
      const std::vector<float> expected = opened.Expected(role);
      CHECK(opened.Read(role, 1000) == expected);
      CHECK(opened.Read(role, 5) == expected);
      opened.checkpoint->Release(opened.Required(role));
    }
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: reports how packed layers are stored") {
    const Opened gptq({.group_size = 32});
    const SourceType type = gptq.checkpoint->TypeOf(gptq.Required(TensorRole::kQkv));
    CHECK(std::string(type.name) == "GPTQ4");
    CHECK(type.bits_per_weight == 4.0 + 20.0 / 32);
    const Opened awq({.awq = true});
    CHECK(std::string(awq.checkpoint->TypeOf(awq.Required(TensorRole::kFfnDown)).name) == "AWQ4");
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: a symmetric grid is handed over as it is") {
    PackedOptions options;
    uint32_t block = 32;
    SUBCASE("GPTQ") {}
    SUBCASE("GPTQ, second format") { options.second_format = true; }
    SUBCASE("GPTQ, groups of 32 of whole rows of 64 and 96") { options.group_size = 0; }
    SUBCASE("AWQ") { options.awq = true; }
    const Opened opened(options);
    for (const TensorRole role : kRoles) {
      CAPTURE(std::string(TensorRoleName(role)));
      const TensorRequirement tensor = opened.Required(role);
      // Whole rows of 64 are blocks of 64; of 96, of 32.
      const bool wide = options.group_size == 0 && tensor.dims[1] == 64;
      CHECK(opened.checkpoint->Q4GridBlock(tensor) == (wide ? 64 : block));
      const uint32_t width = wide ? 64 : block;
      const uint64_t rows = tensor.dims[0], columns = tensor.dims[1];
      std::vector<uint8_t> levels(rows * columns / 2);
      std::vector<float> scales(rows * columns / width);
      REQUIRE(opened.checkpoint->ReadQ4Grid(tensor, 0, 0, rows, {levels, scales}, nullptr).ok());
      const std::vector<float> expected = opened.Expected(role);
      for (uint64_t i = 0; i < rows * columns; ++i) {
        const int level = (i % 2 == 0 ? levels[i / 2] & 15 : levels[i / 2] >> 4) - 8;
        REQUIRE(scales[i / width] * static_cast<float>(level) == expected[i]);
      }
    }
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: what q4 cannot hold is no grid") {
    const auto block = [](const PackedOptions& options) {
      const Opened opened(options);
      return opened.checkpoint->Q4GridBlock(opened.Required(TensorRole::kFfnUp));
    };
    CHECK(block({.symmetric = false}) == 0);
    CHECK(block({.awq = true, .symmetric = false}) == 0);
    CHECK(block({.bits = 8}) == 0);
    CHECK(block({.group_size = 16}) == 0);
    CHECK(block({.group_size = 40}) == 0);
    CHECK(block({.act_order = true}) == 0);
  }

  TEST_CASE("Convert: q4 keeps the integers of a packed checkpoint and rounds its scales once") {
    for (const bool awq : {false, true}) {
      CAPTURE(awq);
      const Opened opened({.awq = awq});
      ConvertOptions options;
      options.weights = DType::kQ4;
      ConvertReport report;
      Diagnostic diagnostic;
      const std::string path = opened.folder / "out.linnet";
      const Status status = Convert(*opened.checkpoint, options, path, {}, &report, &diagnostic);
      REQUIRE_MESSAGE(status.ok(), std::string(diagnostic.text()));
      const auto file = ModelFile::Open(path, &diagnostic);
      REQUIRE(file.ok());
      for (const TensorRole role : kRoles) {
        const TensorView* tensor = file->view().Find(role, 0);
        REQUIRE(tensor != nullptr);
        CHECK(tensor->dtype == DType::kQ4);
        CHECK(tensor->block_size == 32);
        CHECK(tensor->rotation_block == 0);
        const std::vector<float> stored = linnet::testing::DequantizeTensor(*tensor), source = opened.Expected(role);
        for (size_t i = 0; i < stored.size(); ++i) {
          REQUIRE(std::abs(stored[i] - source[i]) <= std::abs(source[i]) * 0x1p-8f);
        }
      }
      REQUIRE(report.groups.size() >= 1);
      const auto kept = std::find_if(report.groups.begin(), report.groups.end(), [](auto& g) { return g.kept; });
      REQUIRE(kept != report.groups.end());
      CHECK(kept->tensors == 4);
      CHECK(kept->relative_rms_error < 0x1p-8);
      CHECK(report.rounded_again == 0);
    }
  }

  TEST_CASE("Convert: grids that q4 cannot hold become q8, and the report says so") {
    const Opened opened({.awq = true, .symmetric = false});
    ConvertReport report;
    const std::string path = opened.folder / "out.linnet";
    REQUIRE(Convert(*opened.checkpoint, {}, path, {}, &report, nullptr).ok());
    CHECK(report.widened == 4);
    CHECK(report.rounded_again == 0);
    ConvertOptions options;
    options.weights = DType::kQ4;
    REQUIRE(Convert(*opened.checkpoint, options, path, {}, &report, nullptr).ok());
    CHECK(report.rounded_again == 4);
    CHECK(Contains(ConvertReportText(report), "on another grid and were rounded again: 4"));
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: a bias of zeros beside a packed layer is passed over, another is not") {
    Opened opened({});
    opened.tensors["model.layers.0.mlp.up_proj.bias"] = {"F16", {96}, std::string(192, '\0')};
    opened.Reopen();
    CHECK(opened.Read(TensorRole::kFfnUp, 1000) == opened.Expected(TensorRole::kFfnUp));
    const std::string text = Refusal({}, StatusCode::kUnsupported, [](PackedCheckpoint&, Tensors& tensors) {
      tensors["model.layers.0.mlp.up_proj.bias"] = {"F16", {96}, std::string(192, '\1')};
    });
    CHECK(Contains(text, "up_proj.bias"));
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: malformed packed layers are refused by name") {
    const std::string layer = "model.layers.0.self_attn.k_proj.";
    const auto refused = [&](const std::string& part, const std::function<void(Tensors&)>& change,
                             const PackedOptions& options = {}) {
      const std::string text =
          Refusal(options, StatusCode::kInvalidModel, [&](PackedCheckpoint&, Tensors& tensors) { change(tensors); });
      CAPTURE(text);
      CHECK(Contains(text, part));
      CHECK(Contains(text, "k_proj"));
    };
    const auto resize = [&](const char* name, std::vector<uint64_t> shape, uint64_t bytes) {
      return [=](Tensors& tensors) {
        tensors[layer + name].shape = shape;
        tensors[layer + name].bytes.resize(bytes);
      };
    };
    refused("qzeros is missing", [&](Tensors& tensors) { tensors.erase(layer + "qzeros"); });
    refused("scales is missing", [&](Tensors& tensors) { tensors.erase(layer + "scales"); });
    refused("expected I32 [8, 32], found I32 [7, 32]", resize("qweight", {7, 32}, 7 * 32 * 4));
    refused("expected I32 [2, 4], found I32 [4, 2]", resize("qzeros", {4, 2}, 32));
    refused("expected F16, BF16 or F32 [2, 32], found F16 [1, 32]", resize("scales", {1, 32}, 64));
    refused("expected I32 [64], found I32 [63]", resize("g_idx", {63}, 63 * 4));
    refused("found I32 [32, 8]", resize("qweight", {32, 8}, 32 * 8 * 4), {.awq = true});
    refused("found F32 [8, 32]", [&](Tensors& tensors) { tensors[layer + "qweight"].type = "F32"; });
    refused("expected groups below 2, found 2 for column 5",
            [&](Tensors& tensors) { tensors[layer + "g_idx"].bytes[5 * 4] = 2; });
    refused("expected groups below 2, found -1 for column 6",
            [&](Tensors& tensors) { tensors[layer + "g_idx"].bytes.replace(6 * 4, 4, 4, '\xff'); });
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: methods and layouts that are not known are refused by name") {
    const auto refused = [](const PackedOptions& options, const char* key, const nlohmann::json& value,
                            const std::string& part) {
      const std::string text = Refusal(options, StatusCode::kUnsupported, [&](PackedCheckpoint& packed, Tensors&) {
        packed.config["quantization_config"][key] = value;
      });
      CAPTURE(text);
      CHECK(Contains(text, part));
    };
    refused({}, "quant_method", "bitsandbytes", "quantization_config.quant_method \"bitsandbytes\" is not supported");
    refused({}, "quant_method", nullptr, "quantization_config.quant_method");
    refused({}, "bits", 3, "quantization_config.bits 3 is not supported");
    refused({.awq = true}, "bits", 8, "quantization_config.bits 8 is not supported");
    refused({}, "checkpoint_format", "marlin", "quantization_config.checkpoint_format \"marlin\"");
    refused({.awq = true}, "version", "gemv", "quantization_config.version \"gemv\"");
    refused({}, "dynamic", {{"-:.*mlp.*", nlohmann::json::object()}}, "quantization_config.dynamic");
    refused({}, "rotation", "hadamard", "quantization_config.rotation \"hadamard\" is not known");
  }

  TEST_CASE("OpenHuggingFaceCheckpoint: a group size out of range is refused") {
    for (const nlohmann::json& value :
         {nlohmann::json(0), nlohmann::json(-2), nlohmann::json(1e12), nlohmann::json("x")}) {
      CAPTURE(value.dump());
      const std::string text = Refusal({}, StatusCode::kInvalidModel, [&](PackedCheckpoint& packed, Tensors&) {
        packed.config["quantization_config"]["group_size"] = value;
      });
      CHECK(Contains(text, "quantization_config.group_size"));
    }
  }
}

}  // namespace
}  // namespace linnet::formats
