// linnet bench: speed and memory of a model on this machine.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/file_mapping.h"
#include "examples/cli/args.h"
#include "examples/cli/bench_measure.h"
#include "examples/cli/bench_profile.h"
#include "examples/cli/bench_report.h"
#include "examples/cli/command.h"
#include "examples/cli/cpu_level.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/memory_report.h"
#include "examples/cli/output.h"
#include "platforms/clock.h"
#include "platforms/cpu.h"
#include "platforms/dot_product_peak.h"
#include "platforms/files.h"
#include "platforms/memory.h"

namespace linnet::cli {
namespace {

struct Options {
  RunOptions run;
  std::vector<uint32_t> prompt_tokens = {512};
  uint32_t generated_tokens = 128;
  std::vector<uint32_t> threads;
  std::vector<uint32_t> depths = {0};
  BenchRuns runs;
  bool profile = false, profile_layers = false;
  bool no_peaks = false;
  std::string html;
  bool json = false;

  bool profiles() const { return profile || profile_layers || !html.empty(); }
};

std::vector<BenchTest> MakeTests(const Options& options) {
  std::vector<BenchTest> tests;
  for (const uint32_t depth : options.depths) {
    for (const uint32_t tokens : options.prompt_tokens) {
      if (tokens != 0) tests.push_back({false, tokens, depth});
    }
    if (options.generated_tokens != 0) tests.push_back({true, options.generated_tokens, depth});
  }
  return tests;
}

// Positions that the longest test needs, and the prompt before the first token.
uint64_t NeededContext(const std::vector<BenchTest>& tests) {
  uint64_t needed = 1;
  for (const BenchTest& test : tests) needed = std::max<uint64_t>(needed, uint64_t{test.depth} + test.tokens);
  return needed;
}

// The whole prompt and the choice of the first token, right after loading: pages and caches are as they come.
Result<double> FirstTokenMs(Session& session, std::span<const int32_t> prompt) {
  const uint64_t start = platform::MonotonicNanoseconds();
  LINNET_RETURN_IF_ERROR(session.Prefill(prompt));
  const auto logits = session.logits();
  [[maybe_unused]] volatile auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  return platform::SecondsSince(start) * 1e3;
}

Result<MachinePeaks> MeasurePeaks(uint32_t threads, Diagnostic* diagnostic) {
  MachinePeaks peaks;
  LINNET_ASSIGN_OR_RETURN(peaks.bandwidth, platform::MeasureReadBandwidth(threads, diagnostic));
  LINNET_ASSIGN_OR_RETURN(peaks.dot_product, platform::MeasureDotProductPeak(threads, diagnostic));
  return peaks;
}

// One call of the command.
class Bench {
 public:
  Bench(const Options& options, std::vector<BenchTest> tests) : options_(options), tests_(std::move(tests)) {}

  Status Run(Diagnostic* diagnostic);

 private:
  Status RunThreads(uint32_t threads, Diagnostic* diagnostic);
  Status RunTest(LoadedModel& model, std::span<const int32_t> ids, const BenchTest& test, Diagnostic* diagnostic);
  Status Describe(LoadedModel& model, std::span<const int32_t> ids, Diagnostic* diagnostic);
  void Report(const BenchEntry& entry) const;
  Status WriteHtml(Diagnostic* diagnostic) const;

  const Options& options_;
  const std::vector<BenchTest> tests_;
  std::optional<MachinePeaks> peaks_;  // of the present thread count
  BenchReport report_;
};

void Bench::Report(const BenchEntry& entry) const {
  const bool show_profile = options_.profile || options_.profile_layers;
  if (options_.json) {
    PrintBenchEntryJson(report_.subject, entry);
    if (show_profile) PrintProfileJson(entry, options_.profile_layers);
    return;
  }
  PrintBenchEntry(entry);
  if (show_profile) PrintProfile(entry, options_.profile_layers);
}

Status Bench::RunTest(LoadedModel& model, std::span<const int32_t> ids, const BenchTest& test, Diagnostic* diagnostic) {
  Session& session = model.session();
  Progress progress("bench");
  BenchEntry entry;
  LINNET_ASSIGN_OR_RETURN(entry.result,
                          MeasureBenchTest(session, model.file().view(), ids, test, options_.runs, progress));
  entry.peaks = peaks_;
  if (options_.profiles()) {
    progress.Update(0, 0, "profile of " + test.Name());
    LINNET_ASSIGN_OR_RETURN(entry.profile,
                            ProfileBenchTest(session, model.file().view(), ids, test, options_.runs.repetitions));
  }
  progress.Hide();
  Report(entry);
  report_.entries.push_back(std::move(entry));
  return FlushOutput(diagnostic);
}

// What holds for all tests of this load; the first token too, which must come before any test.
Status Bench::Describe(LoadedModel& model, std::span<const int32_t> ids, Diagnostic* diagnostic) {
  const Plan& plan = model.session().plan();
  const std::string name(model.file().name());
  BenchSubject& subject = report_.subject;
  subject.model = name.empty() ? options_.run.model : name;
  subject.model_file = options_.run.model;
  subject.cpu_level = ReachedCpuLevel();
  subject.target = HighwayTargetName();
  subject.kv = ops::KvTypeName(plan.kv_type);
  subject.repetitions = options_.runs.repetitions;
  LoadFigures& load = report_.load;
  load.threads = plan.options.n_threads;
  load.first_token_prompt = std::max(options_.prompt_tokens.front(), 1u);
  LINNET_ASSIGN_OR_RETURN(load.memory, MakeMemoryReport(plan, model.file(), diagnostic));
  LINNET_ASSIGN_OR_RETURN(load.first_token_ms, FirstTokenMs(model.session(), ids.first(load.first_token_prompt)));
  load.load_ms = model.load_seconds() * 1e3;
  load.packed_mapped = model.packed_mapped();
  return Status::Ok();
}

Status Bench::RunThreads(uint32_t threads, Diagnostic* diagnostic) {
  // First, and the memory's peak starts anew behind it: its buffer is none of the model's memory.
  if (!options_.no_peaks) {
    LINNET_ASSIGN_OR_RETURN(peaks_, MeasurePeaks(threads, diagnostic));
  }
  platform::ResetPeakMemory();
  RunOptions run = options_.run;
  run.threads = threads;
  if (run.context_tokens == 0) run.context_tokens = static_cast<uint32_t>(NeededContext(tests_));
  LINNET_ASSIGN_OR_RETURN(LoadedModel model, LoadedModel::Load(run, 1, diagnostic));
  if (NeededContext(tests_) > model.session().plan().options.context_tokens) {
    return Fail(diagnostic, StatusCode::kContextFull, "the tests do not fit into the context",
                "--context: expected at least %llu, found %u", static_cast<unsigned long long>(NeededContext(tests_)),
                model.session().plan().options.context_tokens);
  }
  const std::vector<int32_t> ids = RandomIds(static_cast<size_t>(NeededContext(tests_)), model.config().vocab_size);
  LINNET_RETURN_IF_ERROR(Describe(model, ids, diagnostic));
  for (const BenchTest& test : tests_) LINNET_RETURN_IF_ERROR(RunTest(model, ids, test, diagnostic));
  auto counters = platform::ReadMemoryCounters();
  if (counters.ok()) report_.load.counters = *counters;
  report_.load.program_bytes = platform::ResidentProgramBytes();
  return Status::Ok();
}

Status Bench::WriteHtml(Diagnostic* diagnostic) const {
  const std::string page = BenchHtml(report_);
  LINNET_ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Create(options_.html, diagnostic));
  LINNET_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(page)), diagnostic));
  return file.Commit(diagnostic);
}

Status Bench::Run(Diagnostic* diagnostic) {
  if (!options_.html.empty()) {
    LINNET_RETURN_IF_ERROR(CheckOutputIsNot(options_.run.model, options_.html, diagnostic));
  }
  LINNET_RETURN_IF_ERROR(PrepareProcess(options_.run, diagnostic));
  report_.subject.cpu = platform::DescribeCpu().name;
  std::vector<uint32_t> threads = options_.threads;
  if (threads.empty()) threads = {ToSessionOptions(options_.run, 1).n_threads};
  if (!options_.json) PrintBenchHeader();
  // Figures of loading are those of the last thread count: by then the packed file exists.
  for (const uint32_t count : threads) LINNET_RETURN_IF_ERROR(RunThreads(count, diagnostic));
  report_.load_peaks = peaks_;
  if (options_.json) {
    PrintBenchLoadJson(report_.load, peaks_);
  } else {
    PrintBenchLoad(report_.load, peaks_);
  }
  return options_.html.empty() ? Status::Ok() : WriteHtml(diagnostic);
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  return Bench(options, MakeTests(options)).Run(diagnostic);
}

}  // namespace

void AddBench(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      commands.Add("bench", "Measure prefill (pp) and decode (tg) speed, load time, time to the first token and memory",
                   "linnet bench model.linnet -p 512 -n 128 -t 1,2 --json");
  AddRunOptionsWithoutThreads(command, &options->run);
  AddNumberList(command, "-t,--threads", 1, kMaxThreads, &options->threads,
                "Thread counts to measure (default: the fast cores that this process may use)");
  AddNumberList(command, "-p,--prompt-tokens", 0, kMaxContext, &options->prompt_tokens,
                "Tokens of the prefill tests; 0: none (default: 512)");
  command->add_option("-n,--tokens", options->generated_tokens, "Tokens of the decode test; 0: none (default: 128)")
      ->check(CLI::Range(0u, kMaxContext));
  AddNumberList(command, "-d,--depth", 0, kMaxContext, &options->depths,
                "Tokens already in the context when a test starts (default: 0)");
  command->add_option("-r,--repetitions", options->runs.repetitions, "Runs of each test after a warm-up (default: 5)")
      ->check(CLI::Range(1u, 1000u));
  command->add_option("--warm-up", options->runs.warm_up, "Runs of each test that are not counted (default: 1)")
      ->check(CLI::Range(0u, 1000u));
  command->add_flag("--profile", options->profile,
                    "Also list each kind of step: time, bytes, multiply-adds, kernel, instruction set");
  command->add_flag("--profile-layers", options->profile_layers, "The same for every step of every layer");
  command->add_flag("--no-peaks", options->no_peaks,
                    "Do not measure the machine's read bandwidth and int8 peak, which takes about two seconds");
  command
      ->add_option("--html", options->html, "Also write a page with plots: roofline, speed by depth, memory by class")
      ->type_name("FILE");
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
