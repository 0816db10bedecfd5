// A file of more than 4 GiB, most of it a hole: offsets are 64-bit from end to end.

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "formats/linnet/metadata.h"
#include "formats/linnet/model_file.h"
#include "tests/formats/linnet/sample_file.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

constexpr uint64_t kFourGiB = uint64_t{1} << 32;

// Writes header, metadata and one tensor's values; everything else stays a hole.
void WriteSparse(const std::string& path, const ModelContent& content, const std::vector<TensorSpec>& specs,
                 size_t written, std::span<const std::byte> data) {
  const auto layout = PlanFileLayout(specs);
  REQUIRE(layout.ok());
  std::vector<TensorRecord> records;
  for (size_t i = 0; i < specs.size(); ++i) records.push_back({specs[i], layout->places[i], {}});
  const auto metadata = BuildMetadata(content, records, layout->segments, {}, nullptr);
  REQUIRE(metadata.ok());
  auto file = AtomicFileWriter::Create(path, nullptr);
  REQUIRE(file.ok());
  REQUIRE(file->PadTo(layout->metadata_offset, nullptr).ok());
  REQUIRE(file->WriteAt(layout->places[written].data_offset, data, nullptr).ok());
  REQUIRE(file->Append(*metadata, nullptr).ok());
  FileHeader header;
  header.metadata_offset = layout->metadata_offset;
  header.metadata_bytes = metadata->size();
  header.file_bytes = layout->metadata_offset + metadata->size();
  REQUIRE(file->WriteAt(0, std::as_bytes(std::span(&header, 1)), nullptr).ok());
  REQUIRE(file->Commit(nullptr).ok());
}

TEST_SUITE("formats") {
  TEST_CASE("ModelFile: reads a tensor beyond 4 GiB") {
    if (sizeof(void*) < 8) {
      MESSAGE("skipped: a 32-bit process cannot map more than 4 GiB");
      return;
    }
    TinyModelOptions options;
    options.vocab_size = 1u << 20;
    options.model_dim = 1024;  // the embedding alone takes 4 GiB
    ModelContent content;
    content.config = TinyConfig(options);
    std::vector<TensorSpec> specs;
    size_t final_norm = 0;
    for (const TensorRequirement& tensor : RequiredTensors(content.config)) {
      if (tensor.role == TensorRole::kFinalNormGain) final_norm = specs.size();
      specs.push_back({tensor.role, tensor.layer, DType::kF32, tensor.rank, tensor.dims, 0, 0});
    }
    std::vector<float> gain(1024);
    for (size_t i = 0; i < gain.size(); ++i) gain[i] = static_cast<float>(i);

    const TemporaryFolder folder;
    WriteSparse(folder / "large.linnet", content, specs, final_norm, std::as_bytes(std::span(gain)));
    Diagnostic diagnostic;
    const auto file = ModelFile::Open(folder / "large.linnet", &diagnostic);
    REQUIRE_MESSAGE(file.ok(), diagnostic.text());
    const TensorView* tensor = file->view().Find(TensorRole::kFinalNormGain);
    REQUIRE(tensor != nullptr);
    CHECK(static_cast<uint64_t>(tensor->data.data() - file->bytes().data()) > kFourGiB);
    CHECK(std::memcmp(tensor->data.data(), gain.data(), tensor->data.size()) == 0);
    CHECK(file->file_bytes() > 2 * kFourGiB);
  }
}

}  // namespace
}  // namespace linnet::formats
