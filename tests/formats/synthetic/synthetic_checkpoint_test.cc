#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "formats/convert/convert.h"
#include "formats/linnet/model_file.h"
#include "formats/synthetic/checkpoint.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

ModelConfig WideConfig() {
  TinyModelOptions options;
  options.vocab_size = 3000;
  options.model_dim = 256;
  options.n_heads = 4;
  options.n_kv_heads = 2;
  options.head_dim = 64;
  options.ffn_dim = 512;
  options.n_experts = 3;
  options.qkv_bias = true;
  return TinyConfig(options);
}

std::unique_ptr<Checkpoint> Make(const ModelConfig& config, uint64_t seed) {
  return MakeSyntheticCheckpoint(config, {.seed = seed, .name = "random", .files = {}});
}

uint64_t Columns(const TensorRequirement& tensor) { return tensor.dims[tensor.rank - 1]; }
uint64_t Rows(const TensorRequirement& tensor) { return tensor.rank == 1 ? 1 : tensor.dims[tensor.rank - 2]; }

std::vector<float> Read(const Checkpoint& checkpoint, const TensorRequirement& tensor, uint64_t group, uint64_t row,
                        uint64_t count) {
  std::vector<float> values(count * Columns(tensor));
  REQUIRE(checkpoint.ReadRows(tensor, group, row, count, values, nullptr).ok());
  return values;
}

struct Moments {
  double mean = 0.0, deviation = 0.0;
};

Moments MomentsOf(const std::vector<float>& values) {
  double sum = 0.0, squares = 0.0;
  for (const float value : values) sum += value, squares += double{value} * value;
  const double mean = sum / static_cast<double>(values.size());
  return {mean, std::sqrt(squares / static_cast<double>(values.size()) - mean * mean)};
}

TEST_SUITE("formats") {
  TEST_CASE("SyntheticCheckpoint: matrices are normal with 1 / sqrt(columns), gains multiply by one, biases are zero") {
    ModelConfig config = WideConfig();
    SUBCASE("gain as stored") {}
    SUBCASE("1 + gain") { config.blocks[0].norm.gain_plus_one = true; }
    const auto checkpoint = Make(config, 1);
    for (const TensorRequirement& tensor : RequiredTensors(config)) {
      CAPTURE(std::string(TensorRoleName(tensor.role)));
      const std::vector<float> values = Read(*checkpoint, tensor, 0, 0, Rows(tensor));
      const Moments moments = MomentsOf(values);
      if (tensor.rank == 1) {
        const bool is_gain = std::string(TensorRoleName(tensor.role)).ends_with("gain");
        const bool plus_one = is_gain && tensor.layer >= 0 && config.blocks[0].norm.gain_plus_one;
        CHECK(moments.mean == (is_gain && !plus_one ? 1.0 : 0.0));
        CHECK(moments.deviation == 0.0);
        continue;
      }
      // Five standard errors of the mean and of the deviation.
      const double n = static_cast<double>(values.size());
      const double wanted = 1.0 / std::sqrt(static_cast<double>(Columns(tensor)));
      CHECK(std::abs(moments.mean) < 5.0 * wanted / std::sqrt(n));
      CHECK(std::abs(moments.deviation - wanted) < 5.0 * wanted / std::sqrt(2.0 * n));
    }
  }

  TEST_CASE("SyntheticCheckpoint: a weight depends on seed, tensor and place only") {
    const ModelConfig config = WideConfig();
    const auto checkpoint = Make(config, 1);
    std::vector<std::vector<float>> first_rows;
    for (const TensorRequirement& tensor : RequiredTensors(config)) {
      if (tensor.rank == 1) continue;
      const uint64_t group = tensor.rank == 3 ? 1 : 0;
      const std::vector<float> whole = Read(*checkpoint, tensor, group, 0, Rows(tensor));
      const std::vector<float> last = Read(*checkpoint, tensor, group, Rows(tensor) - 1, 1);
      CHECK(std::equal(last.rbegin(), last.rend(), whole.rbegin()));
      CHECK(Read(*Make(config, 1), tensor, group, 0, 1) == Read(*checkpoint, tensor, group, 0, 1));
      CHECK(Read(*Make(config, 2), tensor, group, 0, 1) != Read(*checkpoint, tensor, group, 0, 1));
      if (tensor.rank == 3) CHECK(Read(*checkpoint, tensor, 0, 0, 1) != Read(*checkpoint, tensor, 1, 0, 1));
      // No two tensors begin alike: not of one width but another role, nor of one role in another layer.
      std::vector<float> start = Read(*checkpoint, tensor, 0, 0, 1);
      for (float& value : start) value *= std::sqrt(static_cast<float>(Columns(tensor)));
      start.resize(32);
      for (const auto& other : first_rows) CHECK(other != start);
      first_rows.push_back(start);
    }
  }

  TEST_CASE("SyntheticCheckpoint: converts; the file opens and has its provenance") {
    const ModelConfig config = WideConfig();
    const TemporaryFolder folder;
    ConvertOptions options;
    options.weights = DType::kQ4;
    Diagnostic diagnostic;
    const Status status = Convert(*Make(config, 1), options, folder / "a", {}, nullptr, &diagnostic);
    REQUIRE_MESSAGE(status.ok(), diagnostic.text());
    auto file = ModelFile::Open(folder / "a", &diagnostic);
    REQUIRE_MESSAGE(file.ok(), diagnostic.text());
    CHECK(file->CheckContent(&diagnostic).ok());
    CHECK(file->config() == config);
    CHECK(file->name() == "random");
    REQUIRE(file->provenance().source_types.size() == 1);
    CHECK(file->provenance().source_types[0].name == "random");
  }
}

}  // namespace
}  // namespace linnet::formats
