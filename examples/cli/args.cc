#include "examples/cli/args.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <limits>

#include "core/base/parse_double.h"
#include "examples/cli/cpu_level.h"

namespace linnet::cli {
namespace {

bool IsSeparator(char c) { return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// At least one id from the command line: an empty list is a mistake there.
CLI::Option* AddList(CLI::App* command, const std::string& name, int64_t min, int64_t max,
                     const std::string& description, std::function<void(const std::vector<int64_t>&)> assign) {
  const auto parse = [name, min, max, assign](const std::string& text) {
    std::vector<int64_t> numbers;
    if (!ParseNumbers(text, min, max, &numbers) || numbers.empty()) {
      const std::string shown = text.size() <= 60 ? text : text.substr(0, 60) + "...";
      throw CLI::ValidationError(name, "expected numbers from " + std::to_string(min) + " to " + std::to_string(max) +
                                           " with commas between them, found \"" + shown + "\"");
    }
    assign(numbers);
  };
  return command->add_option_function<std::string>(name, parse, description)->type_name("N,N,...");
}

SessionOptions::Kv ToSessionKv(ops::KvType type) {
  switch (type) {
    case ops::KvType::kF32:
      return SessionOptions::Kv::kF32;
    case ops::KvType::kF16:
      return SessionOptions::Kv::kF16;
    case ops::KvType::kInt8:
      return SessionOptions::Kv::kInt8;
  }
  return SessionOptions::Kv::kAuto;
}

}  // namespace

CLI::Validator FiniteRange(double min, double max) {
  const auto check = [min, max](std::string& text) -> std::string {
    double value = 0.0;
    if (ParseDouble(text, &value) && value >= min && value <= max) return "";
    char message[128];
    std::snprintf(message, sizeof(message), "expected a number from %g to %g, found \"%.40s\"", min, max, text.c_str());
    return message;
  };
  return CLI::Validator(check, "NUMBER");
}

bool ParseNumbers(std::string_view text, int64_t min, int64_t max, std::vector<int64_t>* numbers) {
  const char* at = text.data();
  const char* end = at + text.size();
  bool comma_pending = false;  // a comma must be followed by a number
  while (true) {
    while (at < end && IsSeparator(*at)) {
      if (*at == ',' && (comma_pending || numbers->empty())) return false;
      comma_pending = comma_pending || *at == ',';
      ++at;
    }
    if (at == end) return !comma_pending;
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < min || value > max) return false;
    if (next != end && !IsSeparator(*next)) return false;
    numbers->push_back(value);
    comma_pending = false;
    at = next;
  }
}

bool SplitUnit(std::string_view text, double* number, std::string* unit) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  *unit = text.substr(digits);
  for (char& c : *unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ParseDouble(text.substr(0, digits), number);
}

uint64_t ParseBytes(std::string_view text) {
  double number = 0.0;
  std::string unit;
  if (!SplitUnit(text, &number, &unit)) return 0;
  if (unit.size() == 3 && unit.ends_with("ib")) unit.resize(1);
  constexpr std::string_view kUnits = "kmgt";
  const size_t power = unit.empty() ? 0 : kUnits.find(unit[0]) + 1;
  if (unit.size() > 1 || (power == 0 && !unit.empty())) return 0;
  number *= static_cast<double>(uint64_t{1} << (10 * power));
  return number >= 1.0 && number < 0x1p53 ? static_cast<uint64_t>(number) : 0;
}

bool ParseRanges(std::string_view text, uint32_t max, std::vector<uint32_t>* numbers) {
  const char* at = text.data();
  const char* end = at + text.size();
  const auto number = [&](uint32_t* value) {
    const auto [next, error] = std::from_chars(at, end, *value);
    at = next;
    return error == std::errc() && *value <= max;
  };
  while (true) {
    uint32_t first = 0;
    if (!number(&first)) return false;
    uint32_t last = first;
    if (at < end && *at == '-' && (++at, !number(&last) || last < first)) return false;
    for (uint32_t value = first; value <= last; ++value) numbers->push_back(value);
    if (at == end) break;
    if (*at++ != ',') return false;
  }
  std::sort(numbers->begin(), numbers->end());
  numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
  return true;
}

void AddModelArgument(CLI::App* command, std::string* path) {
  command->add_option("model", *path, "The model file (made by linnet convert)")->required()->type_name("MODEL");
}

void AddThreadsOption(CLI::App* command, uint32_t* threads) {
  command->add_option("-t,--threads", *threads, "Threads (default: the fast cores that this process may use)")
      ->check(CLI::Range(1u, kMaxThreads));
}

void AddCpusOption(CLI::App* command, std::vector<uint32_t>* cpus) {
  const auto parse = [cpus](const std::string& text) {
    cpus->clear();
    if (ParseRanges(text, kMaxCpu, cpus)) return;
    throw CLI::ValidationError("--cpus", "expected numbers and ranges such as 0-1,3, found \"" + text + "\"");
  };
  command
      ->add_option_function<std::string>("--cpus", parse,
                                         "Run on these logical CPUs only, a thread on each unless --threads says "
                                         "otherwise (default: those that the process may use)")
      ->type_name("N-N,N,...");
}

CLI::Option* AddJsonFlag(CLI::App* command, bool* json) {
  return command->add_flag("--json", *json, "Print JSON for programs");
}

// CLI::CheckedTransformer would write the enumerators, which are bytes, into the help and its errors.
void AddKvOption(CLI::App* command, const std::string& default_text, std::function<void(ops::KvType)> assign) {
  const auto parse = [assign](const std::string& text) {
    for (const ops::KvType type : {ops::KvType::kF32, ops::KvType::kF16, ops::KvType::kInt8}) {
      if (text == ops::KvTypeName(type)) return assign(type);
    }
    throw CLI::ValidationError("--kv", "expected f32, f16 or int8, found " + text);
  };
  command
      ->add_option_function<std::string>("--kv", parse,
                                         "Type of the KV cache: f32, f16 or int8 (default: " + default_text + ")")
      ->type_name("TYPE");
}

void AddRunOptionsWithoutThreads(CLI::App* command, RunOptions* options) {
  AddModelArgument(command, &options->model);
  command
      ->add_option("-c,--context", options->context_tokens,
                   "Positions that the KV cache holds (default: the model's context, at most " +
                       std::to_string(kDefaultContext) + ")")
      ->check(CLI::Range(1u, kMaxContext));
  command
      ->add_option("--chunk", options->chunk_tokens,
                   "Prompt tokens per pass (default: " + std::to_string(kSmallestChunk) + " to " +
                       std::to_string(kLargestChunk) + ", by the second-level cache)")
      ->check(CLI::Range(1u, kMaxContext));
  AddKvOption(command, "f16 with quantized weights, else f32",
              [options](ops::KvType type) { options->kv = ToSessionKv(type); });
  command->add_option("--cpu", options->cpu_level, "Use no more than this instruction-set level of the CPU")
      ->check(CLI::IsMember(CpuLevels()))
      ->type_name("LEVEL");
  const auto parse_memory = [options](const std::string& text) {
    options->memory_bytes = ParseBytes(text);
    if (options->memory_bytes != 0) return;
    throw CLI::ValidationError("--memory", "expected bytes such as 300M or 1.5G, found \"" + text + "\"");
  };
  command
      ->add_option_function<std::string>(
          "--memory", parse_memory,
          "Stay within this many bytes (K, M, G: powers of 1024), counting all that plan prints, mapped files too; "
          "chooses the largest context and prefill chunk that fit where --context and --chunk do not say")
      ->type_name("BYTES");
  command->add_flag("--lock", options->lock, "Keep weights, KV cache and activations in memory (mlock)");
  AddCpusOption(command, &options->cpus);
  command->add_flag("--no-cache", options->no_cache,
                    "Read and write no file of packed weights: pack them into memory at every start");
}

void AddRunOptions(CLI::App* command, RunOptions* options) {
  AddRunOptionsWithoutThreads(command, options);
  AddThreadsOption(command, &options->threads);
}

CLI::Option* AddIdsOption(CLI::App* command, const std::string& name, std::vector<int32_t>* ids,
                          const std::string& description) {
  return AddList(command, name, 0, std::numeric_limits<int32_t>::max(), description,
                 [ids](const std::vector<int64_t>& numbers) {
                   ids->clear();
                   for (const int64_t number : numbers) ids->push_back(static_cast<int32_t>(number));
                 });
}

CLI::Option* AddNumberList(CLI::App* command, const std::string& name, uint32_t min, uint32_t max,
                           std::vector<uint32_t>* numbers, const std::string& description) {
  return AddList(command, name, min, max, description, [numbers](const std::vector<int64_t>& values) {
    numbers->clear();
    for (const int64_t value : values) numbers->push_back(static_cast<uint32_t>(value));
  });
}

void AddSamplerOptions(CLI::App* command, SamplerArguments* arguments, const std::string& temperature_default) {
  command
      ->add_option("--temp", arguments->temperature,
                   "Temperature; 0 takes the likeliest token (default: " + temperature_default + ")")
      ->check(FiniteRange(0.0, kMaxTemperature));
  command->add_option("--top-k", arguments->top_k, "Choose among the k likeliest tokens only; 0: all")
      ->check(CLI::Range(0, std::numeric_limits<int32_t>::max()));
  command->add_option("--top-p", arguments->top_p, "Choose among the fewest tokens that together have this probability")
      ->check(FiniteRange(0.0, 1.0));
  command->add_option("--min-p", arguments->min_p, "Drop tokens less likely than this part of the likeliest one")
      ->check(FiniteRange(0.0, 1.0));
  command
      ->add_option("--repetition-penalty", arguments->repetition_penalty,
                   "Divide the logits of tokens already seen by this; 1: off")
      ->check(FiniteRange(0.01, 100.0));
  command->add_option("--seed", arguments->seed, "Seed of the random choices (default: 0)");
}

}  // namespace linnet::cli
