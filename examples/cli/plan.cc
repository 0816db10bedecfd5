// linnet plan: what a run will take, before anything is loaded.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/cpu_level.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/memory_report.h"
#include "examples/cli/output.h"

namespace linnet::cli {
namespace {

struct Options {
  RunOptions run;
  bool steps = false;
  bool json = false;
};

const char* UseName(BufferUse use) {
  switch (use) {
    case BufferUse::kActivation:
      return "activation";
    case BufferUse::kScratch:
      return "scratch";
    case BufferUse::kLogits:
      return "logits";
  }
  return "?";
}

nlohmann::ordered_json StepsJson(const ExecutionPlan& plan) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const Step& step : plan.steps) steps.push_back({{"name", step.name}, {"layer", step.layer}});
  nlohmann::ordered_json buffers = nlohmann::ordered_json::array();
  for (const PlanBuffer& buffer : plan.buffers) {
    buffers.push_back({{"name", buffer.name},
                       {"use", UseName(buffer.use)},
                       {"bytes", buffer.bytes},
                       {"offset", buffer.offset},
                       {"first_step", buffer.first_step},
                       {"last_step", buffer.last_step}});
  }
  return {{"max_tokens", plan.max_tokens}, {"steps", steps}, {"buffers", buffers}};
}

void PrintSteps(const char* title, const ExecutionPlan& plan) {
  PrintFormat("\n%s: %zu steps, up to %u tokens at once\n", title, plan.steps.size(), plan.max_tokens);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    PrintFormat("  %4zu  %-24s", i, step.name);
    if (step.layer >= 0) PrintFormat("  layer %d", step.layer);
    Print("\n");
  }
  PrintFormat("%s buffers (bytes at offset, in use from step to step)\n", title);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlanBuffer& buffer = plan.buffers[i];
    PrintFormat("  %4zu  %-24s %-10s %12llu at %-12llu %u to %u\n", i, buffer.name, UseName(buffer.use),
                static_cast<unsigned long long>(buffer.bytes), static_cast<unsigned long long>(buffer.offset),
                buffer.first_step, buffer.last_step);
  }
}

// Packed weights are a mapped file unless they may not be.
uint64_t AnonymousBytes(const Options& options, const MemoryReport& memory) {
  return memory.Anonymous() + (options.run.no_cache ? memory.plan.packed_weights : 0);
}

void PrintText(const Options& options, const Plan& plan, const MemoryReport& memory) {
  PrintFormat("%s: context %u, chunk %u, %u threads, KV cache %s\n", options.run.model.c_str(),
              plan.options.context_tokens, plan.options.chunk_tokens, plan.options.n_threads,
              ops::KvTypeName(plan.kv_type));
  for (const MemoryReport::Class& part : memory.Classes()) {
    PrintFormat("  %-18s %16llu  %10s  %s\n", part.name, static_cast<unsigned long long>(part.bytes),
                HumanBytes(part.bytes).c_str(), part.meaning);
  }
  PrintFormat("  %-18s %16llu  %10s\n", "total", static_cast<unsigned long long>(memory.Total()),
              HumanBytes(memory.Total()).c_str());
  PrintFormat("  %-18s %16llu  %10s  not shared with other processes or backed by a file\n", "of it anonymous",
              static_cast<unsigned long long>(AnonymousBytes(options, memory)),
              HumanBytes(AnonymousBytes(options, memory)).c_str());
  if (options.run.memory_bytes != 0) {
    PrintFormat("  %-18s %16llu  %10s  %llu left\n", "budget",
                static_cast<unsigned long long>(options.run.memory_bytes), HumanBytes(options.run.memory_bytes).c_str(),
                static_cast<unsigned long long>(options.run.memory_bytes - memory.Total()));
  }
  if (!options.steps) return;
  PrintSteps("prefill", plan.prefill);
  PrintSteps("decode", plan.decode);
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(PrepareProcess(options.run, diagnostic));
  LINNET_ASSIGN_OR_RETURN(formats::ModelFile file, formats::ModelFile::Open(options.run.model, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const Plan plan, PlanRun(file, options.run, 1, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const MemoryReport memory, MakeMemoryReport(plan, file, diagnostic));
  if (!options.json) {
    PrintText(options, plan, memory);
    return Status::Ok();
  }
  nlohmann::ordered_json json = {{"model", options.run.model},
                                 {"context", plan.options.context_tokens},
                                 {"chunk", plan.options.chunk_tokens},
                                 {"threads", plan.options.n_threads},
                                 {"kv", ops::KvTypeName(plan.kv_type)}};
  for (const MemoryReport::Class& part : memory.Classes()) json[std::string(part.name) + "_bytes"] = part.bytes;
  json["total_bytes"] = memory.Total();
  json["anonymous_bytes"] = AnonymousBytes(options, memory);
  if (options.run.memory_bytes != 0) json["memory_budget_bytes"] = options.run.memory_bytes;
  if (options.steps) {
    json["prefill"] = StepsJson(plan.prefill);
    json["decode"] = StepsJson(plan.decode);
  }
  PrintJson(json);
  return Status::Ok();
}

}  // namespace

void AddPlan(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = commands.Add("plan",
                                   "Print the exact bytes that a run takes, from the file and the options alone; the "
                                   "program itself (about 5 MiB, most "
                                   "of it code) comes on top",
                                   "linnet plan model.linnet --context 4096 --threads 4 --kv f16");
  AddRunOptions(command, &options->run);
  command->add_flag("--steps", options->steps, "Also list the steps and the buffers of prefill and decode");
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
