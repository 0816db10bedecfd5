#include "ops/quantize_activations.h"

#include <cmath>
#include <limits>

#include "ops/walsh_hadamard.h"
#include "tests/support/guarded.h"
#include "tests/support/targets.h"
#include "xnnpack.h"

namespace linnet {
namespace {

using testing::Guarded;
using testing::RandomVector;

struct Quantized {
  std::vector<int8_t> values;
  std::vector<ops::RowQuantization> params;
};

Quantized QuantizeWithLinnet(const std::vector<float>& x, size_t n_rows, size_t width, size_t rotation_block) {
  const Guarded<float> input(x);
  Guarded<int8_t> values(n_rows * width);
  Guarded<ops::RowQuantization> params(n_rows);
  Guarded<float> scratch(rotation_block == 0 ? 0 : width);
  ops::QuantizeRows({n_rows, width, rotation_block}, {input.data(), width}, {scratch.data(), scratch.size()},
                    {{values.data(), width}, params.data()});
  CHECK((values.GuardsIntact() && params.GuardsIntact() && scratch.GuardsIntact()));
  return {std::vector<int8_t>(values.data(), values.data() + values.size()),
          std::vector<ops::RowQuantization>(params.data(), params.data() + n_rows)};
}

Quantized QuantizeWithXnnpack(const std::vector<float>& x, size_t n_rows, size_t width) {
  REQUIRE(xnn_initialize(nullptr) == xnn_status_success);
  Quantized result;
  std::vector<float> padded = x;
  padded.resize(x.size() + XNN_EXTRA_BYTES / sizeof(float));
  result.values.resize(n_rows * width + XNN_EXTRA_BYTES);
  result.params.resize(n_rows + XNN_EXTRA_QUANTIZATION_PARAMS);
  xnn_operator_t convert = nullptr;
  REQUIRE(xnn_create_convert_nc_f32_qd8(0, &convert) == xnn_status_success);
  REQUIRE(xnn_reshape_convert_nc_f32_qd8(convert, n_rows, width, width, width, nullptr) == xnn_status_success);
  auto* params = reinterpret_cast<xnn_quantization_params*>(result.params.data());
  REQUIRE(xnn_setup_convert_nc_f32_qd8(convert, padded.data(), result.values.data(), params) == xnn_status_success);
  REQUIRE(xnn_run_operator(convert, nullptr) == xnn_status_success);
  xnn_delete_operator(convert);
  result.values.resize(n_rows * width);
  result.params.resize(n_rows);
  return result;
}

void CheckSame(const Quantized& a, const Quantized& b) {
  CHECK(a.values == b.values);
  for (size_t r = 0; r < a.params.size(); ++r) {
    CHECK(a.params[r].zero_point == b.params[r].zero_point);
    CHECK(a.params[r].scale == b.params[r].scale);
  }
}

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("QuantizeRows: the same bytes, zero points and scales as XNNPACK on every target") {
    static_assert(ops::kExtraRowQuantizations >= XNN_EXTRA_QUANTIZATION_PARAMS);
    testing::ForEachTarget([] {
      for (const size_t width : testing::kWidths) {
        CAPTURE(width);
        for (uint64_t seed = 0; seed < 8; ++seed) {
          std::vector<float> x =
              RandomVector(3 * width, 1000 * width + seed, 0.01f * static_cast<float>(1 + seed * seed));
          if (seed == 1)
            for (float& v : x) v = std::fabs(v);  // the range ends at 0
          if (seed == 2)
            for (float& v : x) v = -std::fabs(v) - 1.0f;  // and 0 lies outside the values
          if (seed == 3)
            for (float& v : x) v = 0.0f;
          if (seed == 4) x[0] = 1e4f;  // an outlier
          CheckSame(QuantizeWithLinnet(x, 3, width, 0), QuantizeWithXnnpack(x, 3, width));
        }
      }
    });
  }

  TEST_CASE("QuantizeRows: the fused rotation equals rotation, then quantization") {
    testing::ForEachTarget([] {
      for (const size_t block : {size_t{1}, size_t{2}, size_t{8}, size_t{64}, size_t{256}}) {
        for (const size_t n_blocks : {1, 3}) {
          const size_t width = block * n_blocks;
          const std::vector<float> x = RandomVector(2 * width, width, 3.0f);
          std::vector<float> rotated(x.size());
          ops::WalshHadamard({x.data(), width}, 2, width, block, {rotated.data(), width});
          CheckSame(QuantizeWithLinnet(x, 2, width, block), QuantizeWithLinnet(rotated, 2, width, 0));
        }
      }
    });
  }

  TEST_CASE("QuantizeRows: values come back within half a step") {
    testing::ForEachTarget([] {
      constexpr size_t kWidth = 301;
      const std::vector<float> x = RandomVector(kWidth, 3);
      const Quantized q = QuantizeWithLinnet(x, 1, kWidth, 0);
      for (size_t i = 0; i < kWidth; ++i) {
        // The zero point is rounded too: the ends of the range may lose another half step.
        const float back = static_cast<float>(q.values[i] - q.params[0].zero_point) * q.params[0].scale;
        REQUIRE(std::fabs(back - x[i]) <= q.params[0].scale * 1.001f);
      }
    });
  }

  TEST_CASE("QuantizeRows: a row that is not finite shows, tiny and huge ranges stay defined") {
    testing::ForEachTarget([] {
      const float max = std::numeric_limits<float>::max();
      for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
        for (const size_t at : {size_t{0}, size_t{36}}) {
          std::vector<float> x = RandomVector(37, 1);
          x[at] = bad;
          CHECK(std::isnan(QuantizeWithLinnet(x, 1, 37, 0).params[0].scale));
        }
      }
#if !defined(__arm__)  // 32-bit NEON takes subnormal numbers for zeros
      CHECK(QuantizeWithLinnet({1e-40f, -1e-40f, 0.0f}, 1, 3, 0).values == std::vector<int8_t>{0, 0, 0});
#endif
      const Quantized huge = QuantizeWithLinnet({max, -max, 0.0f}, 1, 3, 0);
      CHECK(std::isinf(huge.params[0].scale));
    });
  }
}

}  // namespace linnet
