// A model's description as JSON and as lines for people.
#ifndef LINNET_EXAMPLES_CLI_DESCRIBE_H_
#define LINNET_EXAMPLES_CLI_DESCRIBE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "core/base/model_config.h"

namespace linnet::cli {

/// Every field of the description; enumerators by name.
nlohmann::ordered_json ConfigToJson(const ModelConfig& config);

/// A few lines: sizes, and one line for each kind of block and each rotary embedding. Each ends with a newline.
std::string ConfigToText(const ModelConfig& config);

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_DESCRIBE_H_
