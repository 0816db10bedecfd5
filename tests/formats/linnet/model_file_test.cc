#include "formats/linnet/model_file.h"

#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "formats/linnet/file_layout.h"
#include "tests/formats/linnet/sample_file.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

bool Contains(const char* text, const char* part) { return std::string(text).find(part) != std::string::npos; }

FileHeader HeaderOf(const AlignedBytes& bytes) {
  FileHeader header;
  std::memcpy(&header, bytes.span().data(), sizeof(header));
  return header;
}

void CheckTexts(const ModelFile& file, const ModelContent& content) {
  CHECK(file.config() == content.config);
  CHECK(file.chat_template() == content.chat_template);
  CHECK(file.license() == content.license);
  CHECK(file.name() == content.name);
  CHECK(file.generation() == content.generation);
  CHECK(file.provenance() == content.provenance);
  REQUIRE(file.goldens().size() == content.goldens.size());
  CHECK(file.goldens()[0] == content.goldens[0]);
}

void CheckTensors(const ModelFile& file, const std::vector<TensorSpec>& specs) {
  const ModelView view = file.view();
  REQUIRE(view.tensors().size() == specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorView& tensor = view.tensors()[i];
    CAPTURE(i);
    CHECK(tensor.role == specs[i].role);
    CHECK(tensor.layer == specs[i].layer);
    CHECK(tensor.dtype == specs[i].dtype);
    CHECK(tensor.rank == specs[i].rank);
    CHECK(tensor.dims == specs[i].dims);
    CHECK(tensor.block_size == specs[i].block_size);
    CHECK(tensor.rotation_block == specs[i].rotation_block);
    const std::vector<std::byte> data = SampleData(specs[i], tensor.data.size(), i);
    const std::vector<std::byte> scales = SampleScales(specs[i], tensor.scales.size(), i);
    CHECK(std::equal(data.begin(), data.end(), tensor.data.begin(), tensor.data.end()));
    CHECK(std::equal(scales.begin(), scales.end(), tensor.scales.begin(), tensor.scales.end()));
    CHECK((tensor.data.data() - file.bytes().data()) % 64 == 0);
  }
}

TEST_SUITE("formats") {
  TEST_CASE("ModelFile: gives back everything that was written") {
    const TemporaryFolder folder;
    ModelContent content = SampleContent();
    Diagnostic diagnostic;
    SUBCASE("without a tokenizer") {}
    SUBCASE("with a tokenizer's bytes") { content.tokenizer.assign(1001, std::byte{0x5a}); }
    WriteSample(folder / "a.linnet", content);
    const auto file = ModelFile::Open(folder / "a.linnet", &diagnostic);
    REQUIRE_MESSAGE(file.ok(), diagnostic.text());
    CheckTexts(*file, content);
    CheckTensors(*file, SampleSpecs(content.config));
    REQUIRE(file->tokenizer_bytes().size() == content.tokenizer.size());
    CHECK(std::equal(content.tokenizer.begin(), content.tokenizer.end(), file->tokenizer_bytes().begin()));
    CHECK(reinterpret_cast<uintptr_t>(file->tokenizer_bytes().data()) % 16 == 0);
    CHECK(file->format_version() == kFormatVersion);
    CHECK(file->file_bytes() == file->bytes().size());
    CHECK(file->mapping() != nullptr);
    CHECK(file->CheckContent(&diagnostic).ok());
  }

  TEST_CASE("ModelFile: a copy has other goldens and nothing else that differs, also over itself") {
    const TemporaryFolder folder;
    ModelContent content = SampleContent();
    content.tokenizer.assign(1001, std::byte{0x5a});
    const std::string path = folder / "a.linnet";
    WriteSample(path, content);
    Diagnostic diagnostic;
    const auto file = ModelFile::Open(path, &diagnostic);
    REQUIRE(file.ok());
    content.goldens = {{{1, 2, 0}, 1, {2, 0, 1}, {0.5f, 1.5f, -2.0f}}};
    for (const std::string& target : {folder / "b.linnet", path}) {
      REQUIRE(file->WriteCopy(target, content.goldens, &diagnostic).ok());
      const auto copy = ModelFile::Open(target, &diagnostic);
      REQUIRE_MESSAGE(copy.ok(), diagnostic.text());
      CheckTexts(*copy, content);
      CheckTensors(*copy, SampleSpecs(content.config));
      CHECK(std::equal(content.tokenizer.begin(), content.tokenizer.end(), copy->tokenizer_bytes().begin()));
      CHECK(copy->view().content_hash == file->view().content_hash);
      CHECK(copy->CheckContent(&diagnostic).ok());
    }
    const Golden malformed = {{1}, 2, {0}, {1.0f}};
    CHECK(file->WriteCopy(path, {&malformed, 1}, &diagnostic).code() == StatusCode::kInvalidArgument);
    CHECK(ModelFile::Open(path, &diagnostic).ok());
    CHECK(file->WriteCopy(folder / "no/folder.linnet", {}, &diagnostic).code() == StatusCode::kIoError);
  }

  TEST_CASE("ModelFile: keeps segments at multiples of 64 KiB, by use") {
    const AlignedBytes bytes = SampleBytes();
    const auto file = ModelFile::FromBytes(bytes.span(), nullptr);
    REQUIRE(file.ok());
    REQUIRE(file->segments().size() == 3);
    for (const WeightSegment& segment : file->segments()) CHECK(segment.offset % (64 * 1024) == 0);
    for (const TensorView& tensor : file->view().tensors()) {
      const uint64_t offset = static_cast<uint64_t>(tensor.data.data() - bytes.span().data());
      const WeightSegment& segment = file->segments()[static_cast<size_t>(SegmentOf(tensor.role))];
      CHECK(offset >= segment.offset);
      CHECK(offset + tensor.data.size() <= segment.offset + segment.size_bytes);
    }
  }

  TEST_CASE("ModelFile: views stay valid when the file moves") {
    const AlignedBytes bytes = SampleBytes();
    auto opened = ModelFile::FromBytes(bytes.span(), nullptr);
    REQUIRE(opened.ok());
    const ModelView view = opened->view();
    const ModelFile moved = std::move(opened).value();
    CHECK(&view.config() == &moved.config());
    CHECK(view.content_hash == moved.view().content_hash);
  }

  TEST_CASE("ModelFile: refuses a newer format version and says so") {
    AlignedBytes bytes = SampleBytes();
    const uint32_t version = kFormatVersion + 1;
    std::memcpy(bytes.span().data() + offsetof(FileHeader, format_version), &version, sizeof(version));
    Diagnostic diagnostic;
    const auto file = ModelFile::FromBytes(bytes.span(), &diagnostic);
    REQUIRE_FALSE(file.ok());
    CHECK(file.status().code() == StatusCode::kUnsupported);
    CHECK(Contains(diagnostic.text(), "newer"));
  }

  TEST_CASE("ModelFile: refuses what is no model file") {
    Diagnostic diagnostic;
    SUBCASE("empty") {
      const AlignedBytes bytes({});
      CHECK(ModelFile::FromBytes(bytes.span(), &diagnostic).status().code() == StatusCode::kInvalidModel);
    }
    SUBCASE("another format") {
      const std::string text(5000, 'G');
      const AlignedBytes bytes(std::as_bytes(std::span(text)));
      CHECK(ModelFile::FromBytes(bytes.span(), &diagnostic).status().code() == StatusCode::kInvalidModel);
      CHECK(Contains(diagnostic.text(), "expected a Linnet model file"));
    }
    SUBCASE("a wrong address") {
      const AlignedBytes bytes = SampleBytes();
      CHECK(ModelFile::FromBytes(bytes.span().subspan(8), &diagnostic).status().code() == StatusCode::kInvalidArgument);
    }
    SUBCASE("a missing file is named") {
      CHECK(ModelFile::Open("/nowhere/x.linnet", &diagnostic).status().code() == StatusCode::kIoError);
      CHECK(Contains(diagnostic.text(), "/nowhere/x.linnet"));
    }
    CHECK_FALSE(diagnostic.empty());
  }

  TEST_CASE("ModelFile: CheckContent names the damaged part") {
    AlignedBytes bytes = SampleBytes();
    const FileHeader header = HeaderOf(bytes);
    Diagnostic diagnostic;
    SUBCASE("a tensor") {
      const auto file = ModelFile::FromBytes(bytes.span(), nullptr);
      REQUIRE(file.ok());
      const TensorView* down = file->view().Find(TensorRole::kFfnDown, 1);
      REQUIRE(down != nullptr);
      const auto offset = static_cast<size_t>(down->data.data() - bytes.span().data());
      bytes.span()[offset + 9] ^= std::byte{4};
      CHECK(file->CheckContent(&diagnostic).code() == StatusCode::kInvalidModel);
      CHECK(Contains(diagnostic.text(), "ffn.down"));
      CHECK(Contains(diagnostic.text(), "layer 1"));
    }
    SUBCASE("the metadata") {
      bytes.span()[header.metadata_offset + header.metadata_bytes - 1] ^= std::byte{1};
      const auto file = ModelFile::FromBytes(bytes.span(), nullptr);
      REQUIRE(file.ok());  // padding or text: still well formed
      CHECK(file->CheckContent(&diagnostic).code() == StatusCode::kInvalidModel);
      CHECK(Contains(diagnostic.text(), "metadata"));
    }
  }
}

}  // namespace
}  // namespace linnet::formats
