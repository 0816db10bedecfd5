#include "platforms/dot_product_peak.h"

#include <cpuinfo.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "platforms/posix/parallel_passes.h"

#if CPUINFO_ARCH_X86_64
#include <immintrin.h>
#elif CPUINFO_ARCH_ARM64 || CPUINFO_ARCH_ARM
#include <arm_neon.h>
#endif

namespace linnet::platform {
namespace {

// Independent sums: dot products have a latency of 4 to 10 cycles and start 1 to 4 times a cycle. More would not fit
// into 16 registers beside the operands.
constexpr int kSums = 12;
constexpr uint64_t kRounds = 200'000;  // some milliseconds a pass

/// Runs kRounds * kSums steps; returns something that depends on all of them.
using Kernel = int64_t (*)();

struct Choice {
  Kernel kernel;
  uint32_t multiply_adds;  // of one step
  const char* instruction;
};

// The steps below are those of our kernels for 4-bit weights and of XNNPACK's for int8 rows (version 2024-11-08), which
// widen 4 bits to 8 first. Operands stay in registers, and an empty asm makes them unknown to the compiler in every
// round, so that nothing is taken out of the loop. `total` depends on all sums.
#define LINNET_PEAK_LOOP(vector_type, start, step, add)         \
  vector_type sums[kSums];                                      \
  for (auto& sum : sums) sum = start;                           \
  for (uint64_t round = 0; round < kRounds; ++round) {          \
    LINNET_PEAK_UNKNOWN(a);                                     \
    _Pragma("GCC unroll 12") for (auto& sum : sums) sum = step; \
  }                                                             \
  vector_type total = sums[0];                                  \
  for (int i = 1; i < kSums; ++i) total = add(total, sums[i]);

#if CPUINFO_ARCH_X86_64
#define LINNET_PEAK_UNKNOWN(a) asm volatile("" : "+v"(a))

// ...__avx512vnni and __avx512vnnigfni: 64 products of unsigned and signed bytes into 16 sums.
__attribute__((target("avx512f,avx512vnni"))) int64_t Vnni512() {
  __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(5);
  LINNET_PEAK_LOOP(__m512i, _mm512_setzero_si512(), _mm512_dpbusd_epi32(sum, a, b), _mm512_add_epi32)
  return _mm_cvtsi128_si32(_mm512_castsi512_si128(total));
}

// __avxvnni, which 8-bit weights have: the same over 256 bits.
__attribute__((target("avx2,avxvnni"))) int64_t Vnni256() {
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(5);
  LINNET_PEAK_LOOP(__m256i, _mm256_setzero_si256(), _mm256_dpbusd_avx_epi32(sum, a, b), _mm256_add_epi32)
  return _mm_cvtsi128_si32(_mm256_castsi256_si128(total));
}

// ops/q4_product.cc: pairs of products of bytes are summed in 16 bits. 8-bit weights do not fit that; XNNPACK widens
// them first and reaches half of this.
__attribute__((target("avx512f,avx512bw"))) int64_t MaddBytes512() {
  __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(5);
  LINNET_PEAK_LOOP(__m512i, _mm512_setzero_si512(), _mm512_add_epi16(sum, _mm512_maddubs_epi16(a, b)), _mm512_add_epi32)
  return _mm_cvtsi128_si32(_mm512_castsi512_si128(total));
}

__attribute__((target("avx2"))) int64_t MaddBytes256() {
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(5);
  LINNET_PEAK_LOOP(__m256i, _mm256_setzero_si256(), _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b)), _mm256_add_epi32)
  return _mm_cvtsi128_si32(_mm256_castsi256_si128(total));
}

// __sse41 and __sse2
int64_t Madd128() {
  __m128i a = _mm_set1_epi16(3);
  const __m128i b = _mm_set1_epi16(5);
  LINNET_PEAK_LOOP(__m128i, _mm_setzero_si128(), _mm_add_epi32(sum, _mm_madd_epi16(a, b)), _mm_add_epi32)
  return _mm_cvtsi128_si32(total);
}

Choice Choose() {
  if (cpuinfo_has_x86_avx512vnni() && cpuinfo_has_x86_avx512f()) return {Vnni512, 64, "vpdpbusd, 512 bits"};
  if (cpuinfo_has_x86_avxvnni() && cpuinfo_has_x86_avx2()) return {Vnni256, 32, "vpdpbusd, 256 bits"};
  if (cpuinfo_has_x86_avx512bw() && cpuinfo_has_x86_avx512f())
    return {MaddBytes512, 64, "vpmaddubsw + vpaddw, 512 bits"};
  if (cpuinfo_has_x86_avx2()) return {MaddBytes256, 32, "vpmaddubsw + vpaddw, 256 bits"};
  return {Madd128, 8, "pmaddwd + paddd, 128 bits"};
}

#elif CPUINFO_ARCH_ARM64
#define LINNET_PEAK_UNKNOWN(a) asm volatile("" : "+w"(a))

// __neoni8mm: a 2 x 8 by 8 x 2 product of bytes.
__attribute__((target("arch=armv8.2-a+i8mm"))) int64_t MatrixMultiply() {
  int8x16_t a = vdupq_n_s8(3);
  const int8x16_t b = vdupq_n_s8(5);
  LINNET_PEAK_LOOP(int32x4_t, vdupq_n_s32(0), vmmlaq_s32(sum, a, b), vaddq_s32)
  return vgetq_lane_s32(total, 0);
}

// __neondot
__attribute__((target("arch=armv8.2-a+dotprod"))) int64_t DotProduct() {
  int8x16_t a = vdupq_n_s8(3);
  const int8x16_t b = vdupq_n_s8(5);
  LINNET_PEAK_LOOP(int32x4_t, vdupq_n_s32(0), vdotq_s32(sum, a, b), vaddq_s32)
  return vgetq_lane_s32(total, 0);
}
#else
#define LINNET_PEAK_UNKNOWN(a) asm volatile("" : "+w"(a))
#endif

#if CPUINFO_ARCH_ARM64 || CPUINFO_ARCH_ARM
// __neon_mlal_lane: bytes are widened to 16 bits, four products are added at a time.
int64_t MultiplyAddLong() {
  int16x4_t a = vdup_n_s16(3);
  const int16x4_t b = vdup_n_s16(5);
  LINNET_PEAK_LOOP(int32x4_t, vdupq_n_s32(0), vmlal_s16(sum, a, b), vaddq_s32)
  return vgetq_lane_s32(total, 0);
}

Choice Choose() {
#if CPUINFO_ARCH_ARM64
  if (cpuinfo_has_arm_i8mm()) return {MatrixMultiply, 32, "smmla, 128 bits"};
  if (cpuinfo_has_arm_neon_dot()) return {DotProduct, 16, "sdot, 128 bits"};
#endif
  return {MultiplyAddLong, 4, "smlal, 128 bits"};
}
#endif

struct Measurement {
  Kernel kernel;
  std::atomic<int64_t> checksum{0};  // keeps the steps from being removed
};

void RunKernel(void* context, uint32_t) {
  auto& measurement = *static_cast<Measurement*>(context);
  measurement.checksum.fetch_add(measurement.kernel(), std::memory_order_relaxed);
}

}  // namespace

Result<DotProductPeak> MeasureDotProductPeak(uint32_t threads, Diagnostic* diagnostic) {
  cpuinfo_initialize();  // where it fails every feature is absent
  const Choice choice = Choose();
  Measurement measurement = {choice.kernel};
  const PassLimits limits = {.min_passes = 9, .max_passes = 101, .target_seconds = 0.25};
  LINNET_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                          TimePasses({nullptr, RunKernel, &measurement}, threads, limits, diagnostic));
  // The fastest: nothing makes a pass faster than the hardware is, and everything else on the machine makes it slower.
  const double fastest = std::max(seconds.front(), 1e-9);
  DotProductPeak peak;
  peak.multiply_adds_per_s = static_cast<double>(kRounds * kSums) * choice.multiply_adds * threads / fastest;
  peak.spread = (seconds.back() - seconds.front()) / MedianSeconds(seconds);
  peak.instruction = choice.instruction;
  peak.threads = threads;
  return peak;
}

}  // namespace linnet::platform
