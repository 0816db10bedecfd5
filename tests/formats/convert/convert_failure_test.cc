// Conversions that end early: a typed error, and nothing left behind.

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "formats/convert/convert.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/tiny_model.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

// Fails the reading of one tensor.
class FailingCheckpoint final : public Checkpoint {
 public:
  FailingCheckpoint() : inner_(TinyConfig({})) {}
  const CheckpointInfo& info() const override { return inner_.info(); }
  std::span<const SourceFile> files() const override { return inner_.files(); }
  SourceType TypeOf(const TensorRequirement& tensor) const override { return inner_.TypeOf(tensor); }
  Status ReadRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                  std::span<float> out, Diagnostic* diagnostic) const override {
    if (tensor.role == TensorRole::kHead) {
      return Fail(diagnostic, StatusCode::kIoError, "cannot read", "shard 2: cannot read");
    }
    return inner_.ReadRows(tensor, group, row_begin, row_count, out, diagnostic);
  }
  void Release(const TensorRequirement&) const override {}

 private:
  TinyCheckpoint inner_;
};

// The folder holds what it held before.
void CheckUntouched(const TemporaryFolder& folder) {
  CHECK(folder.count() == 1);
  CHECK(ReadFile(folder / "a") == "old");
}

TEST_SUITE("formats") {
  TEST_CASE("Convert: names the weight that is not finite") {
    TinyCheckpoint checkpoint(TinyConfig({}));
    checkpoint.SetWeight(TensorRole::kFfnDown, 1, 3 * 128 + 17, std::numeric_limits<float>::quiet_NaN());
    checkpoint.set_source_type({"F16", 16.0});
    const TemporaryFolder folder;
    WriteFile(folder / "a", "old");
    Diagnostic diagnostic;
    CHECK(Convert(checkpoint, {}, folder / "a", {}, nullptr, &diagnostic).code() == StatusCode::kInvalidModel);
    const std::string text = diagnostic.text();
    CAPTURE(text);
    for (const char* part : {"ffn.down", "layer 1", "row 3", "column 17", "F16", "not a finite number"}) {
      CHECK(text.find(part) != std::string::npos);
    }
    CheckUntouched(folder);
  }

  TEST_CASE("Convert: stops where the caller says so, in every stage") {
    const TinyCheckpoint checkpoint(TinyConfig({}));
    const TemporaryFolder folder;
    WriteFile(folder / "a", "old");
    uint64_t calls = 0;
    REQUIRE(
        Convert(
            checkpoint, {}, folder / "b", [&calls](const ConvertProgress&) { return ++calls > 0; }, nullptr, nullptr)
            .ok());
    REQUIRE(calls > 4);
    std::filesystem::remove(folder / "b");
    for (uint64_t stop = 1; stop <= calls; ++stop) {
      uint64_t call = 0;
      Diagnostic diagnostic;
      const auto progress = [&](const ConvertProgress&) { return ++call < stop; };
      CHECK(Convert(checkpoint, {}, folder / "a", progress, nullptr, &diagnostic).code() == StatusCode::kCancelled);
      CHECK(call == stop);
      CheckUntouched(folder);
    }
  }

  TEST_CASE("Convert: a full disk is one error that names the file") {
    const TinyCheckpoint checkpoint(TinyConfig({}));
    const TemporaryFolder folder;
    WriteFile(folder / "a", "old");
    // Too small for the first segment, for the weights, and for the last bytes of the metadata.
    uint64_t whole = 0;
    REQUIRE(Convert(checkpoint, {}, folder / "b", {}, nullptr, nullptr).ok());
    whole = ReadFile(folder / "b").size();
    std::filesystem::remove(folder / "b");
    for (const uint64_t limit : {uint64_t{100}, whole / 2, whole - 1}) {
      CAPTURE(limit);
      Diagnostic diagnostic;
      Status status;
      {
        const FileSizeLimit full(limit);
        status = Convert(checkpoint, {}, folder / "a", {}, nullptr, &diagnostic);
      }
      CHECK(status.code() == StatusCode::kIoError);
      CHECK(std::string(diagnostic.text()).find("/a") != std::string::npos);
      CheckUntouched(folder);
    }
  }

  TEST_CASE("Convert: hands on what the checkpoint says") {
    const TemporaryFolder folder;
    WriteFile(folder / "a", "old");
    Diagnostic diagnostic;
    CHECK(Convert(FailingCheckpoint(), {}, folder / "a", {}, nullptr, &diagnostic).code() == StatusCode::kIoError);
    CHECK(std::string(diagnostic.text()) == "shard 2: cannot read");
    CheckUntouched(folder);
  }

  TEST_CASE("Convert: a target that cannot be written is told before any weight is read") {
    const TinyCheckpoint checkpoint(TinyConfig({}));
    Diagnostic diagnostic;
    CHECK(Convert(checkpoint, {}, "/nowhere/a", {}, nullptr, &diagnostic).code() == StatusCode::kIoError);
    CHECK(checkpoint.usage().reads == 0);
  }
}

}  // namespace
}  // namespace linnet::formats
