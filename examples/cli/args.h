// Options that several commands share, checked while the command line is parsed: what is wrong there is a usage error.
#ifndef LINNET_EXAMPLES_CLI_ARGS_H_
#define LINNET_EXAMPLES_CLI_ARGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan.h"
#include "core/sampler.h"

namespace linnet::cli {

/// How to run a model; the same in every command that does. Zeros are replaced by defaults.
struct RunOptions {
  std::string model;
  uint32_t context_tokens = 0;  // 0: the model's context length, at most kDefaultContext
  uint32_t chunk_tokens = 0;
  uint32_t threads = 0;  // 0: platform::DefaultThreadCount()
  SessionOptions::Kv kv = SessionOptions::Kv::kAuto;
  std::string cpu_level;       // empty: the best of this CPU
  bool no_cache = false;       // pack weights into anonymous memory, read and write no packed file
  uint64_t memory_bytes = 0;   // SessionOptions::memory_budget; 0: none
  bool lock = false;           // weights and session memory stay resident
  std::vector<uint32_t> cpus;  // logical CPUs to run on; empty: those that the process may use
};

void AddModelArgument(CLI::App* command, std::string* path);
/// The model and every option of RunOptions.
void AddRunOptions(CLI::App* command, RunOptions* options);
/// The same without --threads, for commands that take a list of them.
void AddRunOptionsWithoutThreads(CLI::App* command, RunOptions* options);
/// --kv; `default_text` is what the help says about a missing one.
void AddKvOption(CLI::App* command, const std::string& default_text, std::function<void(ops::KvType)> assign);
void AddThreadsOption(CLI::App* command, uint32_t* threads);
void AddCpusOption(CLI::App* command, std::vector<uint32_t>* cpus);
CLI::Option* AddJsonFlag(CLI::App* command, bool* json);

/// --NAME 1,2,3: token ids, at least one, each >= 0.
CLI::Option* AddIdsOption(CLI::App* command, const std::string& name, std::vector<int32_t>* ids,
                          const std::string& description);
/// A comma-separated list of numbers in [min, max].
CLI::Option* AddNumberList(CLI::App* command, const std::string& name, uint32_t min, uint32_t max,
                           std::vector<uint32_t>* numbers, const std::string& description);

/// Sampler options as given; negative: not given.
struct SamplerArguments {
  float temperature = -1.0f;
  int32_t top_k = -1;
  float top_p = -1.0f;
  float min_p = -1.0f;
  float repetition_penalty = -1.0f;
  uint64_t seed = 0;
};
/// `temperature_default` is what the help says about a missing --temp.
void AddSamplerOptions(CLI::App* command, SamplerArguments* arguments, const std::string& temperature_default);

/// "300M", "1.5G", "4096": bytes, K, M, G and T being powers of 1024 (with or without iB). 0 where anything else stands
/// there.
uint64_t ParseBytes(std::string_view text);

/// "1.5GiB" -> 1.5, "gib": a number without sign or exponent, and what follows it in small letters.
bool SplitUnit(std::string_view text, double* number, std::string* unit);

/// "0-3,6": numbers in [0, max] and ranges of them, sorted, each once. False where anything else stands there.
bool ParseRanges(std::string_view text, uint32_t max, std::vector<uint32_t>* numbers);

/// Accepts a number in [min, max]; unlike CLI::Range not NaN.
CLI::Validator FiniteRange(double min, double max);

/// Splits "1,2,3" (commas, white space or both) into numbers in [min, max]. False where anything else stands there.
bool ParseNumbers(std::string_view text, int64_t min, int64_t max, std::vector<int64_t>* numbers);

constexpr uint32_t kMaxThreads = 256;  // ops::ThreadPool::kMaxThreads
constexpr uint32_t kMaxCpu = 8191;     // Linux's own largest number of CPUs, less one
constexpr uint32_t kMaxGeneratedTokens = kMaxContext;

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_ARGS_H_
