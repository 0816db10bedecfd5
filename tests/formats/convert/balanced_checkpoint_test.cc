// Keys with outlying channels: scores stay, and an int8 cache keeps them.
#include "formats/convert/balanced_checkpoint.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "formats/convert/convert.h"
#include "formats/linnet/model_file.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/running_model.h"
#include "tests/support/tiny_model.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

constexpr uint32_t kHeads = 4, kKvHeads = 2, kDim = 16, kOutlier = 3;

// The bias of one channel of the first key head of layer 0 is a hundred times what its weights give.
TinyCheckpoint WithOutlier(RopeLayout layout = RopeLayout::kHalfSplit) {
  TinyModelOptions options;
  options.qkv_bias = true;
  ModelConfig config = TinyConfig(options);
  config.ropes[0].layout = layout;
  TinyCheckpoint checkpoint(config);
  checkpoint.SetWeight(TensorRole::kQkvBias, 0, kHeads * kDim + kOutlier, 100.0f);
  return checkpoint;
}

TensorRequirement Tensor(const Checkpoint& checkpoint, TensorRole role, int32_t layer) {
  for (const TensorRequirement& tensor : RequiredTensors(checkpoint.info().config)) {
    if (tensor.role == role && tensor.layer == layer) return tensor;
  }
  FAIL("no such tensor");
  return {};
}

std::vector<float> Rows(const Checkpoint& checkpoint, const TensorRequirement& tensor) {
  const bool is_vector = tensor.rank == 1;
  std::vector<float> rows(tensor.dims[0] * (is_vector ? 1 : tensor.dims[1]));
  REQUIRE(checkpoint.ReadRows(tensor, 0, 0, is_vector ? 1 : tensor.dims[0], rows, nullptr).ok());
  return rows;
}

// Factor of every row of q, k and v, from the bias.
std::vector<float> BiasFactors(const Checkpoint& source, const Checkpoint& balanced, int32_t layer) {
  const TensorRequirement bias = Tensor(source, TensorRole::kQkvBias, layer);
  std::vector<float> factors = Rows(balanced, bias);
  const std::vector<float> before = Rows(source, bias);
  for (size_t i = 0; i < factors.size(); ++i) factors[i] /= before[i];
  return factors;
}

TEST_SUITE("formats") {
  TEST_CASE("BalancedCheckpoint: what keys are divided by, their queries are multiplied with") {
    for (const RopeLayout layout : {RopeLayout::kHalfSplit, RopeLayout::kInterleaved}) {
      const TinyCheckpoint source = WithOutlier(layout);
      const auto balanced = BalancedCheckpoint::Create(source, nullptr);
      REQUIRE(balanced.ok());
      const std::vector<float> factors = BiasFactors(source, *balanced, 0);
      const float* keys = &factors[kHeads * kDim];
      for (uint32_t c = 0; c < kDim; ++c) {
        CAPTURE(c);
        const uint32_t partner = layout == RopeLayout::kHalfSplit ? (c + kDim / 2) % kDim : c ^ 1u;
        CHECK(keys[c] == keys[partner]);  // the rotation mixes them
        CHECK(std::exp2(std::round(std::log2(keys[c]))) == keys[c]);
        CHECK(keys[c] * factors[c] == 1.0f);         // query head 0
        CHECK(keys[c] * factors[kDim + c] == 1.0f);  // and 1 share the key head
        CHECK(keys[kOutlier] <= keys[c]);
        CHECK(factors[2 * kDim + c] == 1.0f);  // the other key head has no outlier
        CHECK(keys[kDim + c] == 1.0f);
      }
      CHECK(keys[kOutlier] <= 0.25f * keys[0]);
      CHECK(
          std::all_of(factors.begin() + (kHeads + kKvHeads) * kDim, factors.end(), [](float f) { return f == 1.0f; }));
      const TensorRequirement weights = Tensor(source, TensorRole::kQkv, 0);
      const std::vector<float> before = Rows(source, weights), after = Rows(*balanced, weights);
      for (size_t i = 0; i < before.size(); ++i) REQUIRE(after[i] == before[i] * factors[i / weights.dims[1]]);
      const std::vector<float> other = BiasFactors(source, *balanced, 1);
      CHECK(std::all_of(other.begin(), other.end(), [](float f) { return f == 1.0f; }));
    }
  }

  TEST_CASE("BalancedCheckpoint: parts of a matrix are those of the whole") {
    const TinyCheckpoint source = WithOutlier();
    const auto balanced = BalancedCheckpoint::Create(source, nullptr);
    REQUIRE(balanced.ok());
    const TensorRequirement weights = Tensor(source, TensorRole::kQkv, 0);
    const std::vector<float> whole = Rows(*balanced, weights);
    const size_t first = kHeads * kDim + 1, columns = weights.dims[1];
    std::vector<float> part(5 * columns);
    REQUIRE(balanced->ReadRows(weights, 0, first, 5, part, nullptr).ok());
    CHECK(std::equal(part.begin(), part.end(), whole.begin() + static_cast<ptrdiff_t>(first * columns)));
  }

  TEST_CASE("Convert: an int8 cache keeps keys with an outlying channel") {
    const TinyCheckpoint source = WithOutlier();
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/m.linnet";
    Diagnostic diagnostic;
    ConvertReport report;
    REQUIRE(Convert(source, BuiltModel::WithType(DType::kF32), path, {}, &report, &diagnostic).ok());
    const auto file = ModelFile::Open(path, &diagnostic);
    REQUIRE(file.ok());
    const std::vector<int32_t> ids = SomeIds(48, source.info().config.vocab_size);
    SessionOptions options;
    options.context_tokens = 64;
    options.kv = SessionOptions::Kv::kF32;
    const std::vector<float> exact = RunningModel(file->view(), options).AllLogits(ids);
    options.kv = SessionOptions::Kv::kInt8;
    const std::vector<float> rounded = RunningModel(file->view(), options).AllLogits(ids);
    double squares = 0.0, errors = 0.0;
    for (size_t i = 0; i < exact.size(); ++i) {
      squares += double{exact[i]} * exact[i];
      errors += (double{rounded[i]} - exact[i]) * (double{rounded[i]} - exact[i]);
    }
    CHECK(std::sqrt(errors / squares) < 0.035);  // 0.024; as the source has the keys, 0.054
  }
}

}  // namespace
}  // namespace linnet::formats
