#include "core/part_runner.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "formats/convert/model_parts.h"
#include "tests/support/running_model.h"
#include "tests/support/tiny_model.h"

namespace linnet {
namespace {

using testing::BuiltModel;
using testing::RunningModel;
using testing::SomeIds;
using testing::TinyConfig;

constexpr uint32_t kWindow = 24;

// The tensors of one layer as those of layer 0, and a row of zeros as the table.
std::vector<TensorView> LayerTensors(const ModelView& model, int32_t layer, const std::vector<float>& zeros) {
  std::vector<TensorView> tensors;
  for (TensorView tensor : model.tensors()) {
    if (tensor.layer != layer) continue;
    tensor.layer = 0;
    tensors.push_back(tensor);
  }
  TensorView table;
  table.rank = 2;
  table.dims = {1, zeros.size(), 0};
  table.data = std::as_bytes(std::span(zeros));
  tensors.push_back(table);
  return tensors;
}

struct Logits {
  size_t width;
  std::vector<float> values;
  static void Take(void* context, size_t first_row, const float* logits, size_t n_rows) {
    auto& self = *static_cast<Logits*>(context);
    std::copy_n(logits, n_rows * self.width, self.values.data() + first_row * self.width);
  }
};

// Embedding, every block and the head, each by itself, over two windows.
std::vector<float> RunInParts(const ModelView& model, std::span<const int32_t> ids) {
  auto pool = ops::ThreadPool::Create(2);
  REQUIRE(pool.ok());
  ExecutorPartRunner runner(*pool);
  const ModelConfig& config = model.config();
  std::vector<float> stream(ids.size() * config.model_dim), zeros(config.model_dim);
  PartRun run;
  run.window = kWindow;
  run.stream = stream;
  run.ids = ids;
  const TensorView table = *model.Find(TensorRole::kTokenEmbedding);
  REQUIRE(runner.Run(formats::EmbeddingPart(config, config.vocab_size), {&table, 1}, run).ok());
  run.ids = {};
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    const auto tensors = LayerTensors(model, static_cast<int32_t>(layer), zeros);
    REQUIRE(runner.Run(formats::BlockPart(config, layer), tensors, run).ok());
  }
  TensorView head = *model.Find(TensorRole::kHead);
  head.role = TensorRole::kTokenEmbedding;
  const std::vector<TensorView> tensors = {*model.Find(TensorRole::kFinalNormGain), head};
  Logits logits = {config.vocab_size, std::vector<float>(ids.size() * config.vocab_size)};
  run.logits = {Logits::Take, &logits};
  REQUIRE(runner.Run(formats::HeadPart(config, config.vocab_size), tensors, run).ok());
  return logits.values;
}

}  // namespace

TEST_SUITE("core") {
  TEST_CASE("PartRunner: parts one by one give the whole model's logits, bit by bit") {
    for (const DType type : {DType::kF32, DType::kQ8, DType::kQ4}) {
      CAPTURE(static_cast<int>(type));
      auto options = BuiltModel::WithType(type);
      options.embedding = options.head = DType::kF32;
      const BuiltModel built(TinyConfig({.n_layers = 3, .window = 7, .n_experts = 4}), options);
      const std::vector<int32_t> ids = SomeIds(2 * kWindow, built.view().config().vocab_size);
      const std::vector<float> logits = RunInParts(built.view(), ids);
      RunningModel whole(built.view(), {.context_tokens = kWindow});
      const size_t width = built.view().config().vocab_size;
      for (size_t window = 0; window < 2; ++window) {
        REQUIRE(whole.session().Rewind(0).ok());
        for (size_t i = 0; i < kWindow; ++i) {
          const size_t row = window * kWindow + i;
          REQUIRE(whole.session().Decode(ids[row]).ok());
          const auto expected = whole.session().logits();
          REQUIRE(std::equal(expected.begin(), expected.end(), logits.begin() + static_cast<ptrdiff_t>(row * width)));
        }
      }
    }
  }

  TEST_CASE("PartRunner: the inputs of every product come once a token, and the run stops when told") {
    const BuiltModel built(TinyConfig({}));
    auto pool = ops::ThreadPool::Create(1);
    REQUIRE(pool.ok());
    ExecutorPartRunner runner(*pool);
    const ModelConfig& config = built.view().config();
    std::vector<float> stream(2 * kWindow * config.model_dim, 0.5f), zeros(config.model_dim);
    const auto tensors = LayerTensors(built.view(), 0, zeros);
    std::vector<size_t> rows(tensors.size());
    PartRun run;
    run.window = kWindow;
    run.stream = stream;
    run.inputs = {[](void* context, size_t tensor, uint32_t, const float*, size_t n) {
                    (*static_cast<std::vector<size_t>*>(context))[tensor] += n;
                  },
                  &rows};
    REQUIRE(runner.Run(formats::BlockPart(config, 0), tensors, run).ok());
    for (size_t i = 0; i + 1 < tensors.size(); ++i) {
      CHECK(rows[i] == (IsLinearRole(tensors[i].role) ? 2 * kWindow : 0));
    }
    run.progress = {[](void*, size_t, size_t) { return false; }, nullptr};
    CHECK(runner.Run(formats::BlockPart(config, 0), tensors, run).code() == StatusCode::kCancelled);
  }
}

}  // namespace linnet
