// What commands that make model files share: the types' options, progress, Ctrl-C, the report.
#ifndef LINNET_EXAMPLES_CLI_CONVERSION_H_
#define LINNET_EXAMPLES_CLI_CONVERSION_H_

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "core/base/diagnostic.h"
#include "formats/checkpoint.h"
#include "formats/convert/convert.h"

namespace linnet::cli {

/// --weights, --block, --rotate, --embedding and --head.
void AddConvertOptions(CLI::App* command, formats::ConvertOptions* options);

/// Converts with progress on stderr, under `label`; Ctrl-C ends it and leaves no file behind.
/// Errors: as formats::Convert.
Status RunConversion(const formats::Checkpoint& source, const formats::ConvertOptions& options,
                     const std::string& output, const char* label, formats::ConvertReport* report,
                     Diagnostic* diagnostic);

void PrintConvertReport(const formats::ConvertReport& report, bool json);

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_CONVERSION_H_
