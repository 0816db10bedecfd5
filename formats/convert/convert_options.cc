#include "formats/convert/convert.h"

namespace linnet::formats {

bool ParseWeightType(std::string_view text, std::optional<DType>* type) {
  if (text == "auto") {
    type->reset();
    return true;
  }
  for (uint8_t i = 0; i < kDTypeCount; ++i) {
    if (text != DTypeName(static_cast<DType>(i))) continue;
    *type = static_cast<DType>(i);
    return true;
  }
  return false;
}

}  // namespace linnet::formats
