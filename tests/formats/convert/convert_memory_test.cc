// Conversion streams: its memory does not grow with the model.

#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include "formats/convert/convert.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

// A line of /proc/self/status in KiB; 0 where there is none.
uint64_t StatusKib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1));
  }
  return 0;
}

// The peak starts anew from what is resident now.
bool ResetPeak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good() && StatusKib("VmHWM") != 0;
}

TEST_SUITE("formats") {
  TEST_CASE("Convert: takes a small fixed memory beside the source") {
    TinyModelOptions model;
    model.vocab_size = 20000;
    model.model_dim = 512;
    model.n_heads = 8;
    model.n_kv_heads = 4;
    model.head_dim = 64;
    model.ffn_dim = 2048;
    model.n_layers = 3;
    const TinyCheckpoint checkpoint(TinyConfig(model));  // 33 M weights: 132 MB as f32, 40 MB for the largest tensor
    const TemporaryFolder folder;
    ConvertOptions options;
    options.weights = DType::kQ4;
    const bool measurable = ResetPeak();
    const uint64_t before_kib = StatusKib("VmRSS");
    ConvertReport report;
    REQUIRE(Convert(checkpoint, options, folder / "a", {}, &report, nullptr).ok());
    CHECK(report.parameters > 20'000'000);
    CHECK(checkpoint.usage().largest_read * sizeof(float) <= kConvertBufferBytes);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    MESSAGE("not measured: the sanitizer's own memory hides the conversion's (", measurable, ", ", before_kib, " KiB)");
#else
    if (!measurable) {
      MESSAGE("skipped: this system does not reset the peak of resident memory");
      return;
    }
    const uint64_t grown_kib = StatusKib("VmHWM") - before_kib;
    MESSAGE("peak resident memory grew by ", grown_kib, " KiB");
    CHECK(grown_kib * 1024 <= kConvertBufferBytes);
#endif
  }
}

}  // namespace
}  // namespace linnet::formats
