// The frame of the `linnet` program: commands, their errors and exit status.
#ifndef LINNET_EXAMPLES_CLI_COMMAND_H_
#define LINNET_EXAMPLES_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::cli {

// Exit status of the program.
constexpr int kExitOk = 0;
constexpr int kExitFailure = 1;  // the input or the machine is at fault
constexpr int kExitUsage = 2;    // the command line is

/// What a command does once its options are parsed. A Status that is not Ok ends the program with kExitFailure and one
/// line on stderr.
using CommandFunction = std::function<Status(Diagnostic*)>;

class CommandSet {
 public:
  explicit CommandSet(CLI::App& app) : app_(app) {}

  /// Adds a subcommand; `example` is shown by its --help.
  CLI::App* Add(const std::string& name, const std::string& description, const std::string& example);
  void OnRun(CLI::App* command, CommandFunction function);

  /// Runs the subcommand that was parsed; returns the exit status.
  int RunParsed() const;
  /// Name of the subcommand that was being parsed, with a space in front; empty for none.
  std::string ParsedName() const;

 private:
  struct Entry {
    CLI::App* command;
    CommandFunction function;
  };
  CLI::App& app_;
  std::vector<Entry> entries_;
};

// One function a command; each stands in a file of its name.
void AddConvert(CommandSet& commands);
void AddSynth(CommandSet& commands);
void AddInspect(CommandSet& commands);
void AddPlan(CommandSet& commands);
void AddLogits(CommandSet& commands);
void AddGenerate(CommandSet& commands);
void AddTokenize(CommandSet& commands);
void AddChat(CommandSet& commands);
void AddBench(CommandSet& commands);
void AddPerplexity(CommandSet& commands);
void AddQuality(CommandSet& commands);
void AddPack(CommandSet& commands);
void AddCount(CommandSet& commands);
void AddTrace(CommandSet& commands);
void AddVerify(CommandSet& commands);
void AddCpu(CommandSet& commands);

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_COMMAND_H_
