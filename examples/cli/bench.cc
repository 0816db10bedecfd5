// linnet bench: speed and memory of a model on this machine.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/cpu_level.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/memory_report.h"
#include "examples/cli/output.h"
#include "platforms/clock.h"
#include "platforms/cpu.h"
#include "platforms/memory.h"

namespace linnet::cli {
namespace {

struct Options {
  RunOptions run;
  std::vector<uint32_t> prompt_tokens = {512};
  uint32_t generated_tokens = 128;
  std::vector<uint32_t> threads;
  std::vector<uint32_t> depths = {0};
  uint32_t repetitions = 5;
  bool json = false;
};

// What one loaded model is asked to measure.
struct Test {
  bool decode = false;
  uint32_t tokens = 0;
  uint32_t depth = 0;

  std::string Name() const {
    std::string name = (decode ? "tg" : "pp") + std::to_string(tokens);
    if (depth != 0) name += "@" + std::to_string(depth);
    return name;
  }
};

struct Measured {
  double tokens_per_s = 0.0;  // median
  double spread = 0.0;        // (fastest - slowest) / median
};

struct LoadFigures {
  double load_ms = 0.0;
  double first_token_ms = 0.0;
  uint64_t peak_rss_bytes = 0;
  MemoryReport memory;
  bool packed_mapped = false;
};

// Ids without structure, the same in every run.
std::vector<int32_t> RandomIds(size_t count, uint32_t vocab_size) {
  std::vector<int32_t> ids(count);
  uint64_t state = 1;
  for (int32_t& id : ids) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    id = static_cast<int32_t>((state >> 33) % vocab_size);
  }
  return ids;
}

// Leaves the session with `depth` tokens. Window layers may have lost what a rewind needs: then from the start.
Status GoTo(Session& session, std::span<const int32_t> ids, uint32_t depth) {
  if (session.position() >= depth && session.Rewind(depth).ok()) return Status::Ok();
  LINNET_RETURN_IF_ERROR(session.Rewind(0));
  return depth == 0 ? Status::Ok() : session.Prefill(ids.first(depth));
}

Result<double> RunOnce(Session& session, std::span<const int32_t> ids, const Test& test) {
  LINNET_RETURN_IF_ERROR(GoTo(session, ids, test.depth));
  const uint64_t start = platform::MonotonicNanoseconds();
  const auto work = ids.subspan(test.depth, test.tokens);
  if (test.decode) {
    for (const int32_t id : work) LINNET_RETURN_IF_ERROR(session.Decode(id));
  } else {
    LINNET_RETURN_IF_ERROR(session.Prefill(work));
  }
  return platform::SecondsSince(start);
}

Result<Measured> Measure(Session& session, std::span<const int32_t> ids, const Test& test, uint32_t repetitions,
                         Progress& progress) {
  LINNET_ASSIGN_OR_RETURN([[maybe_unused]] const double warm_up, RunOnce(session, ids, test));
  std::vector<double> speeds;
  for (uint32_t i = 0; i < repetitions; ++i) {
    progress.Update(i, repetitions, test.Name());
    LINNET_ASSIGN_OR_RETURN(const double seconds, RunOnce(session, ids, test));
    speeds.push_back(test.tokens / std::max(seconds, 1e-9));
  }
  std::sort(speeds.begin(), speeds.end());
  Measured result;
  const size_t middle = speeds.size() / 2;
  result.tokens_per_s = speeds.size() % 2 == 1 ? speeds[middle] : 0.5 * (speeds[middle - 1] + speeds[middle]);
  result.spread = (speeds.back() - speeds.front()) / result.tokens_per_s;
  return result;
}

std::vector<Test> MakeTests(const Options& options) {
  std::vector<Test> tests;
  for (const uint32_t depth : options.depths) {
    for (const uint32_t tokens : options.prompt_tokens) {
      if (tokens != 0) tests.push_back({false, tokens, depth});
    }
    if (options.generated_tokens != 0) tests.push_back({true, options.generated_tokens, depth});
  }
  return tests;
}

// Positions that the longest test needs.
uint64_t NeededContext(const std::vector<Test>& tests) {
  uint64_t needed = 1;
  for (const Test& test : tests) needed = std::max<uint64_t>(needed, uint64_t{test.depth} + test.tokens);
  return needed;
}

void Report(const Options& options, const LoadedModel& model, const platform::CpuInfo& cpu, const Test& test,
            uint32_t threads, const Measured& measured) {
  if (!options.json) {
    PrintFormat("%-14s %7u %14.2f %9.1f %%\n", test.Name().c_str(), threads, measured.tokens_per_s,
                measured.spread * 100);
    return;
  }
  const std::string name(model.file().name());
  PrintJson({{"test", test.Name()},
             {"threads", threads},
             {"tokens_per_s", measured.tokens_per_s},
             {"spread", measured.spread},
             {"repetitions", options.repetitions},
             {"model", name.empty() ? options.run.model : name},
             {"model_file", options.run.model},
             {"cpu", cpu.name},
             {"cpu_level", ReachedCpuLevel()},
             {"target", HighwayTargetName()},
             {"version", LINNET_VERSION}});
}

void ReportLoad(const Options& options, const LoadFigures& load, uint32_t threads,
                const platform::ReadBandwidth& bandwidth) {
  if (options.json) {
    nlohmann::ordered_json json = {{"test", "load"},
                                   {"threads", threads},
                                   {"load_ms", load.load_ms},
                                   {"first_token_ms", load.first_token_ms},
                                   {"peak_rss_bytes", load.peak_rss_bytes},
                                   {"plan_bytes", load.memory.Total()},
                                   {"packed_mapped", load.packed_mapped},
                                   {"read_bandwidth_bytes_per_s", bandwidth.bytes_per_s},
                                   {"read_bandwidth_threads", bandwidth.threads}};
    for (const MemoryReport::Class& part : load.memory.Classes()) json[std::string(part.name) + "_bytes"] = part.bytes;
    PrintJson(json);
    return;
  }
  PrintFormat("\nload %.1f ms, first token after another %.1f ms (prompt of %u)\n", load.load_ms, load.first_token_ms,
              std::max(options.prompt_tokens.front(), 1u));
  PrintFormat("memory: peak %s, planned %s (packed weights %s)\n", HumanBytes(load.peak_rss_bytes).c_str(),
              HumanBytes(load.memory.Total()).c_str(), load.packed_mapped ? "mapped" : "in anonymous memory");
  PrintFormat("memory is read at %.2f GB/s by %u threads (spread %.1f %%)\n", bandwidth.bytes_per_s * 1e-9,
              bandwidth.threads, bandwidth.spread * 100);
}

// The whole prompt and the choice of the first token, right after loading: pages and caches are as they come.
Result<double> FirstTokenMs(Session& session, std::span<const int32_t> ids, uint32_t prompt_tokens) {
  const uint64_t start = platform::MonotonicNanoseconds();
  LINNET_RETURN_IF_ERROR(session.Prefill(ids.first(std::max(prompt_tokens, 1u))));
  const auto logits = session.logits();
  [[maybe_unused]] volatile auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  return platform::SecondsSince(start) * 1e3;
}

Status BenchThreads(const Options& options, const std::vector<Test>& tests, uint32_t threads,
                    const platform::CpuInfo& cpu, LoadFigures* load, Diagnostic* diagnostic) {
  RunOptions run = options.run;
  run.threads = threads;
  if (run.context_tokens == 0) run.context_tokens = static_cast<uint32_t>(NeededContext(tests));
  LINNET_ASSIGN_OR_RETURN(LoadedModel model, LoadedModel::Load(run, 1, diagnostic));
  Session& session = model.session();
  if (NeededContext(tests) > session.plan().options.context_tokens) {
    return Fail(diagnostic, StatusCode::kContextFull, "the tests do not fit into the context",
                "--context: expected at least %llu, found %u", static_cast<unsigned long long>(NeededContext(tests)),
                session.plan().options.context_tokens);
  }
  const std::vector<int32_t> ids = RandomIds(static_cast<size_t>(NeededContext(tests)), model.config().vocab_size);
  LINNET_ASSIGN_OR_RETURN(load->memory, MakeMemoryReport(session.plan(), model.file(), diagnostic));
  LINNET_ASSIGN_OR_RETURN(load->first_token_ms, FirstTokenMs(session, ids, options.prompt_tokens.front()));
  load->load_ms = model.load_seconds() * 1e3;
  load->packed_mapped = model.packed_mapped();
  Progress progress("bench");
  for (const Test& test : tests) {
    LINNET_ASSIGN_OR_RETURN(const Measured measured, Measure(session, ids, test, options.repetitions, progress));
    progress.Hide();
    Report(options, model, cpu, test, threads, measured);
    LINNET_RETURN_IF_ERROR(FlushOutput(diagnostic));
  }
  auto counters = platform::ReadMemoryCounters();
  if (counters.ok()) load->peak_rss_bytes = counters->peak_resident_bytes;
  return Status::Ok();
}

Status Run(Options& options, Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(PrepareProcess(options.run, diagnostic));
  const platform::CpuInfo cpu = platform::DescribeCpu();
  if (options.threads.empty()) options.threads = {ToSessionOptions(options.run, 1).n_threads};
  const std::vector<Test> tests = MakeTests(options);
  platform::ResetPeakMemory();
  if (!options.json) PrintFormat("%-14s %7s %14s %11s\n", "test", "threads", "tokens/s", "spread");
  // Figures of loading are those of the last thread count: by then the packed file exists.
  LoadFigures load;
  for (const uint32_t threads : options.threads) {
    LINNET_RETURN_IF_ERROR(BenchThreads(options, tests, threads, cpu, &load, diagnostic));
  }
  const uint32_t threads = options.threads.back();
  LINNET_ASSIGN_OR_RETURN(const platform::ReadBandwidth bandwidth, platform::MeasureReadBandwidth(threads, diagnostic));
  ReportLoad(options, load, threads, bandwidth);
  return Status::Ok();
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
  AddNumberList(command, "--depth", 0, kMaxContext, &options->depths,
                "Tokens already in the context when a test starts (default: 0)");
  command->add_option("-r,--repetitions", options->repetitions, "Runs of each test after a warm-up (default: 5)")
      ->check(CLI::Range(1u, 1000u));
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
