// The residual stream that a trace writes is transformers' own.
#include "core/trace.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/golden/golden.h"
#include "tests/support/running_model.h"

namespace linnet {

TEST_SUITE("golden") {
  TEST_CASE("TraceStream: every golden's hidden_states, in one chunk and in several") {
    for (const std::filesystem::path& folder : testing::AllGoldens()) {
      const std::string name = folder.filename().string();
      SUBCASE(name.c_str()) {
        const testing::Golden golden(folder);
        const auto ids = golden.Values<int32_t>("input_ids");
        const formats::ModelFile file = testing::ConvertGolden(folder, false, DType::kF32);
        const ModelConfig& config = file.config();
        const size_t layers = config.n_layers * ids.size(), entries = layers + ids.size();
        for (const uint32_t chunk : {64u, 7u}) {
          CAPTURE(chunk);
          testing::RunningModel model(file.view(), {.context_tokens = 64, .chunk_tokens = chunk});
          std::vector<float> stream(entries * config.model_dim), norms(entries), attention(layers), ffn(layers);
          REQUIRE(TraceStream(model.session(), config, ids, {stream, norms, attention, ffn}).ok());
          CHECK(testing::LargestDifference(stream, golden.Values<float>("hidden_states")) <= testing::kGoldenTolerance);
          // What the head reads from the last layer's last row is the golden's last row of logits.
          std::vector<LensToken> top(3);
          REQUIRE(ReadLens(model.session(), std::span(stream).last(config.model_dim), top).ok());
          const auto logits = golden.Values<float>("logits");
          const auto lens = model.session().logits();
          CHECK(testing::LargestDifference({lens.begin(), lens.end()}, {logits.end() - lens.size(), logits.end()}) <=
                testing::kGoldenTolerance);
        }
      }
    }
  }
}

}  // namespace linnet
