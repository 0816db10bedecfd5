#include "examples/cli/command.h"

#include <cstdio>

#include "examples/cli/output.h"

namespace linnet::cli {

CLI::App* CommandSet::Add(const std::string& name, const std::string& description, const std::string& example) {
  CLI::App* command = app_.add_subcommand(name, description);
  command->footer("Example:\n  " + example);
  return command;
}

void CommandSet::OnRun(CLI::App* command, CommandFunction function) {
  entries_.push_back({command, std::move(function)});
}

int CommandSet::RunParsed() const {
  for (const Entry& entry : entries_) {
    if (!entry.command->parsed()) continue;
    Diagnostic diagnostic;
    Status status = entry.function(&diagnostic);
    // Output that nobody could receive is a failure, and known only now where it was buffered.
    if (status.ok()) status = FlushOutput(&diagnostic);
    if (status.ok()) return kExitOk;
    const char* separator = diagnostic.empty() ? "" : ": ";
    std::fprintf(stderr, "linnet %s: %s%s%s\n", entry.command->get_name().c_str(),
                 status.message()[0] == '\0' ? StatusCodeName(status.code()) : status.message(), separator,
                 diagnostic.text());
    return kExitFailure;
  }
  return kExitUsage;
}

std::string CommandSet::ParsedName() const {
  for (const Entry& entry : entries_) {
    if (entry.command->count() > 0 || entry.command->parsed()) return " " + entry.command->get_name();
  }
  return "";
}

}  // namespace linnet::cli
