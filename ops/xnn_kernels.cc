#include "ops/xnn_kernels.h"

#include <xnnpack.h>
#include <xnnpack/config.h>
#include <xnnpack/gemm.h>

#include <algorithm>
#include <iterator>

#include "ops/q4_product.h"
#include "ops/xnn_linear.h"

namespace linnet::ops {
namespace {

using Function = void (*)();

constexpr const char* kUnknown = "unknown";

struct NamedKernel {
  Function function;
  const char* name;
};

#define LINNET_KERNEL(name) \
  { reinterpret_cast<Function>(&xnn_##name), #name }

// XNNPACK keeps no names, so its choice is compared with every kernel that it can choose on this architecture (without
// assembly, toolchains/README.md). Naming them here links nothing that its own tables do not link already.
const NamedKernel kKernels[] = {
#if defined(__x86_64__)
    LINNET_KERNEL(f32_gemm_minmax_ukernel_1x8__sse_load1),
    LINNET_KERNEL(f32_gemm_minmax_ukernel_4x8__sse_load1),
    LINNET_KERNEL(f32_gemm_minmax_ukernel_1x16__avx_broadcast),
    LINNET_KERNEL(f32_gemm_minmax_ukernel_5x16__avx_broadcast),
    LINNET_KERNEL(f32_gemm_minmax_ukernel_1x16__fma3_broadcast),
    LINNET_KERNEL(f32_gemm_minmax_ukernel_5x16__fma3_broadcast),
    LINNET_KERNEL(f32_gemm_minmax_ukernel_1x16s4__fma3_broadcast),
    LINNET_KERNEL(f32_gemm_minmax_ukernel_4x16s4__fma3_broadcast),
    LINNET_KERNEL(f32_gemm_minmax_ukernel_1x32__avx512f_broadcast),
    LINNET_KERNEL(f32_gemm_minmax_ukernel_7x32__avx512f_broadcast),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_1x4c8__sse2_ld64),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_4x4c8__sse2_ld64),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_1x4c8__sse41_ld64),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_4x4c8__sse41_ld64),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_1x8c8__avx2),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_4x8c8__avx2),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_1x8c8__avx256skx),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_8x8c8__avx256skx),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_1x16c8__avx512skx_prfm),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_8x16c8__avx512skx_prfm),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_1x8c8__avxvnni_prfm),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_5x8c8__avxvnni_prfm),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_1x16c8__avx512vnni_prfm),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_10x16c8__avx512vnni_prfm),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_1x4c8__sse2_ld128),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_4x4c8__sse2_ld128),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_1x4c8__sse41_ld128),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_3x4c8__sse41_ld128),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_1x4c8__avx_ld128),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_4x4c8__avx_ld128),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_1x8c8__avx2),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_3x8c8__avx2),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_1x16c8__avx512vnni_prfm),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_8x16c8__avx512vnni_prfm),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_1x16c8__avx512vnnigfni_prfm),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_14x16c8__avx512vnnigfni_prfm),
#elif defined(__aarch64__)
    LINNET_KERNEL(f32_gemm_minmax_ukernel_1x8__aarch64_neonfma_lane_ld128),
    LINNET_KERNEL(f32_gemm_minmax_ukernel_6x8__aarch64_neonfma_lane_ld128),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_1x8c2s4__neon_mlal),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_2x8c2s4__neon_mlal),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_1x16c4__neondot),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_4x16c4__neondot),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_1x16c8__neoni8mm),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_4x16c8__neoni8mm),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_1x16__neon_mlal_lane),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_6x16__neon_mlal_lane),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_1x16c4__neondot),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_4x16c4__neondot),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_1x16c8__neoni8mm),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_4x16c8__neoni8mm),
#elif defined(__arm__)
    LINNET_KERNEL(f32_gemm_minmax_ukernel_1x8__neon_lane_ld64),
    LINNET_KERNEL(f32_gemm_minmax_ukernel_4x8__neon_lane_ld128),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_1x8c2s4__neon_mlal),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_2x8c2s4__neon_mlal),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_1x8c4__neondot),
    LINNET_KERNEL(qd8_f32_qc8w_gemm_minmax_ukernel_4x8c4__neondot),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_1x16__neon_mlal_lane),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_6x16__neon_mlal_lane),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_1x16c4__neondot),
    LINNET_KERNEL(qd8_f32_qb4w_gemm_minmax_ukernel_4x16c4__neondot),
#endif
};

#undef LINNET_KERNEL

// `hmp` holds one function for each kind of core that XNNPACK tells apart.
template <typename Hmp>
const char* NameOf(const Hmp& hmp) {
  const auto function = hmp.function[0];
  const bool same = std::all_of(std::begin(hmp.function), std::end(hmp.function),
                                [function](const auto other) { return other == function; });
  if (function == nullptr || !same) return kUnknown;
  const NamedKernel* found = std::find_if(
      std::begin(kKernels), std::end(kKernels),
      [function](const NamedKernel& kernel) { return kernel.function == reinterpret_cast<Function>(function); });
  return found == std::end(kKernels) ? kUnknown : found->name;
}

template <typename Hmp>
LinearKernels Describe(const char* weights, const xnn_gemm_config& config, const Hmp* by_rows) {
  return {.weights = weights,
          .one_row = NameOf(by_rows[0]),
          .many_rows = NameOf(by_rows[config.mr - 1]),
          .tile_rows = config.mr,
          .tile_columns = config.nr};
}

}  // namespace

Result<std::array<LinearKernels, 3>> ChosenLinearKernels() {
  LINNET_RETURN_IF_ERROR(InitializeXnnpack());
  const xnn_gemm_config* f32 = xnn_init_f32_gemm_config();
  const xnn_gemm_config* q8 = xnn_init_qd8_f32_qc8w_gemm_config();
  const xnn_gemm_config* q4 = xnn_init_qd8_f32_qb4w_gemm_config();
  if (f32 == nullptr || q8 == nullptr || q4 == nullptr) {
    return Status(StatusCode::kUnsupported, "XNNPACK has no kernels for this CPU");
  }
  std::array kernels = {Describe("f32", *f32, f32->minmax.gemm), Describe("q8", *q8, q8->minmax.dqgemm),
                        Describe("q4", *q4, q4->minmax.dqgemm)};
  if (HasQ4Product()) {
    const Q4Tile tile = ChosenQ4Tile();
    kernels[2] = {.weights = "q4",
                  .one_row = tile.one_row_name,
                  .many_rows = tile.name,
                  .tile_rows = tile.rows,
                  .tile_columns = tile.outputs};
  }
  return kernels;
}

}  // namespace linnet::ops
