// The table of families: what maps a config.json and its weights' names onto a description.
#ifndef LINNET_FORMATS_HUGGINGFACE_FAMILIES_FAMILIES_H_
#define LINNET_FORMATS_HUGGINGFACE_FAMILIES_FAMILIES_H_

#include <span>
#include <string_view>

#include "core/base/model_config.h"
#include "formats/huggingface/config_reader.h"
#include "formats/huggingface/weight_names.h"

namespace linnet::formats {

struct Family {
  const char* model_type;  // of config.json
  /// Fills everything but `family`. Failures go to the reader's errors; the result is validated by the caller.
  void (*read)(ConfigReader& reader, ModelConfig* config);
  const WeightNames* names;
};

/// The family of a model_type, or null.
const Family* FindFamily(std::string_view model_type);
/// All model_types, comma-separated, for messages.
const char* FamilyNames();

// One table a file of this folder.
std::span<const Family> LlamaFamilies();
std::span<const Family> GptFamilies();
std::span<const Family> PhiFamilies();
std::span<const Family> FalconFamilies();
std::span<const Family> GemmaFamilies();
std::span<const Family> MixtureFamilies();
std::span<const Family> DeepSeekFamilies();
std::span<const Family> CohereFamilies();

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_FAMILIES_FAMILIES_H_
