// Public header. Rows of values in memory: how every operation takes its inputs and outputs.
#ifndef LINNET_OPS_ROWS_H_
#define LINNET_OPS_ROWS_H_

#include <cstddef>
#include <cstdint>

namespace linnet::ops {

/// Row r starts at data + r * stride; stride counts elements, not bytes, and is at least the width in use. Does not
/// own.
template <typename T>
struct RowsOf {
  T* data = nullptr;
  size_t stride = 0;

  T* row(size_t index) const { return data + index * stride; }
};

using ConstRows = RowsOf<const float>;

struct Rows : RowsOf<float> {
  Rows() = default;
  Rows(float* first, size_t row_stride) : RowsOf<float>{first, row_stride} {}
  operator ConstRows() const { return {data, stride}; }  // NOLINT: reading what may be written is always allowed
};

}  // namespace linnet::ops

#endif  // LINNET_OPS_ROWS_H_
