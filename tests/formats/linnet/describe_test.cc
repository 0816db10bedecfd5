#include "formats/linnet/describe.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/formats/linnet/sample_file.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

TEST_SUITE("formats") {
  TEST_CASE("DescribeModelJson: gives a line for the model and one for every tensor") {
    const AlignedBytes bytes = SampleBytes();
    const auto file = ModelFile::FromBytes(bytes.span(), nullptr);
    REQUIRE(file.ok());
    std::istringstream lines(DescribeModelJson(*file));
    std::string line;
    REQUIRE(std::getline(lines, line));
    const auto model = nlohmann::json::parse(line);
    CHECK(model["record"] == "model");
    CHECK(model["name"] == "sample \xc3\xa4");
    CHECK(model["file_bytes"] == bytes.span().size());
    CHECK(model["config"]["n_layers"] == 3);
    CHECK(model["config"]["blocks"].size() == 3);
    CHECK(model["config"]["blocks"][2]["ffn"]["n_experts"] == 4);
    CHECK(model["config"]["ropes"][0]["scaling"] == "longrope");
    CHECK(model["provenance"]["sources"][1]["size_bytes"] == 5'000'000'000);
    uint64_t n_tensors = 0, weight_bytes = 0;
    while (std::getline(lines, line)) {
      const auto tensor = nlohmann::json::parse(line);
      CHECK(tensor["record"] == "tensor");
      weight_bytes += tensor["data_bytes"].get<uint64_t>() + tensor.value("scales_bytes", uint64_t{0});
      ++n_tensors;
    }
    CHECK(n_tensors == file->view().tensors().size());
    CHECK(weight_bytes == file->weight_bytes());
  }

  TEST_CASE("DescribeModel: names blocks, tensors, types and sources, without control characters of the file") {
    const AlignedBytes bytes = SampleBytes();
    const auto file = ModelFile::FromBytes(bytes.span(), nullptr);
    REQUIRE(file.ok());
    const std::string text = DescribeModel(*file, {});
    CAPTURE(text);
    for (const char* part :
         {"pre RMSNorm; GQA 4/2 heads of 16, qkv bias, QK-norm per_head, RoPE 16 theta 10000", "SwiGLU 128",
          "MLA 2 heads, latent 64", "2 of 4 experts, sigmoid router, shared expert 64", "attention.qkv",
          "q4/32 rotated by 32", "model.safetensors 5000000000 bytes", "A licence of two lines"}) {
      CAPTURE(part);
      CHECK(text.find(part) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace linnet::formats
