// Conversion with calibration: better than without, the same for any threads, resumable, within budgets and memory.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "core/part_runner.h"
#include "formats/convert/convert.h"
#include "formats/convert/resume_store.h"
#include "formats/linnet/model_file.h"
#include "tests/platforms/temporary_folder.h"
#include "tests/support/running_model.h"
#include "tests/support/tiny_model.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

constexpr uint32_t kWindow = 64;

/// What runs the text, and the options that say so.
struct Calibrated {
  Calibrated(size_t n_threads, size_t n_windows, uint32_t vocab_size)
      : pool(std::move(ops::ThreadPool::Create(n_threads)).value()), runner(pool) {
    calibration.runner = &runner;
    calibration.pool = &pool;
    calibration.window = kWindow;
    calibration.ids = SomeIds(n_windows * kWindow, vocab_size);
    options.weights = DType::kQ4;
    options.embedding = options.head = DType::kF32;
    options.calibration = &calibration;
  }
  Calibrated(const Calibrated&) = delete;

  ops::ThreadPool pool;
  ExecutorPartRunner runner;
  CalibrationOptions calibration;
  ConvertOptions options;
};

TinyCheckpoint SomeCheckpoint(const TinyModelOptions& model = {}) {
  TinyCheckpoint checkpoint(TinyConfig(model));
  checkpoint.set_outlier_factor(4.0f);
  return checkpoint;
}

ConvertReport ConvertTo(const std::string& path, const TinyCheckpoint& checkpoint, const ConvertOptions& options) {
  ConvertReport report;
  Diagnostic diagnostic;
  const Status status = Convert(checkpoint, options, path, {}, &report, &diagnostic);
  CAPTURE(std::string(diagnostic.text()));
  REQUIRE(status.ok());
  return report;
}

std::vector<float> LogitsOf(const std::string& path, std::span<const int32_t> ids) {
  const auto file = ModelFile::Open(path, nullptr);
  REQUIRE(file.ok());
  const ModelView view = file->view();
  RunningModel model(view, {.context_tokens = kWindow});
  return model.AllLogits(ids);
}

double SquaredDistance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

}  // namespace

TEST_SUITE("formats") {
  TEST_CASE("Convert: calibrated weights are closer to the exact model on other text") {
    const TinyCheckpoint checkpoint = SomeCheckpoint();
    const TemporaryFolder folder;
    Calibrated calibrated(2, 24, 96);
    ConvertOptions exact = calibrated.options, plain = calibrated.options;
    exact.weights = DType::kF32;
    exact.calibration = plain.calibration = nullptr;
    ConvertTo(folder / "exact", checkpoint, exact);
    ConvertTo(folder / "plain", checkpoint, plain);
    const ConvertReport report = ConvertTo(folder / "calibrated", checkpoint, calibrated.options);
    CHECK(report.unseen_matrices == 0);
    for (const ConvertGroup& group : report.groups) {
      CHECK((group.output_rms_error > 0.0) == IsQuantized(group.dtype));
    }
    const std::vector<int32_t> ids = SomeIds(kWindow, 96, 99);
    const std::vector<float> expected = LogitsOf(folder / "exact", ids);
    const double without = SquaredDistance(LogitsOf(folder / "plain", ids), expected);
    CHECK(SquaredDistance(LogitsOf(folder / "calibrated", ids), expected) < 0.85 * without);
  }

  TEST_CASE("Convert: the table of a tied model is rounded by the inputs of its products") {
    const TinyCheckpoint checkpoint = SomeCheckpoint({.vocab_size = 256, .tied_head = true});
    const TemporaryFolder folder;
    Calibrated calibrated(2, 24, 256);
    calibrated.options.embedding = calibrated.options.head = std::nullopt;
    ConvertOptions exact = calibrated.options;
    exact.weights = DType::kF32;
    exact.calibration = nullptr;
    ConvertTo(folder / "exact", checkpoint, exact);
    const std::vector<int32_t> ids = SomeIds(kWindow, 256, 99);
    const std::vector<float> expected = LogitsOf(folder / "exact", ids);
    const auto loss = [&](DType table, bool is_calibrated) {
      ConvertOptions options = calibrated.options;
      options.embedding = table;
      if (!is_calibrated) options.calibration = nullptr;
      const ConvertReport report = ConvertTo(folder / "a", checkpoint, options);
      for (const ConvertGroup& group : report.groups) {
        if (std::string(group.group) == "embedding") {
          CHECK((group.output_rms_error > 0.0) == (is_calibrated && table == DType::kQ4));
        }
      }
      return SquaredDistance(LogitsOf(folder / "a", ids), expected);
    };
    // What q4 in place of q8 costs the table: less, once its errors are made up for.
    const double plain = loss(DType::kQ4, false) - loss(DType::kQ8, false);
    const double made_up_for = loss(DType::kQ4, true) - loss(DType::kQ8, true);
    MESSAGE("cost of a table of q4: ", plain, " to nearest, ", made_up_for, " calibrated");
    CHECK(made_up_for < 0.8 * plain);
  }

  TEST_CASE("Convert: the bytes of a calibrated file depend neither on threads nor on the moments' budget of one run") {
    const TinyCheckpoint checkpoint = SomeCheckpoint({.tied_head = true, .qkv_bias = true, .window = 16});
    const TemporaryFolder folder;
    Calibrated one(1, 8, 96), three(3, 8, 96), cramped(2, 8, 96);
    one.options.head = three.options.head = cramped.options.head = std::nullopt;
    std::optional<DType> table = DType::kQ8;
    SUBCASE("a table of q8") {}
    SUBCASE("a table of q4, rounded last") { table = DType::kQ4; }
    SUBCASE("a budget") {
      table = std::nullopt;
      one.options.bits = three.options.bits = cramped.options.bits = 6.5;
    }
    one.options.embedding = three.options.embedding = cramped.options.embedding = table;
    cramped.calibration.moments_bytes = 1;
    ConvertTo(folder / "one", checkpoint, one.options);
    ConvertTo(folder / "three", checkpoint, three.options);
    ConvertTo(folder / "cramped", checkpoint, cramped.options);
    CHECK(ReadFile(folder / "one") == ReadFile(folder / "three"));
    CHECK(ReadFile(folder / "one") == ReadFile(folder / "cramped"));
  }

  TEST_CASE("Convert: experts and an untied head are calibrated; those that the text misses are told") {
    const TinyCheckpoint checkpoint = SomeCheckpoint({.n_experts = 8});
    const TemporaryFolder folder;
    Calibrated calibrated(2, 4, 96);  // 256 tokens, two of eight experts each: some see fewer than 64
    calibrated.options.head = DType::kQ4;
    const ConvertReport report = ConvertTo(folder / "a", checkpoint, calibrated.options);
    CHECK(report.unseen_matrices > 0);
    CHECK(report.unseen_matrices < 2 * 2 * 8);
    for (const ConvertGroup& group : report.groups) {
      if (IsQuantized(group.dtype)) CHECK(group.output_rms_error > 0.0);
    }
  }

  TEST_CASE("Convert: an interrupted conversion goes on from its finished blocks to the same bytes") {
    TinyModelOptions model = {.n_layers = 4};
    Calibrated calibrated(2, 4, 96);
    SUBCASE("one type") {}
    SUBCASE("a tied table of q4") {
      model.tied_head = true;
      calibrated.options.embedding = DType::kQ4;
      calibrated.options.head = std::nullopt;
    }
    SUBCASE("a budget") {
      calibrated.options.bits = 6.0;
      calibrated.options.embedding = calibrated.options.head = std::nullopt;
    }
    const TinyCheckpoint checkpoint = SomeCheckpoint(model);
    const TemporaryFolder folder, resume;
    ConvertTo(folder / "whole", checkpoint, calibrated.options);
    calibrated.calibration.resume_folder = resume.path();
    int calls = 0;
    const auto stop_in_layer_two = [&calls](const ConvertProgress& progress) {
      ++calls;
      CHECK(progress.elements_done <= progress.elements_total);
      return progress.layer < 2;
    };
    const Status status = Convert(checkpoint, calibrated.options, folder / "a", stop_in_layer_two, nullptr, nullptr);
    CHECK(status.code() == StatusCode::kCancelled);
    CHECK(folder.count() == 1);  // nothing of the target
    CHECK(resume.count() >= 2);
    const int calls_before = calls;
    calls = 0;
    const auto count = [&calls](const ConvertProgress&) { return ++calls > 0; };
    REQUIRE(Convert(checkpoint, calibrated.options, folder / "a", count, nullptr, nullptr).ok());
    CHECK(calls_before > 0);
    CHECK(ReadFile(folder / "a") == ReadFile(folder / "whole"));
  }

  TEST_CASE("Convert: an interrupted measuring of losses goes on from where it was to the same bytes") {
    TinyModelOptions model = {.vocab_size = 9000, .n_layers = 4};  // three chunks of the head
    SUBCASE("a head") {}
    SUBCASE("a tied table") { model.tied_head = true; }
    const TinyCheckpoint checkpoint = SomeCheckpoint(model);
    const TemporaryFolder folder, resume;
    Calibrated calibrated(2, 4, 9000);
    calibrated.options.bits = 6.0;
    calibrated.options.embedding = calibrated.options.head = std::nullopt;
    ConvertTo(folder / "whole", checkpoint, calibrated.options);
    calibrated.calibration.resume_folder = resume.path();
    const std::string losses = resume / kLossesPiece;
    // Stops after the share `end` of the measuring; the first share that was told.
    double first = -1.0;
    const auto run = [&](double end) {
      first = -1.0;
      const auto progress = [&first, end](const ConvertProgress& told) {
        if (told.stage != std::string("measuring losses")) return told.tensors_total == 0;
        const double share = static_cast<double>(told.elements_done) / static_cast<double>(told.elements_total);
        if (first < 0.0) first = share;
        return share < end;
      };
      CHECK(Convert(checkpoint, calibrated.options, folder / "a", progress, nullptr, nullptr).code() ==
            StatusCode::kCancelled);
    };
    double last = 0.0;
    for (const double end : {0.2, 0.4, 0.6, 0.8}) {
      CAPTURE(end);
      run(end);
      CHECK(first >= last);
      CHECK(first < end + 0.2);  // nothing is left out
      last = first;
    }
    REQUIRE(std::filesystem::exists(losses));  // at the last block whenever it was kept before
    run(0.8);
    CHECK(first > 0.1);  // the blocks are done
    SUBCASE("") {}
    SUBCASE("damaged pieces are not taken") {
      std::string piece = ReadFile(losses);
      piece[piece.size() / 2] ^= 1;
      WriteFile(losses, piece);
      WriteFile(resume / kLogitsPiece, piece.substr(0, 90));
    }
    SUBCASE("the logits of an earlier run without its streams") { std::filesystem::remove(losses); }
    run(2.0);  // to the blocks
    CHECK(!std::filesystem::exists(losses));
    CHECK(!std::filesystem::exists(resume / kLogitsPiece));
    CHECK(std::filesystem::exists(resume / kChoicesPiece));
    ConvertTo(folder / "a", checkpoint, calibrated.options);
    CHECK(ReadFile(folder / "a") == ReadFile(folder / "whole"));
  }

  TEST_CASE("Convert: what cannot be kept for another run is no reason to fail") {
    const TinyCheckpoint checkpoint = SomeCheckpoint({.n_layers = 4});
    const TemporaryFolder folder, resume;
    Calibrated calibrated(2, 4, 96);
    calibrated.options.bits = 6.0;
    calibrated.options.embedding = calibrated.options.head = std::nullopt;
    calibrated.calibration.resume_folder = resume.path();
    for (const char* piece : {kLossesPiece, kLogitsPiece, kChoicesPiece, "block-1"}) {
      std::filesystem::create_directories(std::filesystem::path(resume / piece) / "in the way");
    }
    ConvertTo(folder / "a", checkpoint, calibrated.options);
    CHECK(std::filesystem::is_directory(resume / kChoicesPiece));
  }

  TEST_CASE("Convert: the progress of a stage never goes back, and a block begins with its gathering") {
    const TinyCheckpoint checkpoint = SomeCheckpoint();
    const TemporaryFolder folder;
    Calibrated calibrated(1, 4, 96);
    SUBCASE("a block is gathered once") {}
    SUBCASE("a block is gathered for every matrix") { calibrated.calibration.moments_bytes = 1; }
    ConvertProgress last;
    const auto check = [&last](const ConvertProgress& progress) {
      if (progress.stage == last.stage) CHECK(progress.elements_done >= last.elements_done);
      // Its norm comes before the gathering, so nothing of the second of two blocks is done yet.
      if (progress.layer == 1 && last.layer == 0) CHECK(progress.elements_done <= progress.elements_total / 2);
      last = progress;
      return true;
    };
    REQUIRE(Convert(checkpoint, calibrated.options, folder / "a", check, nullptr, nullptr).ok());
  }

  TEST_CASE("Convert: pieces of other options, and damaged ones, are not taken") {
    const TinyCheckpoint checkpoint = SomeCheckpoint();
    const TemporaryFolder folder, resume;
    Calibrated calibrated(1, 4, 96);
    ConvertTo(folder / "q4", checkpoint, calibrated.options);
    calibrated.calibration.resume_folder = resume.path();
    calibrated.options.weights = DType::kQ8;
    ConvertTo(folder / "q8", checkpoint, calibrated.options);
    REQUIRE(resume.count() == 2);
    calibrated.options.weights = DType::kQ4;
    ConvertTo(folder / "again", checkpoint, calibrated.options);
    CHECK(ReadFile(folder / "again") == ReadFile(folder / "q4"));
    std::string piece = ReadFile(resume / "block-1");
    piece[piece.size() / 2] ^= 1;
    WriteFile(resume / "block-1", piece);
    WriteFile(resume / "block-0", piece.substr(0, 50));
    ConvertTo(folder / "damaged", checkpoint, calibrated.options);
    CHECK(ReadFile(folder / "damaged") == ReadFile(folder / "q4"));
  }

  TEST_CASE("Convert: a budget of bits or bytes is kept, and more of it costs less") {
    const TinyCheckpoint checkpoint = SomeCheckpoint({.vocab_size = 512, .n_layers = 3});
    const TemporaryFolder folder;
    Calibrated calibrated(2, 8, 512);
    calibrated.options.embedding = calibrated.options.head = std::nullopt;
    double last_loss = 1e300;
    for (const double bits : {5.0, 6.0, 7.5}) {
      CAPTURE(bits);
      calibrated.options.bits = bits;
      const ConvertReport report = ConvertTo(folder / "a", checkpoint, calibrated.options);
      CHECK(report.bits_per_weight <= bits);
      CHECK(report.bits_per_weight > bits - 0.5);
      CHECK(report.choices.size() == 3 * 4 + 2);  // the embedding and the head too
      double loss = 0.0;
      for (const ConvertChoice& choice : report.choices) {
        CHECK(choice.probe_loss > 0.0);
        loss += choice.loss;
      }
      CHECK(loss < last_loss);
      last_loss = loss;
    }
    calibrated.options.bits = 0.0;
    for (const uint64_t size : {360'000, 420'000}) {
      calibrated.options.file_bytes = size;
      const ConvertReport report = ConvertTo(folder / "a", checkpoint, calibrated.options);
      CHECK(report.file_bytes <= size);
    }
  }

  TEST_CASE("Convert: a weight that is not finite is named, in whichever step it is met") {
    TinyCheckpoint checkpoint = SomeCheckpoint({.tied_head = true});
    const TemporaryFolder folder;
    Calibrated calibrated(2, 8, 96);
    calibrated.options.embedding = calibrated.options.head = DType::kQ4;
    std::string name = "ffn.down";
    SUBCASE("a layer") {}
    SUBCASE("a layer under a budget") { calibrated.options.bits = 6.0; }
    SUBCASE("a table") { name = "embedding.token"; }
    SUBCASE("a table under a budget") {
      name = "embedding.token";
      calibrated.options.bits = 6.0;
    }
    const bool is_table = name == "embedding.token";
    checkpoint.SetWeight(is_table ? TensorRole::kTokenEmbedding : TensorRole::kFfnDown, is_table ? -1 : 1, 17,
                         std::numeric_limits<float>::quiet_NaN());
    Diagnostic diagnostic;
    const Status status = Convert(checkpoint, calibrated.options, folder / "a", {}, nullptr, &diagnostic);
    CHECK(status.code() == StatusCode::kInvalidModel);
    const std::string text = diagnostic.text();
    CAPTURE(text);
    for (const std::string& part : {name, std::string("column 17"), std::string("not a finite number")}) {
      CHECK(text.find(part) != std::string::npos);
    }
    CHECK(folder.count() == 0);
  }

  TEST_CASE("Convert: what calibration cannot do is refused") {
    const TinyCheckpoint checkpoint = SomeCheckpoint();
    const TemporaryFolder folder;
    Calibrated calibrated(1, 2, 96);
    Diagnostic diagnostic;
    const auto refused = [&](const std::string& part) {
      const Status status = Convert(checkpoint, calibrated.options, folder / "a", {}, nullptr, &diagnostic);
      CHECK(status.code() == StatusCode::kInvalidArgument);
      CHECK(std::string(diagnostic.text()).find(part) != std::string::npos);
      CHECK(folder.count() == 0);
    };
    SUBCASE("an id outside the vocabulary") {
      calibrated.calibration.ids.back() = 96;
      refused("ids below 96");
    }
    SUBCASE("no whole windows") {
      calibrated.calibration.ids.pop_back();
      refused("whole windows");
    }
    SUBCASE("a budget without a text") {
      calibrated.options.calibration = nullptr;
      calibrated.options.bits = 5.0;
      refused("calibration text");
    }
    SUBCASE("too few bits") {
      calibrated.options.bits = 4.0;
      refused("--bits: expected at least");
    }
    SUBCASE("too small a file") {
      calibrated.options.file_bytes = 1000;
      refused("--size: expected at least");
    }
  }

  TEST_CASE("Convert: the memory of calibration does not grow with the number of blocks") {
    const auto peak_kib = [](uint32_t n_layers) -> uint64_t {
      const auto status_kib = [](const std::string& key) -> uint64_t {
        std::ifstream status("/proc/self/status");
        for (std::string line; std::getline(status, line);) {
          if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1));
        }
        return 0;
      };
      const TinyCheckpoint checkpoint(TinyConfig(
          {.model_dim = 256, .n_layers = n_layers, .n_heads = 4, .n_kv_heads = 4, .head_dim = 64, .ffn_dim = 768}));
      const TemporaryFolder folder;
      Calibrated calibrated(1, 2, 96);
      std::ofstream("/proc/self/clear_refs") << "5" << std::flush;
      ConvertTo(folder / "a", checkpoint, calibrated.options);
      return status_kib("VmHWM");
    };
    peak_kib(2);  // what the first conversion of a process takes for good
    const uint64_t few = peak_kib(2), many = peak_kib(10);
    MESSAGE("peak in KiB: ", few, " and ", many);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    // A block has 850 K weights, 3.4 MB as f32: eight more of them would take 27 MB. A heap in pieces takes some: 1 MB
    // alone, up to 13 in a static program after the cases above.
    if (few > 0) CHECK(many < few + 18432);
#endif
  }
}

}  // namespace linnet::formats
