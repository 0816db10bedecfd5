// Runs QuantizeRows into memory of its own and gives the result as a TensorView.
#ifndef LINNET_TESTS_FORMATS_QUANTIZE_QUANTIZED_H_
#define LINNET_TESTS_FORMATS_QUANTIZE_QUANTIZED_H_

#include <cstdlib>
#include <vector>

#include "core/base/check.h"
#include "core/base/model_view.h"
#include "formats/quantize/quantize.h"

namespace linnet::testing {

struct Quantized {
  std::vector<std::byte> data, scales;  // operator new aligns for every element type
  formats::ErrorSums sums;
  Status status;
  TensorView view;
};

/// `rows` [n_rows, columns] are copied, since the rotation works in place.
inline Quantized Quantize(std::vector<float> rows, size_t columns, const formats::QuantizeOptions& options) {
  Quantized result;
  const uint64_t dims[] = {rows.size() / columns, columns};
  const Result<TensorBytes> bytes = ComputeTensorBytes(options.dtype, dims, options.block_size);
  LINNET_CHECK(bytes.ok());
  result.data.resize(bytes->data);
  result.scales.resize(bytes->scales);
  result.status = formats::QuantizeRows(rows, columns, options, result.data, result.scales, &result.sums);
  result.view.dtype = options.dtype;
  result.view.rank = 2;
  result.view.dims = {dims[0], dims[1], 0};
  result.view.block_size = options.block_size;
  result.view.rotation_block = options.rotation_block;
  result.view.data = result.data;
  result.view.scales = result.scales;
  return result;
}

}  // namespace linnet::testing

#endif  // LINNET_TESTS_FORMATS_QUANTIZE_QUANTIZED_H_
