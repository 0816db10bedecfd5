// config.json -> ModelConfig.
#ifndef LINNET_FORMATS_HUGGINGFACE_CONFIG_H_
#define LINNET_FORMATS_HUGGINGFACE_CONFIG_H_

#include <cstdint>
#include <string_view>

#include "core/base/diagnostic.h"
#include "core/base/model_config.h"
#include "core/base/status.h"
#include "formats/huggingface/weight_packing.h"

namespace linnet::formats {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;  // published ones have a few KiB

/// What quantization_config does: it says how the weights are stored, and nothing about the description.
enum class StoredWeights : uint8_t {
  kRead,  // the checkpoint's weights are to be read: refused where they are stored in a way that is not known
  kAny,   // passed over: only the description is wanted
};

/// Reads the text of a config.json, in the spelling of transformers 5 or in the older one. The result is validated.
/// Every key must be read, be without effect on the arithmetic of inference, or be null.
/// `packing`, where given with kRead, becomes what quantization_config says.
/// Errors: kInvalidModel (no JSON, a value of the wrong type or out of range), kUnsupported (an unknown family, key or
/// value, by name).
Result<ModelConfig> ReadHuggingFaceConfig(std::string_view text, Diagnostic* diagnostic,
                                          StoredWeights stored = StoredWeights::kRead,
                                          WeightPacking* packing = nullptr);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_CONFIG_H_
