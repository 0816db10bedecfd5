// linnet verify: whether a model file is whole, and whether this device computes what was recorded with it.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/cpu_level.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/output.h"

namespace linnet::cli {
namespace {

using formats::Golden;

// Recorded runs: of ids from all over the vocabulary, and of the model's own likeliest text.
constexpr uint32_t kGoldenTokens = 32;  // of each run, or the context where that is less
constexpr uint32_t kGoldenPrompt = 4;   // ids that the second run begins with
constexpr uint32_t kGoldenTop = 8;      // logits kept of each position

// How far logits may be from the recorded ones: root mean square, in standard deviations of a position's logits.
// Kernels of different instruction sets add in different orders; where activations are rounded to int8, the last bit of
// a sum decides roundings, which later layers carry on. README.md has what was measured.
constexpr double kFloatTolerance = 0.001;
constexpr double kQuantizedTolerance = 0.2;

struct Options {
  RunOptions run;
  bool record = false;
  bool json = false;
};

// All positions' logits of one prefill.
struct Rows {
  size_t vocab_size = 0;
  std::vector<float> logits;

  static void Take(void* context, uint32_t, const float* logits, uint32_t n_rows) {
    Rows& rows = *static_cast<Rows*>(context);
    rows.logits.insert(rows.logits.end(), logits, logits + size_t{n_rows} * rows.vocab_size);
  }
  std::span<const float> Row(size_t index) const { return std::span(logits).subspan(index * vocab_size, vocab_size); }
};

Status Replay(LoadedModel& model, std::span<const int32_t> ids, Rows* rows) {
  rows->vocab_size = model.config().vocab_size;
  rows->logits.clear();
  LINNET_RETURN_IF_ERROR(model.session().Rewind(0));
  return model.session().Prefill(ids, {}, {Rows::Take, rows, 0});
}

uint32_t TokensOfRun(LoadedModel& model) {
  return std::min(kGoldenTokens, model.session().plan().options.context_tokens);
}

// Ids that differ from model to model only by the vocabulary's size.
std::vector<int32_t> ScatteredIds(LoadedModel& model) {
  const int32_t bos = model.file().generation().bos_id;
  std::vector<int32_t> ids = {std::max(bos, 0)};
  uint32_t state = 1;
  while (ids.size() < TokensOfRun(model)) {
    state = state * 1664525u + 1013904223u;  // the generator of Numerical Recipes
    ids.push_back(static_cast<int32_t>((state >> 8) % model.config().vocab_size));
  }
  return ids;
}

Status Continue(LoadedModel& model, std::vector<int32_t>* ids) {
  LINNET_RETURN_IF_ERROR(model.session().Rewind(0));
  LINNET_RETURN_IF_ERROR(model.session().Prefill(*ids));
  while (ids->size() < TokensOfRun(model)) {
    const auto logits = model.session().logits();
    ids->push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    LINNET_RETURN_IF_ERROR(model.session().Decode(ids->back()));
  }
  return Status::Ok();
}

Result<Golden> Record(LoadedModel& model, std::vector<int32_t> ids, Diagnostic* diagnostic) {
  Rows rows;
  LINNET_RETURN_IF_ERROR(Replay(model, ids, &rows));
  Golden golden;
  golden.n_top = std::min<uint32_t>(kGoldenTop, model.config().vocab_size);
  std::vector<int32_t> order(rows.vocab_size);
  for (size_t position = 0; position < ids.size(); ++position) {
    const std::span<const float> row = rows.Row(position);
    if (!std::all_of(row.begin(), row.end(), [](float logit) { return std::isfinite(logit); })) {
      return Fail(diagnostic, StatusCode::kInvalidModel, "logits that are not finite",
                  "position %zu of a recorded run: expected finite logits", position);
    }
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    const auto better = [row](int32_t a, int32_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; };
    std::partial_sort(order.begin(), order.begin() + golden.n_top, order.end(), better);
    golden.top_ids.insert(golden.top_ids.end(), order.begin(), order.begin() + golden.n_top);
    for (uint32_t i = 0; i < golden.n_top; ++i) golden.top_logits.push_back(row[order[i]]);
  }
  golden.ids = std::move(ids);
  return golden;
}

Status RecordAll(const Options& options, LoadedModel& model, Diagnostic* diagnostic) {
  std::vector<int32_t> scattered = ScatteredIds(model);
  std::vector<int32_t> text = scattered;
  text.resize(std::min<size_t>(kGoldenPrompt, text.size()));
  LINNET_RETURN_IF_ERROR(Continue(model, &text));
  std::vector<Golden> goldens(2);
  LINNET_ASSIGN_OR_RETURN(goldens[0], Record(model, std::move(scattered), diagnostic));
  LINNET_ASSIGN_OR_RETURN(goldens[1], Record(model, std::move(text), diagnostic));
  LINNET_RETURN_IF_ERROR(model.file().WriteCopy(options.run.model, goldens, diagnostic));
  if (options.json) {
    PrintJson({{"model", options.run.model}, {"recorded", goldens.size()}, {"positions", 2 * TokensOfRun(model)}});
  } else {
    PrintFormat("%s: recorded %zu runs of %u tokens on %s\n", options.run.model.c_str(), goldens.size(),
                TokensOfRun(model), ReachedCpuLevel().c_str());
  }
  return Status::Ok();
}

struct Agreement {
  size_t positions = 0, same_top = 0;
  // Differences in standard deviations of the position's logits; NaN where a logit is not finite.
  size_t logits = 0;
  double squares = 0.0, largest = 0.0;
  bool same_bits = true;

  double Rms() const { return logits == 0 ? 0.0 : std::sqrt(squares / static_cast<double>(logits)); }
};

double Deviation(std::span<const float> row) {
  double mean = 0.0, squares = 0.0;
  for (const float logit : row) mean += double{logit} / static_cast<double>(row.size());
  for (const float logit : row) squares += (logit - mean) * (logit - mean);
  return std::sqrt(squares / static_cast<double>(row.size()));
}

void Compare(const Golden& golden, const Rows& rows, Agreement* agreement) {
  for (size_t position = 0; position < golden.ids.size(); ++position) {
    const std::span<const float> row = rows.Row(position);
    const double deviation = Deviation(row);
    for (size_t i = position * golden.n_top; i < (position + 1) * golden.n_top; ++i) {
      const float found = row[static_cast<size_t>(golden.top_ids[i])], expected = golden.top_logits[i];
      agreement->same_bits = agreement->same_bits && found == expected;
      ++agreement->logits;
      if (found == expected) continue;
      const double difference = std::abs(double{found} - double{expected}) / deviation;
      agreement->squares += difference * difference;
      agreement->largest = std::max(agreement->largest, difference);
    }
    const auto top = std::max_element(row.begin(), row.end()) - row.begin();
    ++agreement->positions;
    agreement->same_top += golden.n_top > 0 && top == golden.top_ids[position * golden.n_top];
  }
}

double ToleranceOf(const LoadedModel& model) {
  const auto tensors = model.file().view().tensors();
  const bool quantized =
      std::any_of(tensors.begin(), tensors.end(), [](const TensorView& tensor) { return IsQuantized(tensor.dtype); });
  return quantized ? kQuantizedTolerance : kFloatTolerance;
}

void PrintAgreement(const Options& options, size_t goldens, const Agreement& agreement, double tolerance) {
  if (options.json) {
    PrintJson({{"model", options.run.model},
               {"goldens", goldens},
               {"positions", agreement.positions},
               {"same_top", agreement.same_top},
               {"rms_difference", agreement.Rms()},
               {"largest_difference", agreement.largest},
               {"tolerance", tolerance},
               {"same_bits", agreement.same_bits},
               {"cpu", ReachedCpuLevel()}});
    return;
  }
  PrintFormat("%s: the file is whole; %zu positions of %zu recorded runs on %s: %s, same top token at %zu\n",
              options.run.model.c_str(), agreement.positions, goldens, ReachedCpuLevel().c_str(),
              agreement.same_bits ? "the same bits" : "near", agreement.same_top);
  if (agreement.same_bits) return;
  PrintFormat(
      "differences in standard deviations of a position's logits: root mean square %.4g (at most %.4g), largest "
      "%.4g\n",
      agreement.Rms(), tolerance, agreement.largest);
}

Status ReplayAll(const Options& options, LoadedModel& model, Diagnostic* diagnostic) {
  const auto goldens = model.file().goldens();
  if (goldens.empty()) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "no recorded answers",
                "%s: expected recorded runs, found none (linnet verify --record makes them)",
                options.run.model.c_str());
  }
  Agreement agreement;
  Rows rows;
  for (const Golden& golden : goldens) {
    LINNET_RETURN_IF_ERROR(model.CheckPrompt(golden.ids, diagnostic));
    LINNET_RETURN_IF_ERROR(Replay(model, golden.ids, &rows));
    Compare(golden, rows, &agreement);
  }
  const double tolerance = ToleranceOf(model);
  if (!(agreement.Rms() <= tolerance)) {
    return Fail(diagnostic, StatusCode::kInternal, "this device computes something else",
                "%s on %s: expected logits within %.4g standard deviations of the recorded ones, found %.4g",
                options.run.model.c_str(), ReachedCpuLevel().c_str(), tolerance, agreement.Rms());
  }
  PrintAgreement(options, goldens.size(), agreement, tolerance);
  return Status::Ok();
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(LoadedModel model, LoadedModel::Load(options.run, kGoldenTokens, diagnostic));
  LINNET_RETURN_IF_ERROR(model.file().CheckContent(diagnostic));
  return options.record ? RecordAll(options, model, diagnostic) : ReplayAll(options, model, diagnostic);
}

}  // namespace

void AddVerify(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      commands.Add("verify", "Check a model file's hashes, and replay the answers recorded in it on this device",
                   "linnet verify model.linnet");
  AddRunOptions(command, &options->run);
  command->add_flag("--record", options->record, "Record this device's answers in the file, in place of any others");
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
