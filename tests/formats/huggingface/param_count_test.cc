// Full-size published configs: the tensors that their descriptions ask for hold exactly the published parameter counts.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/base/model_view.h"
#include "formats/huggingface/config.h"
#include "tests/platforms/temporary_folder.h"

namespace linnet::formats {
namespace {

using linnet::testing::ReadFile;

uint64_t CountElements(const ModelConfig& config, TensorRole only = TensorRole::kSharedGate, bool all = true) {
  uint64_t count = 0;
  for (const TensorRequirement& tensor : RequiredTensors(config)) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor.rank; ++i) elements *= tensor.dims[i];
    if (all || tensor.role == only) count += elements;
  }
  return count;
}

TEST_SUITE("huggingface") {
  TEST_CASE("ReadHuggingFaceConfig: published configs ask for exactly the published number of parameters") {
    const std::string text = ReadFile(std::string(LINNET_SHARED_DIR) + "/golden/param_counts.json");
    const auto document = nlohmann::json::parse(text, nullptr, false);
    if (!document.is_object()) {
      MESSAGE("skipped: no param_counts.json in " LINNET_SHARED_DIR);
      return;
    }
    for (const auto& model : document["models"]) {
      const std::string name = model["name"];
      CAPTURE(name);
      Diagnostic diagnostic;
      const auto config = ReadHuggingFaceConfig(model["config"].dump(), &diagnostic);
      REQUIRE_MESSAGE(config.ok(), std::string(diagnostic.text()));
      const uint64_t selection_bias = CountElements(*config, TensorRole::kRouterSelectionBias, false);
      CHECK(CountElements(*config) - selection_bias == model["total_params"].get<uint64_t>());
      CHECK(selection_bias == model.value("router_correction_bias_values", uint64_t{0}));
      CHECK(CountElements(*config, TensorRole::kTokenEmbedding, false) ==
            model["token_embedding_params"].get<uint64_t>());
      CHECK(CountElements(*config, TensorRole::kHead, false) == model["output_head_params"].get<uint64_t>());
    }
  }
}

}  // namespace
}  // namespace linnet::formats
