#include "formats/linnet/model_file_writer.h"

#include <doctest/doctest.h>

#include <string>

#include "formats/linnet/model_file.h"
#include "tests/formats/linnet/sample_file.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/file_size_limit.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

TEST_SUITE("formats") {
  TEST_CASE("ModelFileWriter: the same content gives the same bytes") {
    const TemporaryFolder folder;
    WriteSample(folder / "a", SampleContent());
    WriteSample(folder / "b", SampleContent());
    CHECK(ReadFile(folder / "a") == ReadFile(folder / "b"));
  }

  TEST_CASE("ModelFileWriter: tensors may be written in any order and in pieces") {
    const TemporaryFolder folder;
    const ModelContent content = SampleContent();
    WriteSample(folder / "a", content);
    const std::vector<TensorSpec> specs = SampleSpecs(content.config);
    auto writer = ModelFileWriter::Create(folder / "b", specs, nullptr);
    REQUIRE(writer.ok());
    for (size_t i = specs.size(); i-- > 0;) {
      writer->BeginTensor(i);
      const std::vector<std::byte> data = SampleData(specs[i], writer->layout().places[i].data_bytes, i);
      const size_t half = data.size() / 2;
      REQUIRE(writer->WriteData(std::span(data).first(half), nullptr).ok());
      REQUIRE(writer->WriteScales(SampleScales(specs[i], writer->layout().places[i].scales_bytes, i), nullptr).ok());
      REQUIRE(writer->WriteData(std::span(data).subspan(half), nullptr).ok());
    }
    REQUIRE(writer->Finish(content, nullptr).ok());
    CHECK(ReadFile(folder / "a") == ReadFile(folder / "b"));
  }

  TEST_CASE("ModelFileWriter: leaves nothing behind where it is given up") {
    const TemporaryFolder folder;
    {
      auto writer = ModelFileWriter::Create(folder / "a", SampleSpecs(SampleContent().config), nullptr);
      REQUIRE(writer.ok());
      writer->BeginTensor(0);
      CHECK(folder.count() == 1);  // the temporary file
    }
    CHECK(folder.count() == 0);
  }

  TEST_CASE("ModelFileWriter: a full disk is an error, and the old file stays") {
    const TemporaryFolder folder;
    WriteFile(folder / "a", "old");
    const ModelContent content = SampleContent();
    const std::vector<TensorSpec> specs = SampleSpecs(content.config);
    Diagnostic diagnostic;
    Status status;
    {
      auto writer = ModelFileWriter::Create(folder / "a", specs, &diagnostic);
      REQUIRE(writer.ok());
      const FileSizeLimit limit(writer->layout().metadata_offset / 2);
      for (size_t i = 0; i < specs.size() && status.ok(); ++i) {
        const TensorPlace& place = writer->layout().places[i];
        writer->BeginTensor(i);
        status = writer->WriteData(SampleData(specs[i], place.data_bytes, i), &diagnostic);
        if (status.ok()) status = writer->WriteScales(SampleScales(specs[i], place.scales_bytes, i), &diagnostic);
      }
    }
    CHECK(status.code() == StatusCode::kIoError);
    CHECK(std::string(diagnostic.text()).find("/a") != std::string::npos);
    CHECK(ReadFile(folder / "a") == "old");
    CHECK(folder.count() == 1);
  }

  TEST_CASE("ModelFileWriter: refuses content beyond the format's limits") {
    const TemporaryFolder folder;
    ModelContent content = SampleContent();
    content.goldens[0].top_logits.pop_back();
    const std::vector<TensorSpec> specs = SampleSpecs(content.config);
    auto writer = ModelFileWriter::Create(folder / "a", specs, nullptr);
    REQUIRE(writer.ok());
    for (size_t i = 0; i < specs.size(); ++i) {
      writer->BeginTensor(i);
      REQUIRE(writer->WriteData(SampleData(specs[i], writer->layout().places[i].data_bytes, i), nullptr).ok());
      REQUIRE(writer->WriteScales(SampleScales(specs[i], writer->layout().places[i].scales_bytes, i), nullptr).ok());
    }
    CHECK(writer->Finish(content, nullptr).code() == StatusCode::kInvalidArgument);
  }

  TEST_CASE("PlanFileLayout: sizes that overflow are an error") {
    TensorSpec spec;
    spec.role = TensorRole::kTokenEmbedding;
    spec.rank = 2;
    spec.dims = {uint64_t{1} << 40, uint64_t{1} << 30, 0};
    CHECK_FALSE(PlanFileLayout({&spec, 1}).ok());
    spec.dims = {uint64_t{1} << 31, uint64_t{1} << 29, 0};  // 2^62 bytes
    CHECK_FALSE(PlanFileLayout({&spec, 1}).ok());
  }
}

}  // namespace
}  // namespace linnet::formats
