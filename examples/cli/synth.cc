// linnet synth: a model of random weights with the shape of a config.json.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/config_file.h"
#include "examples/cli/conversion.h"
#include "examples/cli/output.h"
#include "formats/synthetic/checkpoint.h"

namespace linnet::cli {
namespace {

struct Options {
  std::string config, output;
  uint64_t seed = 0;
  formats::ConvertOptions convert;
  bool json = false;
};

// What `inspect` and `bench` call the model: nobody shall take it for the real one.
std::string ModelName(const ConfigFile& file, uint64_t seed) {
  const std::string shape = file.config.family + ", " + std::to_string(file.config.n_layers) + " layers of " +
                            std::to_string(file.config.model_dim);
  return shape + ", random weights of seed " + std::to_string(seed);
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const ConfigFile file, ConfigFile::Open(options.config, diagnostic));
  LINNET_RETURN_IF_ERROR(CheckOutputIsNot(file.path, options.output, diagnostic));
  formats::SyntheticOptions synthetic;
  synthetic.seed = options.seed;
  synthetic.name = ModelName(file, options.seed);
  synthetic.files = {{std::filesystem::path(file.path).filename().string(), file.mapping.bytes()}};
  const auto source = formats::MakeSyntheticCheckpoint(file.config, std::move(synthetic));
  formats::ConvertReport report;
  LINNET_RETURN_IF_ERROR(RunConversion(*source, options.convert, options.output, "synthesizing", &report, diagnostic));
  PrintConvertReport(report, options.json);
  return Status::Ok();
}

}  // namespace

void AddSynth(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = commands.Add(
      "synth", "Make a model file of random weights with the shape of a config.json, to measure speed and memory with",
      "linnet synth config.json -o model.linnet --weights q4");
  command->add_option("config", options->config, "A config.json, or the directory that holds it")
      ->required()
      ->type_name("CONFIG");
  command->add_option("-o,--output", options->output, "The model file to write")->required()->type_name("FILE");
  command->add_option("--seed", options->seed,
                      "Another seed gives other weights, the same one the same file (default: 0)");
  AddConvertOptions(command, &options->convert);
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
