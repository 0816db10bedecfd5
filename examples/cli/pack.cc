// linnet pack: writes the weights in the layout that this CPU's kernels read.
#include <memory>
#include <string>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/cpu_level.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/output.h"
#include "examples/cli/packed_store.h"
#include "platforms/memory.h"

namespace linnet::cli {
namespace {

struct Options {
  std::string model, output, cpu_level;
  bool clean = false;
};

void Clean() {
  const platform::RemovedFiles removed = CleanPackedFiles(/*all=*/true);
  PrintFormat("removed %llu packed files, %s\n", static_cast<unsigned long long>(removed.count),
              HumanBytes(removed.bytes).c_str());
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  if (options.clean) Clean();
  if (options.model.empty()) return Status::Ok();
  LINNET_RETURN_IF_ERROR(CheckOutputIsNot(options.model, options.output, diagnostic));
  LINNET_RETURN_IF_ERROR(ApplyCpuLevel(options.cpu_level, diagnostic));
  LINNET_ASSIGN_OR_RETURN(formats::ModelFile file, formats::ModelFile::Open(options.model, diagnostic));
  const ModelView view = file.view();
  auto layout = ComputePackedLayout(view);
  if (!layout.ok()) {
    if (diagnostic != nullptr) diagnostic->Set("%s", options.model.c_str());
    return layout.status();
  }
  std::string path = options.output;
  if (path.empty()) {
    LINNET_ASSIGN_OR_RETURN(path, PackedFilePath(view, *layout, diagnostic));
  }
  if (options.output.empty()) CleanPackedFiles(/*all=*/false);
  LINNET_RETURN_IF_ERROR(WritePackedFile(file, *layout, path, diagnostic));
  const auto counters = platform::ReadMemoryCounters();
  PrintFormat("%s: %zu matrices, %s, for %s; peak memory %s\n", path.c_str(), layout->matrices.size(),
              HumanBytes(layout->total_bytes).c_str(), ReachedCpuLevel().c_str(),
              counters.ok() ? HumanBytes(counters->peak_resident_bytes).c_str() : "unknown");
  return Status::Ok();
}

}  // namespace

void AddPack(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = commands.Add(
      "pack", "Write the weights packed for this CPU into the cache folder, where every later run maps them",
      "linnet pack model.linnet");
  AddModelArgument(command, &options->model);
  CLI::Option* model = command->get_option("model")->required(false);
  command->add_option("--for", options->cpu_level, "Pack for this instruction-set level of the CPU (default: the best)")
      ->check(CLI::IsMember(CpuLevels()))
      ->type_name("LEVEL");
  command->add_option("-o,--output", options->output, "Write this file instead of the one in the cache folder")
      ->type_name("FILE");
  command->add_flag("--clean", options->clean,
                    "First remove all packed files of the cache folder; no model is needed then. Files that no start "
                    "used for " +
                        std::to_string(kKeepUnusedDays) + " days go by themselves when a new one is made");
  command->final_callback([options, model] {
    if (model->empty() && !options->clean) throw CLI::RequiredError("model");
  });
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
