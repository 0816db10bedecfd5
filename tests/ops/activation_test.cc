#include "ops/activation.h"

#include <cmath>
#include <limits>

#include "tests/support/guarded.h"
#include "tests/support/ops_reference.h"
#include "tests/support/targets.h"

namespace linnet {
namespace {

using testing::Guarded;
using testing::kEps;
using testing::Random;

constexpr Activation kPlainKinds[] = {Activation::kRelu,     Activation::kSquaredRelu, Activation::kGelu,
                                      Activation::kGeluTanh, Activation::kSilu,        Activation::kSigmoid};

/// 4 ulp of the result, and 2e-7 of the argument for the functions whose negative tail is a difference from 1.
double Tolerance(double x, double expected) {
  return 4.0 * kEps * std::fabs(expected) + 2e-7 * std::fmin(std::fabs(x), 10.0) + 1e-37;
}

std::vector<float> Arguments(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(n);
  for (float& value : x) value = random.Normal() * std::exp(random.Uniform(-8.0f, 4.0f));
  return x;
}

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("PlainActivation: every kind matches the f64 reference on every target") {
    testing::ForEachTarget([] {
      for (const Activation kind : kPlainKinds) {
        const int kind_number = static_cast<int>(kind);
        CAPTURE(kind_number);
        for (const size_t width : testing::kWidths) {
          const Guarded<float> x(Arguments(2 * width, width));
          Guarded<float> out(2 * width);
          ops::PlainActivation({kind}, {x.data(), width}, 2, width, {out.data(), width});
          CHECK(out.GuardsIntact());
          for (size_t i = 0; i < 2 * width; ++i) {
            CAPTURE(x[i]);
            const double expected = testing::ReferenceActivation(kind, x[i]);
            REQUIRE(std::fabs(out[i] - expected) <= Tolerance(x[i], expected));
          }
        }
      }
    });
  }

  TEST_CASE("PlainActivation: a fine grid from -12 to 12 stays within the stated error") {
    constexpr size_t kSteps = 24001;
    std::vector<float> x(kSteps), out(kSteps);
    for (size_t i = 0; i < kSteps; ++i) x[i] = static_cast<float>(i) * 1e-3f - 12.0f;
    testing::ForEachTarget([&] {
      for (const Activation kind :
           {Activation::kGelu, Activation::kGeluTanh, Activation::kSilu, Activation::kSigmoid}) {
        ops::PlainActivation({kind}, {x.data(), kSteps}, 1, kSteps, {out.data(), kSteps});
        for (size_t i = 0; i < kSteps; ++i) {
          const double expected = testing::ReferenceActivation(kind, x[i]);
          REQUIRE(std::fabs(out[i] - expected) <= Tolerance(x[i], expected));
        }
      }
    });
  }

  TEST_CASE("PlainActivation: huge arguments go to the limits and NaN stays NaN") {
    const float inf = std::numeric_limits<float>::infinity();
    const std::vector<float> x = {1e30f, -1e30f, inf, 500.0f, -500.0f, std::nanf("")};
    testing::ForEachTarget([&] {
      for (const Activation kind : kPlainKinds) {
        std::vector<float> out(x.size());
        ops::PlainActivation({kind}, {x.data(), x.size()}, 1, x.size(), {out.data(), x.size()});
        CHECK(std::isnan(out[5]));
        CHECK(out[4] == 0.0f);
        CHECK(out[1] == 0.0f);
        CHECK(out[3] == (kind == Activation::kSigmoid ? 1.0f : kind == Activation::kSquaredRelu ? 250000.0f : 500.0f));
        CHECK(out[2] == (kind == Activation::kSigmoid ? 1.0f : inf));
      }
    });
  }

  TEST_CASE("GatedActivation: gate rows come first, in place gives the same bits") {
    testing::ForEachTarget([] {
      for (const Activation kind : kPlainKinds) {
        for (const size_t width : testing::kWidths) {
          Guarded<float> gate_up(Arguments(4 * width, width));
          Guarded<float> out(2 * width);
          ops::GatedActivation({kind}, {gate_up.data(), 2 * width}, 2, width, {out.data(), width});
          CHECK(out.GuardsIntact());
          for (size_t r = 0; r < 2; ++r) {
            for (size_t i = 0; i < width; ++i) {
              const double gate = gate_up[r * 2 * width + i], up = gate_up[r * 2 * width + width + i];
              const double expected = testing::ReferenceActivation(kind, gate) * up;
              REQUIRE(std::fabs(out[r * width + i] - expected) <=
                      Tolerance(gate, testing::ReferenceActivation(kind, gate)) * std::fabs(up) +
                          kEps * std::fabs(expected) + 1e-37);
            }
          }
          ops::GatedActivation({kind}, {gate_up.data(), 2 * width}, 2, width, {gate_up.data(), 2 * width});
          for (size_t i = 0; i < 2 * width; ++i) {
            REQUIRE(gate_up[i / width * 2 * width + i % width] == out[i]);
          }
        }
      }
    });
  }

  TEST_CASE("GatedActivation: the clamped SwiGLU follows its definition") {
    constexpr size_t kWidth = 131;
    constexpr float kClamp = 7.0f;
    testing::ForEachTarget([] {
      const Guarded<float> gate_up(Arguments(2 * kWidth, 3));
      Guarded<float> out(kWidth);
      ops::GatedActivation({Activation::kClampedSwiglu, kClamp}, {gate_up.data(), 2 * kWidth}, 1, kWidth,
                           {out.data(), kWidth});
      CHECK(out.GuardsIntact());
      for (size_t i = 0; i < kWidth; ++i) {
        const double gate = std::fmin(gate_up[i], kClamp);
        const double up = std::fmin(std::fmax(gate_up[kWidth + i], -kClamp), kClamp) + 1.0;
        const double expected = gate * testing::ReferenceSigmoid(1.702 * gate) * up;
        // 1.702 as f32 and the product's rounding move the sigmoid's argument by 2 ulp.
        const double argument_error = 2.0 * kEps * std::fabs(1.702 * gate);
        REQUIRE(std::fabs(out[i] - expected) <= (8.0 * kEps + argument_error) * std::fabs(expected) + 1e-37);
      }
    });
  }
}

}  // namespace linnet
