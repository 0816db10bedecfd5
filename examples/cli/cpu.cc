// linnet cpu: the processor as Linnet sees it.
#include "platforms/cpu.h"

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/cpu_level.h"
#include "examples/cli/output.h"
#include "ops/xnn_kernels.h"
#include "platforms/memory.h"

namespace linnet::cli {
namespace {

using Kernels = std::array<ops::LinearKernels, 3>;

struct Options {
  bool bandwidth = false;
  uint32_t threads = 0;
  std::string cpu_level;
  bool json = false;
};

std::string Join(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) {
    if (!text.empty()) text += ' ';
    text += item;
  }
  return text;
}

void PrintText(const platform::CpuInfo& info, const Kernels& kernels, const platform::ReadBandwidth* bandwidth) {
  PrintFormat("%s, %s\n", info.name.c_str(), info.architecture.c_str());
  PrintFormat("  cores              %u (%u logical CPUs, %u of them allowed)\n", info.cores, info.logical_cpus,
              info.allowed_cpus);
  for (const platform::CpuCluster& cluster : info.clusters) {
    PrintFormat("  cluster            %u x %s", cluster.cores, cluster.microarchitecture.c_str());
    if (cluster.max_frequency_hz != 0) PrintFormat(", %.2f GHz", static_cast<double>(cluster.max_frequency_hz) * 1e-9);
    Print(cluster.fast ? ", fast\n" : "\n");
  }
  if (info.quota_cpus > 0.0) PrintFormat("  quota              %.2f CPUs\n", info.quota_cpus);
  PrintFormat("  default threads    %u\n", info.default_threads);
  PrintFormat("  caches             L1 %s, L2 %s, L3 %s\n", HumanBytes(info.l1d_bytes).c_str(),
              HumanBytes(info.l2_bytes).c_str(), HumanBytes(info.l3_bytes).c_str());
  PrintFormat("  features           %s\n", Join(info.features).c_str());
  PrintFormat("  level              %s (of %s)\n", ReachedCpuLevel().c_str(), Join(CpuLevels()).c_str());
  PrintFormat("  Highway target     %s\n", HighwayTargetName().c_str());
  for (const ops::LinearKernels& kernel : kernels) {
    PrintFormat("  %-3s products       %s\n%21s%s\n", kernel.weights, kernel.one_row, "", kernel.many_rows);
  }
  if (bandwidth == nullptr) return;
  PrintFormat("  read bandwidth     %.2f GB/s by %u threads, spread %.1f %%, buffer %s%s\n",
              bandwidth->bytes_per_s * 1e-9, bandwidth->threads, bandwidth->spread * 100,
              HumanBytes(bandwidth->buffer_bytes).c_str(),
              bandwidth->beyond_cache ? "" : " (not well beyond the cache: too little free memory)");
}

nlohmann::ordered_json ToJson(const platform::CpuInfo& info, const Kernels& kernels,
                              const platform::ReadBandwidth* bandwidth) {
  nlohmann::ordered_json clusters = nlohmann::ordered_json::array();
  for (const platform::CpuCluster& cluster : info.clusters) {
    clusters.push_back({{"microarchitecture", cluster.microarchitecture},
                        {"cores", cluster.cores},
                        {"logical_cpus", cluster.logical_cpus},
                        {"max_frequency_hz", cluster.max_frequency_hz},
                        {"fast", cluster.fast}});
  }
  nlohmann::ordered_json json = {{"name", info.name},
                                 {"architecture", info.architecture},
                                 {"cores", info.cores},
                                 {"logical_cpus", info.logical_cpus},
                                 {"allowed_cpus", info.allowed_cpus},
                                 {"quota_cpus", info.quota_cpus},
                                 {"default_threads", info.default_threads},
                                 {"clusters", clusters},
                                 {"l1d_bytes", info.l1d_bytes},
                                 {"l2_bytes", info.l2_bytes},
                                 {"l3_bytes", info.l3_bytes},
                                 {"features", info.features},
                                 {"level", ReachedCpuLevel()},
                                 {"levels", CpuLevels()},
                                 {"highway_target", HighwayTargetName()}};
  for (const ops::LinearKernels& kernel : kernels) {
    json["kernels"][kernel.weights] = {{"one_row", kernel.one_row},
                                       {"many_rows", kernel.many_rows},
                                       {"tile_rows", kernel.tile_rows},
                                       {"tile_columns", kernel.tile_columns}};
  }
  if (bandwidth != nullptr) {
    json["read_bandwidth_bytes_per_s"] = bandwidth->bytes_per_s;
    json["read_bandwidth_threads"] = bandwidth->threads;
    json["read_bandwidth_spread"] = bandwidth->spread;
    json["read_bandwidth_buffer_bytes"] = bandwidth->buffer_bytes;
    json["read_bandwidth_beyond_cache"] = bandwidth->beyond_cache;
  }
  return json;
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  const platform::CpuInfo info = platform::DescribeCpu();
  LINNET_RETURN_IF_ERROR(ApplyCpuLevel(options.cpu_level, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const Kernels kernels, ops::ChosenLinearKernels());
  platform::ReadBandwidth measured;
  if (options.bandwidth) {
    const uint32_t threads = options.threads != 0 ? options.threads : info.default_threads;
    LINNET_ASSIGN_OR_RETURN(measured, platform::MeasureReadBandwidth(threads, diagnostic));
  }
  const platform::ReadBandwidth* bandwidth = options.bandwidth ? &measured : nullptr;
  if (options.json) {
    PrintJson(ToJson(info, kernels, bandwidth));
  } else {
    PrintText(info, kernels, bandwidth);
  }
  return Status::Ok();
}

}  // namespace

void AddCpu(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = commands.Add("cpu", "Describe this CPU: cores, clusters, caches, features, the kernels chosen",
                                   "linnet cpu --bandwidth");
  command->add_flag("--bandwidth", options->bandwidth, "Also measure how fast memory is read; takes about two seconds");
  AddThreadsOption(command, &options->threads);
  command->add_option("--cpu", options->cpu_level, "Choose kernels of no more than this instruction-set level")
      ->check(CLI::IsMember(CpuLevels()))
      ->type_name("LEVEL");
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
