// Every golden that GGUF has an architecture for: written as llama.cpp's converter would, converted with f32 weights
// and run, it gives transformers' own logits.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "formats/gguf/checkpoint.h"
#include "formats/huggingface/checkpoint.h"
#include "tests/golden/golden.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/gguf_goldens.h"
#include "tests/support/reference_model.h"
#include "tests/support/running_model.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using testing::Golden;
using testing::LargestDifference;
using testing::RunningModel;

formats::ModelFile ConvertThroughGguf(const formats::Checkpoint& source, const test::GgufGolden& golden) {
  const testing::TemporaryFolder temporary;
  const std::string path = temporary / "model.gguf";
  const std::vector<std::byte> bytes = test::GgufFromCheckpoint(source, golden.architecture, golden.variant);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  Diagnostic diagnostic;
  const auto checkpoint = formats::OpenGgufCheckpoint(path, &diagnostic);
  REQUIRE_MESSAGE(checkpoint.ok(), std::string(diagnostic.text()));
  return testing::ConvertTo(DType::kF32, **checkpoint);
}

std::vector<float> ReferenceLogits(const ModelView& model, std::span<const int32_t> ids) {
  const auto result = testing::RunReference(model.config(), testing::WeightsOf(model), ids);
  return {result.logits.begin(), result.logits.end()};
}

}  // namespace

TEST_SUITE("golden") {
  TEST_CASE("GGUF: every golden's logits come out of its GGUF file") {
    if (testing::AllGoldens().empty()) return;
    for (const test::GgufGolden& golden : test::kGgufGoldens) {
      const std::string name = std::string(golden.folder) + " as " + golden.architecture +
                               (golden.variant.absorbed_latent ? "" : ", whole kv_b") +
                               (golden.variant.one_tensor_experts ? "" : ", a tensor for each expert");
      SUBCASE(name.c_str()) {
        const fs::path folder = fs::path(LINNET_SHARED_DIR) / "golden" / golden.folder;
        const auto source = formats::OpenHuggingFaceCheckpoint(folder.string(), nullptr);
        REQUIRE(source.ok());
        const formats::ModelFile file = ConvertThroughGguf(**source, golden);
        const Golden expected(folder);
        const auto ids = expected.Values<int32_t>("input_ids");
        RunningModel model(file.view(), {.context_tokens = 64, .chunk_tokens = 64, .logit_rows = 64});
        // The format has no key for SmolLM3's layers without rotation: every fourth in a GGUF file, every second in the
        // golden. So this one is held against the plain reference of what the file says.
        const bool other_layers = std::string(golden.folder) == "smollm3";
        const std::vector<float> logits =
            other_layers ? ReferenceLogits(file.view(), ids) : expected.Values<float>("logits");
        CHECK(LargestDifference(model.AllLogits(ids), logits) <= testing::kGoldenTolerance);
      }
    }
  }
}

}  // namespace linnet
