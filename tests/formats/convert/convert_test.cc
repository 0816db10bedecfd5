#include "formats/convert/convert.h"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "formats/linnet/model_file.h"
#include "formats/linnet/sha256.h"
#include "formats/linnet/tokenizer_section.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

ModelFile ConvertAndOpen(const Checkpoint& checkpoint, const ConvertOptions& options, const std::string& path,
                         ConvertReport* report = nullptr) {
  Diagnostic diagnostic;
  const Status status = Convert(checkpoint, options, path, {}, report, &diagnostic);
  REQUIRE_MESSAGE(status.ok(), diagnostic.text());
  auto file = ModelFile::Open(path, &diagnostic);
  REQUIRE_MESSAGE(file.ok(), diagnostic.text());
  REQUIRE(file->CheckContent(&diagnostic).ok());
  return std::move(file).value();
}

std::vector<float> SourceValues(const TinyCheckpoint& checkpoint, const TensorRequirement& tensor, uint64_t n) {
  std::vector<float> values(n);
  for (uint64_t i = 0; i < n; ++i) values[i] = checkpoint.Weight(tensor, i);
  return values;
}

double RelativeRms(const std::vector<float>& a, const std::vector<float>& reference) {
  double error = 0.0, sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (double{a[i]} - reference[i]) * (double{a[i]} - reference[i]);
    sum += double{reference[i]} * reference[i];
  }
  return std::sqrt(error / sum);
}

// Relative error that weights of about normal distribution may have; derived in formats/quantize/README.md.
double ErrorBound(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0.0;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kQ8:
      return 0.012;
    case DType::kQ4:
      return 0.1;
  }
  return 0.0;
}

TEST_SUITE("formats") {
  TEST_CASE("Convert: every tensor of every type comes back near its source") {
    TinyModelOptions model;
    model.n_experts = 3;
    model.qkv_bias = true;
    ConvertOptions options;
    SUBCASE("f32") { options.weights = DType::kF32; }
    SUBCASE("f16") { options.weights = DType::kF16; }
    SUBCASE("bf16") { options.weights = DType::kBF16; }
    SUBCASE("q8") { options.weights = DType::kQ8; }
    SUBCASE("q8 without rotation") { options.weights = DType::kQ8, options.rotate = false; }
    SUBCASE("q4") { options.weights = DType::kQ4; }
    SUBCASE("q4 everywhere, blocks of 64") {
      options.weights = options.embedding = options.head = DType::kQ4;
      options.block_size = 64;
    }
    const TinyCheckpoint checkpoint(TinyConfig(model));
    const TemporaryFolder folder;
    const ModelFile file = ConvertAndOpen(checkpoint, options, folder / "a.linnet");
    CHECK(folder.count() == 1);
    for (const TensorRequirement& requirement : RequiredTensors(checkpoint.info().config)) {
      const TensorView* tensor = file.view().Find(requirement.role, requirement.layer);
      REQUIRE(tensor != nullptr);
      CAPTURE(std::string(TensorRoleName(requirement.role)));
      const std::vector<float> source = SourceValues(checkpoint, requirement, tensor->elements());
      CHECK(RelativeRms(DequantizeTensor(*tensor), source) <= ErrorBound(tensor->dtype));
      if (requirement.must_be_f32) CHECK(tensor->dtype == DType::kF32);
      if (IsLinearRole(tensor->role) && tensor->role != TensorRole::kHead) CHECK(tensor->dtype == *options.weights);
    }
    CHECK(checkpoint.usage().releases == file.view().tensors().size());
  }

  TEST_CASE("Convert: carries texts, tokenizer, defaults and provenance over") {
    TinyCheckpoint checkpoint(TinyConfig({}));
    CheckpointInfo& info = checkpoint.mutable_info();
    info.chat_template = "{{ messages }}";
    info.generation = {1, true, {2, 3}, 0.5f, 10, 0.9f, 1.0f};
    checkpoint.set_source_type({"BF16", 16.0});
    const TemporaryFolder folder;
    const ModelFile file = ConvertAndOpen(checkpoint, {}, folder / "a.linnet");
    CHECK(file.config() == info.config);
    CHECK(file.name() == info.name);
    CHECK(file.license() == info.license);
    CHECK(file.chat_template() == info.chat_template);
    CHECK(file.generation() == info.generation);
    CHECK(file.tokenizer_bytes().empty());
    const Provenance& provenance = file.provenance();
    CHECK(provenance.converter.starts_with("linnet "));
    REQUIRE(provenance.sources.size() == 1);
    CHECK(provenance.sources[0].name == "tiny.txt");
    CHECK(provenance.sources[0].size_bytes == checkpoint.files()[0].bytes.size());
    Sha256 hash;
    hash.Update(checkpoint.files()[0].bytes);
    CHECK(provenance.sources[0].sha256 == hash.Finish());
    REQUIRE(provenance.source_types.size() == 1);
    CHECK(provenance.source_types[0].name == "BF16");
    CHECK(provenance.source_types[0].tensors == file.view().tensors().size());
  }

  TEST_CASE("Convert: the same checkpoint and options give the same bytes, another seed another hash") {
    const TemporaryFolder folder;
    ConvertOptions options;
    options.weights = DType::kQ4;
    const ModelFile a = ConvertAndOpen(TinyCheckpoint(TinyConfig({})), options, folder / "a");
    const ModelFile b = ConvertAndOpen(TinyCheckpoint(TinyConfig({})), options, folder / "b");
    const ModelFile c = ConvertAndOpen(TinyCheckpoint(TinyConfig({}), 2), options, folder / "c");
    CHECK(ReadFile(folder / "a") == ReadFile(folder / "b"));
    CHECK(a.view().content_hash == b.view().content_hash);
    CHECK(a.view().content_hash != c.view().content_hash);
  }

  TEST_CASE("Convert: reports tensors, bytes and errors, as text and as JSON") {
    const TinyCheckpoint checkpoint(TinyConfig({}));
    const TemporaryFolder folder;
    ConvertOptions options;
    options.weights = DType::kQ4;
    ConvertReport report;
    const ModelFile file = ConvertAndOpen(checkpoint, options, folder / "a", &report);
    CHECK(report.tensors == file.view().tensors().size());
    CHECK(report.weight_bytes == file.weight_bytes());
    CHECK(report.file_bytes == file.file_bytes());
    CHECK(report.fallbacks.empty());
    REQUIRE(report.groups.size() == 4);
    uint64_t elements = 0;
    for (const ConvertGroup& group : report.groups) {
      elements += group.elements;
      CAPTURE(std::string(group.group));
      CHECK(group.relative_rms_error <= ErrorBound(group.dtype));
      if (group.dtype != DType::kF32) CHECK(group.relative_rms_error > 0.0);
    }
    CHECK(elements == report.parameters);
    const auto json = nlohmann::json::parse(ConvertReportJson(report));
    CHECK(json["parameters"] == report.parameters);
    CHECK(json["groups"].size() == 4);
    const std::string text = ConvertReportText(report);
    CAPTURE(text);
    CHECK(text.find("q4/32 rotated") != std::string::npos);
    CHECK(text.find("bits per weight") != std::string::npos);
  }

  TEST_CASE("Convert: progress never goes back and ends at its total") {
    const TinyCheckpoint checkpoint(TinyConfig({}));
    const TemporaryFolder folder;
    ConvertProgress last;
    bool ascending = true;
    const auto progress = [&](const ConvertProgress& now) {
      const bool same_stage = std::string(now.stage) == last.stage;
      ascending = ascending && (!same_stage || now.elements_done >= last.elements_done);
      last = now;
      return true;
    };
    REQUIRE(Convert(checkpoint, {}, folder / "a", progress, nullptr, nullptr).ok());
    CHECK(ascending);
    CHECK(std::string(last.stage) == "weights");
    CHECK(last.elements_done == last.elements_total);
    CHECK(last.tensors_done == last.tensors_total);
  }
}

}  // namespace
}  // namespace linnet::formats
