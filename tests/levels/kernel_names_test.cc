// The kernels of every CPU level, by name: a fallback would compute the same numbers, only slower.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "examples/cli/cpu_level.h"
#include "ops/q4_product.h"
#include "ops/xnn_kernels.h"

namespace linnet {
namespace {

/// Names of the kernels of one and of many rows.
struct Pair {
  std::string one_row, many_rows;
  bool operator==(const Pair&) const = default;
};

/// What XNNPACK (f32, q8, q4) and Highway choose at a level. Two pairs where the choice depends on the core's maker
/// too.
struct Expected {
  const char* level;
  const char* highway;
  std::vector<Pair> f32, q8, q4;
};

std::vector<Expected> ExpectedKernels() {
#if defined(__x86_64__)
  const Pair f32_avx512 = {"1x32__avx512f_broadcast", "7x32__avx512f_broadcast"};
  return {
      {"sse4",
       "SSE4",
       {{"1x8__sse_load1", "4x8__sse_load1"}},
       {{"1x4c8__sse41_ld64", "4x4c8__sse41_ld64"}},
       {{"1x4c8__sse41_ld128", "3x4c8__sse41_ld128"}}},
      // The second pair of f32: the first generation of Zen.
      {"avx2",
       "AVX2",
       {{"1x16__fma3_broadcast", "5x16__fma3_broadcast"}, {"1x16s4__fma3_broadcast", "4x16s4__fma3_broadcast"}},
       {{"1x8c8__avx2", "4x8c8__avx2"}},
       {{"q4_product_1x16__avx2", "q4_product_4x16__avx2"}}},
      {"avx512",
       "AVX3",
       {f32_avx512},
       {{"1x16c8__avx512skx_prfm", "8x16c8__avx512skx_prfm"}},
       {{"q4_product_1x16__avx3", "q4_product_4x16__avx3"}}},
      // The second pair of q4: CPUs with VNNI and little beside it (Cascade Lake), for Highway plain AVX-512.
      {"avx512vnni",
       "AVX3",
       {f32_avx512},
       {{"1x16c8__avx512vnni_prfm", "10x16c8__avx512vnni_prfm"}},
       {{"q4_product_1x32__avx3_dl", "q4_product_4x32__avx3_dl"}, {"q4_product_1x16__avx3", "q4_product_4x16__avx3"}}},
  };
#elif defined(__aarch64__)
  const Pair f32 = {"1x8__aarch64_neonfma_lane_ld128", "6x8__aarch64_neonfma_lane_ld128"};
  const Pair i8mm = {"1x16c8__neoni8mm", "4x16c8__neoni8mm"}, dotprod = {"1x16c4__neondot", "4x16c4__neondot"};
  return {
      {"neon",
       "NEON_WITHOUT_AES",
       {f32},
       {{"1x8c2s4__neon_mlal", "2x8c2s4__neon_mlal"}},
       {{"1x16__neon_mlal_lane", "6x16__neon_mlal_lane"}}},
      {"dotprod", "NEON_WITHOUT_AES", {f32}, {dotprod}, {dotprod}},
      {"i8mm", "NEON_WITHOUT_AES", {f32}, {i8mm}, {i8mm}},
      {"sve", "SVE", {f32}, {i8mm}, {i8mm}},
  };
#else
  const Pair f32 = {"1x8__neon_lane_ld64", "4x8__neon_lane_ld128"};
  return {
      {"neon",
       "NEON_WITHOUT_AES",
       {f32},
       {{"1x8c2s4__neon_mlal", "2x8c2s4__neon_mlal"}},
       {{"1x16__neon_mlal_lane", "6x16__neon_mlal_lane"}}},
      {"dotprod",
       "NEON_WITHOUT_AES",
       {f32},
       {{"1x8c4__neondot", "4x8c4__neondot"}},
       {{"1x16c4__neondot", "4x16c4__neondot"}}},
  };
#endif
}

std::string AfterTile(const std::string& name) {
  const std::string marker = "_gemm_minmax_ukernel_";
  const size_t begin = name.find(marker);
  return begin == std::string::npos ? name : name.substr(begin + marker.size());
}

void CheckOneOf(const ops::LinearKernels& found, const std::vector<Pair>& expected) {
  const Pair pair = {AfterTile(found.one_row), AfterTile(found.many_rows)};
  CAPTURE(pair.one_row);
  CAPTURE(pair.many_rows);
  CHECK(std::find(expected.begin(), expected.end(), pair) != expected.end());
}

}  // namespace

TEST_SUITE("levels") {
  TEST_CASE("Kernels: this CPU or mask is the level that the test is run for") {
    if (const char* level = std::getenv("LINNET_TEST_CPU_LEVEL"); level != nullptr) {
      CHECK(cli::ReachedCpuLevel() == level);
    } else {
      MESSAGE("skipped: LINNET_TEST_CPU_LEVEL is not set; the level is " << cli::ReachedCpuLevel());
    }
  }

  TEST_CASE("Kernels: XNNPACK and Highway choose the level's own") {
    const std::string level = cli::ReachedCpuLevel();
    CAPTURE(level);
    const auto found = ops::ChosenLinearKernels();
    REQUIRE(found.ok());
    for (const Expected& expected : ExpectedKernels()) {
      if (level != expected.level) continue;
      CHECK(cli::HighwayTargetName() == expected.highway);
      CheckOneOf(found.value()[0], expected.f32);
      CheckOneOf(found.value()[1], expected.q8);
      CheckOneOf(found.value()[2], expected.q4);
      CHECK(std::string(found.value()[1].one_row).starts_with("qd8_f32_qc8w"));
      CHECK(std::string(found.value()[2].one_row).starts_with(ops::HasQ4Product() ? "q4_product" : "qd8_f32_qb4w"));
      return;
    }
    FAIL("no kernels are expected for this level");
  }
}

}  // namespace linnet
