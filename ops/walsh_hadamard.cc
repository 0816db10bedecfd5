#include "ops/walsh_hadamard.h"

#include <cmath>

#include "core/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/walsh_hadamard.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/walsh_hadamard-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void WalshHadamardImpl(ConstRows x, size_t n_rows, size_t width, size_t block, Rows out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(block));
  for (size_t r = 0; r < n_rows; ++r) WalshHadamardRow(x.row(r), width, block, scale, out.row(r));
}

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::ops {

HWY_EXPORT(WalshHadamardImpl);

void WalshHadamard(ConstRows x, size_t n_rows, size_t width, size_t block, Rows out) {
  LINNET_DCHECK(block > 0 && (block & (block - 1)) == 0 && width % block == 0);
  HWY_DYNAMIC_DISPATCH(WalshHadamardImpl)(x, n_rows, width, block, out);
}

}  // namespace linnet::ops
#endif
