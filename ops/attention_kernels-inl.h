// Register-blocked products of attention: query rows times keys, and probabilities times values. One copy per
// instruction set.
#if defined(LINNET_OPS_ATTENTION_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_OPS_ATTENTION_KERNELS_INL_H_
#undef LINNET_OPS_ATTENTION_KERNELS_INL_H_
#else
#define LINNET_OPS_ATTENTION_KERNELS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ops/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that a block of positions is whole vectors on any machine.
using KvTag = hn::CappedTag<float, 16>;

// Accumulators per kernel: rows times vectors; beside them vectors of B and a broadcast of A in registers. Few rows
// take more vectors: their multiply-adds would wait for each other otherwise, and memory is read in longer runs.
#if (HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3) || HWY_ARCH_ARM_V7
constexpr size_t kDotRows = 3;                                      // 16 registers: 3 x 4 + 1 + 1
constexpr size_t MaxVecs(size_t rows) { return rows > 3 ? 2 : 4; }  // 6 x 2 + 2 + 1, 3 x 4 + 1 + 3
#else
constexpr size_t kDotRows = 6;  // 32 registers: 6 x 4 + 4 + 1
constexpr size_t MaxVecs(size_t) { return 4; }
#endif
constexpr size_t kMaxRows = 6;
// Vectors that a single row takes where the vectors are narrow, see StreamKernel.
constexpr size_t kStreamVecs = HWY_ARCH_X86 || HWY_ARCH_ARM_V7 ? 8 : 16;
constexpr size_t kDotPositions = 4;

// Loads of cache elements as f32. The conversions are exact.
template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const uint16_t* p) {  // f16
  return PromoteHalf(d, hn::LoadU(hn::Rebind<uint16_t, D>(), p));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const int8_t* p) {
  const hn::RebindToSigned<D> di;
  return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(hn::Rebind<int8_t, D>(), p)));
}
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadF32N(D d, const T* p, size_t n) {
  if constexpr (hwy::IsSame<T, float>()) {
    return hn::LoadN(d, p, n);
  } else if constexpr (hwy::IsSame<T, int8_t>()) {
    const hn::RebindToSigned<D> di;
    return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadN(hn::Rebind<int8_t, D>(), p, n)));
  } else {
    return PromoteHalf(d, hn::LoadN(hn::Rebind<uint16_t, D>(), p, n));
  }
}

/// C[rows, columns] = (accumulate ? C : 0) + A[rows, depth] * B[depth, columns], each element one chain of
/// multiply-adds in ascending depth: its bits do not depend on how rows and columns are cut.
template <typename T>
struct Product {
  const float* a;
  size_t a_stride;
  const T* b;
  size_t b_stride;
  size_t depth;
  float* c;  // rows hold whole vectors
  size_t c_stride;
  bool accumulate;
  size_t tail;  // kPartial: columns in use of the only vector; the others are computed as 0
};

// The kernels below keep every accumulator in a variable of its own, because vectors of scalable targets cannot stand
// in arrays. 6 x 4 accumulators do 24 multiply-adds for 10 loads; without the blocking every one would wait for a load.
#define LINNET_EACH_ROW(step) step(0) step(1) step(2) step(3) step(4) step(5)

#define LINNET_DECLARE_ROW(r) [[maybe_unused]] auto c##r##0 = zero, c##r##1 = zero, c##r##2 = zero, c##r##3 = zero;

#define LINNET_LOAD_ROW(r)                                          \
  if constexpr (kRows > r) {                                        \
    const float* c = t.c + r * t.c_stride;                          \
    c##r##0 = hn::LoadU(d, c);                                      \
    if constexpr (kVecs > 1) c##r##1 = hn::LoadU(d, c + lanes);     \
    if constexpr (kVecs > 2) c##r##2 = hn::LoadU(d, c + 2 * lanes); \
    if constexpr (kVecs > 3) c##r##3 = hn::LoadU(d, c + 3 * lanes); \
  }

#define LINNET_MULTIPLY_ROW(r)                                     \
  if constexpr (kRows > r) {                                       \
    const auto a = hn::Set(d, t.a[r * t.a_stride + k]);            \
    c##r##0 = hn::MulAdd(a, b0, c##r##0);                          \
    if constexpr (kVecs > 1) c##r##1 = hn::MulAdd(a, b1, c##r##1); \
    if constexpr (kVecs > 2) c##r##2 = hn::MulAdd(a, b2, c##r##2); \
    if constexpr (kVecs > 3) c##r##3 = hn::MulAdd(a, b3, c##r##3); \
  }

#define LINNET_STORE_ROW(r)                                         \
  if constexpr (kRows > r) {                                        \
    float* c = t.c + r * t.c_stride;                                \
    hn::StoreU(c##r##0, d, c);                                      \
    if constexpr (kVecs > 1) hn::StoreU(c##r##1, d, c + lanes);     \
    if constexpr (kVecs > 2) hn::StoreU(c##r##2, d, c + 2 * lanes); \
    if constexpr (kVecs > 3) hn::StoreU(c##r##3, d, c + 3 * lanes); \
  }

template <size_t kRows, size_t kVecs, bool kPartial, typename T>
HWY_NOINLINE void ProductKernel(const Product<T>& t) {
  const KvTag d;
  const auto zero = hn::Zero(d);
  [[maybe_unused]] const size_t lanes = hn::Lanes(d);
  LINNET_EACH_ROW(LINNET_DECLARE_ROW)
  if (t.accumulate) {
    LINNET_EACH_ROW(LINNET_LOAD_ROW)
  }
  const T* b = t.b;
  for (size_t k = 0; k < t.depth; ++k, b += t.b_stride) {
    auto b0 = zero;
    [[maybe_unused]] auto b1 = zero, b2 = zero, b3 = zero;
    if constexpr (kPartial) {
      b0 = LoadF32N(d, b, t.tail);
    } else {
      b0 = LoadF32(d, b);
    }
    // Converting int8 leaves the hardware's prefetcher behind (measured: decode 1.2 times faster); f16 and f32 do not.
    if constexpr (hwy::IsSame<T, int8_t>()) hwy::Prefetch(b + 64 * t.b_stride);
    if constexpr (kVecs > 1) b1 = LoadF32(d, b + lanes);
    if constexpr (kVecs > 2) b2 = LoadF32(d, b + 2 * lanes);
    if constexpr (kVecs > 3) b3 = LoadF32(d, b + 3 * lanes);
    LINNET_EACH_ROW(LINNET_MULTIPLY_ROW)
  }
  LINNET_EACH_ROW(LINNET_STORE_ROW)
}

#define LINNET_EACH_OF_8(step, first)                                                                      \
  step(first, 0) step(first, 1) step(first, 2) step(first, 3) step(first, 4) step(first, 5) step(first, 6) \
      step(first, 7)
#define LINNET_STREAM_DECLARE(first, v)     \
  [[maybe_unused]] auto c##first##v = zero; \
  if (t.accumulate && kVecs > first) c##first##v = hn::LoadU(d, t.c + (first + v) * lanes);
#define LINNET_STREAM_MULTIPLY(first, v) \
  if constexpr (kVecs > first) c##first##v = hn::MulAdd(a, LoadF32(d, b + (first + v) * lanes), c##first##v);
#define LINNET_STREAM_STORE(first, v) \
  if constexpr (kVecs > first) hn::StoreU(c##first##v, d, t.c + (first + v) * lanes);

/// One row times 8 or 16 vectors of columns. With vectors of 4 or 8 lanes the blocked kernels read B in narrow strips,
/// which hardware prefetches badly. When few rows share a block, as in decode, B comes from memory and not from a
/// cache: the first row then takes B nearly line after line, and the others find it in L1.
template <size_t kVecs, typename T>
HWY_NOINLINE void StreamKernel(const Product<T>& t) {
  const KvTag d;
  const auto zero = hn::Zero(d);
  const size_t lanes = hn::Lanes(d);
  LINNET_EACH_OF_8(LINNET_STREAM_DECLARE, 0)
  LINNET_EACH_OF_8(LINNET_STREAM_DECLARE, 8)
  const T* b = t.b;
  for (size_t k = 0; k < t.depth; ++k, b += t.b_stride) {
    const auto a = hn::Set(d, t.a[k]);
    LINNET_EACH_OF_8(LINNET_STREAM_MULTIPLY, 0)
    LINNET_EACH_OF_8(LINNET_STREAM_MULTIPLY, 8)
  }
  LINNET_EACH_OF_8(LINNET_STREAM_STORE, 0)
  LINNET_EACH_OF_8(LINNET_STREAM_STORE, 8)
}

// Calls kernel.Run<n>(first row) for groups of up to kMax rows until all are served.
template <size_t kMax, class Kernel>
HWY_INLINE void ForRows(size_t rows, const Kernel& kernel) {
  size_t row = 0;
  for (; row + kMax <= rows; row += kMax) kernel.template Run<kMax>(row);
  switch (rows - row) {
    case 1:
      return kernel.template Run<1>(row);
    case 2:
      return kernel.template Run<2>(row);
    case 3:
      if constexpr (kMax > 3) return kernel.template Run<3>(row);
      break;
    case 4:
      if constexpr (kMax > 4) return kernel.template Run<4>(row);
      break;
    case 5:
      if constexpr (kMax > 5) return kernel.template Run<5>(row);
      break;
    default:
      break;
  }
}

template <typename T>
struct ProductRows {
  const Product<T>& whole;
  size_t columns;

  template <size_t kRows>
  HWY_NOINLINE void Run(size_t row) const {
    const size_t lanes = hn::Lanes(KvTag());
    Product<T> part = whole;
    part.a += row * part.a_stride;
    part.c += row * part.c_stride;
    size_t left = columns;
    const auto advance = [&](size_t vecs) HWY_ATTR {
      left -= vecs * lanes;
      part.b += vecs * lanes;
      part.c += vecs * lanes;
    };
    if constexpr (MaxVecs(kRows) == 4) {
      for (; left >= 4 * lanes; advance(4)) ProductKernel<kRows, 4, false>(part);
    }
    for (; left >= 2 * lanes; advance(2)) ProductKernel<kRows, 2, false>(part);
    if (left >= lanes) {
      ProductKernel<kRows, 1, false>(part);
      advance(1);
    }
    if (left > 0) {
      part.tail = left;
      ProductKernel<kRows, 1, true>(part);
    }
  }
};

// The first row of a product, in wide strips as far as they go.
template <typename T>
HWY_NOINLINE void StreamFirstRow(size_t columns, Product<T> product) {
  const size_t strip = kStreamVecs * hn::Lanes(KvTag());
  for (; columns >= strip; columns -= strip) {
    StreamKernel<kStreamVecs>(product);
    product.b += strip;
    product.c += strip;
  }
  if (columns > 0) ProductRows<T>{product, columns}.template Run<1>(0);
}

/// The product over any numbers of rows and columns; B's rows may end with the last column.
template <typename T>
HWY_INLINE void Multiply(size_t rows, size_t columns, Product<T> product) {
  // An int8 row of a block is one cache line: no strip is narrow.
  if (sizeof(T) > 1 && rows < kMaxRows && hn::Lanes(KvTag()) < 16) {
    StreamFirstRow(columns, product);
    product.a += product.a_stride;
    product.c += product.c_stride;
    --rows;
  }
  ForRows<kMaxRows>(rows, ProductRows<T>{product, columns});
}

/// C[rows, positions] = A[rows, depth] * B[positions, depth]^T for latent keys, which lie in rows. Lane l of a dot
/// product sums the elements k with k % lanes = l in ascending order, then the lanes are added: fixed by depth alone.
/// Four rows are four streams, too short for the hardware's prefetcher: rows two steps ahead are prefetched (measured:
/// decode 1.25 times faster).
template <typename T>
struct RowDots {
  const float* a;
  size_t a_stride;
  const T* b;
  size_t b_stride;
  size_t depth;
  float* c;
  size_t c_stride;
};

#define LINNET_DOT_ROW(r)                          \
  if constexpr (kRows > r) {                       \
    const auto a = load(t.a + r * t.a_stride + k); \
    c##r##0 = hn::MulAdd(a, b0, c##r##0);          \
    c##r##1 = hn::MulAdd(a, b1, c##r##1);          \
    c##r##2 = hn::MulAdd(a, b2, c##r##2);          \
    c##r##3 = hn::MulAdd(a, b3, c##r##3);          \
  }

#define LINNET_DOT_STEP(loader)                                              \
  {                                                                          \
    const auto load = loader;                                                \
    const T* b = t.b + k;                                                    \
    const auto b0 = load(b), b1 = load(b + t.b_stride);                      \
    const auto b2 = load(b + 2 * t.b_stride), b3 = load(b + 3 * t.b_stride); \
    hwy::Prefetch(b + 8 * t.b_stride);                                       \
    hwy::Prefetch(b + 9 * t.b_stride);                                       \
    hwy::Prefetch(b + 10 * t.b_stride);                                      \
    hwy::Prefetch(b + 11 * t.b_stride);                                      \
    LINNET_EACH_ROW(LINNET_DOT_ROW)                                          \
  }

#define LINNET_REDUCE_ROW(r)          \
  if constexpr (kRows > r) {          \
    float* c = t.c + r * t.c_stride;  \
    c[0] = hn::ReduceSum(d, c##r##0); \
    c[1] = hn::ReduceSum(d, c##r##1); \
    c[2] = hn::ReduceSum(d, c##r##2); \
    c[3] = hn::ReduceSum(d, c##r##3); \
  }

template <size_t kRows, typename T>
HWY_NOINLINE void RowDotsKernel(const RowDots<T>& t) {
  const KvTag d;
  const auto zero = hn::Zero(d);
  const size_t lanes = hn::Lanes(d);
  LINNET_EACH_ROW(LINNET_DECLARE_ROW)
  size_t k = 0;
  for (; k + lanes <= t.depth; k += lanes) {
    LINNET_DOT_STEP([&](const auto* p) HWY_ATTR { return LoadF32(d, p); })
  }
  if (k < t.depth) {
    const size_t rest = t.depth - k;
    LINNET_DOT_STEP([&](const auto* p) HWY_ATTR { return LoadF32N(d, p, rest); })
  }
  LINNET_EACH_ROW(LINNET_REDUCE_ROW)
}

template <typename T>
struct RowDotsRows {
  const RowDots<T>& whole;
  template <size_t kRows>
  HWY_INLINE void Run(size_t row) const {
    RowDots<T> part = whole;
    part.a += row * part.a_stride;
    part.c += row * part.c_stride;
    RowDotsKernel<kRows>(part);
  }
};

/// kDotPositions positions at once.
template <typename T>
HWY_INLINE void DotRows(size_t rows, const RowDots<T>& dots) {
  ForRows<kDotRows>(rows, RowDotsRows<T>{dots});
}

#undef LINNET_EACH_ROW
#undef LINNET_DECLARE_ROW
#undef LINNET_LOAD_ROW
#undef LINNET_MULTIPLY_ROW
#undef LINNET_STORE_ROW
#undef LINNET_EACH_OF_8
#undef LINNET_STREAM_DECLARE
#undef LINNET_STREAM_MULTIPLY
#undef LINNET_STREAM_STORE
#undef LINNET_DOT_ROW
#undef LINNET_DOT_STEP
#undef LINNET_REDUCE_ROW

}  // namespace linnet::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
