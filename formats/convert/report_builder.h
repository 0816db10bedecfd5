// Gathers a conversion's report tensor by tensor.
#ifndef LINNET_FORMATS_CONVERT_REPORT_BUILDER_H_
#define LINNET_FORMATS_CONVERT_REPORT_BUILDER_H_

#include <cstdint>
#include <vector>

#include "formats/convert/convert.h"
#include "formats/convert/tensor_plan.h"
#include "formats/quantize/calibrated_rows.h"

namespace linnet::formats {

class ReportBuilder {
 public:
  void Add(const TensorPlan& plan, const char* source_type, const CalibratedErrors& errors);
  ConvertReport Take(uint64_t file_bytes, double seconds);

 private:
  ConvertReport report_;
  std::vector<CalibratedErrors> errors_;  // one a group of the report
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_REPORT_BUILDER_H_
