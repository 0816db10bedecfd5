// How a quantized checkpoint packs its linear layers, as config.json's quantization_config says.
#ifndef LINNET_FORMATS_HUGGINGFACE_WEIGHT_PACKING_H_
#define LINNET_FORMATS_HUGGINGFACE_WEIGHT_PACKING_H_

#include <cstdint>

namespace linnet::formats {

class ConfigReader;

enum class PackingMethod : uint8_t { kNone, kGptq, kAwq };

/// Linear layers have qweight, qzeros and scales (and g_idx) in place of weight; see packed_matrix.h.
struct WeightPacking {
  PackingMethod method = PackingMethod::kNone;
  uint32_t bits = 4;            // GPTQ: 2, 4 or 8; AWQ: 4
  uint32_t group_size = 0;      // input columns that share scale and zero point; 0: a whole row
  bool zeros_less_one = false;  // GPTQ's first format stores every zero point less one
  bool operator==(const WeightPacking&) const = default;
};

/// Reads the object under quantization_config. A method, layout or key that is not known is refused by name through the
/// reader's errors.
WeightPacking ReadWeightPacking(ConfigReader reader);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_WEIGHT_PACKING_H_
