// The `linnet` program. Each command stands in a file of its name.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "examples/cli/command.h"
#include "examples/cli/output.h"
#include "linnet_versions.h"
#include "platforms/console.h"

namespace linnet::cli {
namespace {

std::string VersionText() {
  std::string text = std::string("linnet ") + LINNET_VERSION + " (" + kBuildTarget + ", " + kBuildCompiler + ")\n";
  for (const DependencyVersion& dependency : kDependencyVersions) {
    text += std::string("  ") + dependency.name + " " + dependency.version + " (" + dependency.licence + ")\n";
  }
  text.pop_back();
  return text;
}

int Run(int argc, char** argv) {
  platform::OccupyStandardStreams();
  platform::IgnoreWriteSignals();
  CLI::App app("Runs decoder-only language models on this device's CPU.", "linnet");
  app.set_version_flag("--version", VersionText(), "Print the versions of everything inside and exit");
  app.require_subcommand(1);
  app.footer(
      "Example:\n  linnet convert model.gguf -o model.linnet && linnet chat model.linnet\n"
      "Every command explains itself: linnet COMMAND --help");
  CommandSet commands(app);
  AddConvert(commands);
  AddSynth(commands);
  AddInspect(commands);
  AddPlan(commands);
  AddLogits(commands);
  AddGenerate(commands);
  AddTokenize(commands);
  AddChat(commands);
  AddBench(commands);
  AddPerplexity(commands);
  AddQuality(commands);
  AddPack(commands);
  AddCount(commands);
  AddTrace(commands);
  AddVerify(commands);
  AddCpu(commands);
  // With --help behind it the parser would explain the program and end well.
  const auto is_named = [argv](CLI::App* command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_named).empty()) {
    std::fprintf(stderr, "linnet: usage: no such command: %s (see linnet --help)\n", OneLine(argv[1]).c_str());
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {  // --help, --version
    app.exit(help);
    Diagnostic diagnostic;
    return FlushOutput(&diagnostic).ok() && std::cout.flush().good() ? kExitOk : kExitFailure;
  } catch (const CLI::ParseError& error) {
    const std::string name = commands.ParsedName();
    std::fprintf(stderr, "linnet%s: usage: %s (see linnet%s --help)\n", name.c_str(), OneLine(error.what()).c_str(),
                 name.c_str());
    return kExitUsage;
  }
  return commands.RunParsed();
}

}  // namespace
}  // namespace linnet::cli

int main(int argc, char** argv) {
  // The libraries behind the commands do not throw; the standard library and the argument parser may.
  try {
    return linnet::cli::Run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("linnet: out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "linnet: %s\n", error.what());
  }
  return linnet::cli::kExitFailure;
}
