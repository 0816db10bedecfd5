#include "ops/matrix_product.h"

#include <cmath>
#include <cstring>

#include "core/base/checked.h"
#include "core/base/float16.h"
#include "hwy/targets.h"
#include "tests/support/guarded.h"
#include "tests/support/ops_reference.h"
#include "tests/support/targets.h"

namespace linnet {
namespace {

using testing::Random;

// A random matrix of a type with its bias, and its values in f64.
struct TestMatrix {
  TestMatrix(DType dtype, size_t n, size_t k, uint32_t block_size, uint64_t seed) : random(seed) {
    view.dtype = dtype;
    view.rank = 2;
    view.dims = {n, k, 0};
    view.block_size = block_size;
    data.resize(n * k * DTypeBits(dtype) / 8);
    values.resize(n * k);
    bias = testing::RandomVector(n, seed + 1);
    if (dtype == DType::kQ4) FillQ4(n, k, block_size);
    if (dtype == DType::kQ8) FillQ8(n, k);
    if (dtype == DType::kF32) FillF32();
    view.data = data;
    view.scales = scales;
  }

  void FillQ4(size_t n, size_t k, size_t block) {
    scales.resize(n * (k / block) * sizeof(uint16_t));
    auto* bf16 = reinterpret_cast<uint16_t*>(scales.data());
    for (size_t i = 0; i < n * (k / block); ++i) {
      const float scale = random.Uniform(0.001f, 0.2f);
      bf16[i] = BF16FromF32(random.Bits() % 2 == 0 ? scale : -scale);
    }
    for (std::byte& pair : data) pair = static_cast<std::byte>(random.Bits());
    for (size_t i = 0; i < values.size(); ++i) {
      const int q = (static_cast<int>(data[i / 2]) >> (i % 2 * 4) & 15) - 8;
      values[i] = q * static_cast<double>(F32FromBF16(bf16[i / block]));
    }
  }
  void FillQ8(size_t n, size_t k) {
    scales.resize(n * sizeof(float));
    auto* row_scales = reinterpret_cast<float*>(scales.data());
    for (size_t i = 0; i < n; ++i) row_scales[i] = random.Uniform(0.001f, 0.2f);
    for (std::byte& value : data) value = static_cast<std::byte>(random.Bits());
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int8_t>(data[i]) * double{row_scales[i / k]};
  }
  void FillF32() {
    auto* f32 = reinterpret_cast<float*>(data.data());
    for (size_t i = 0; i < values.size(); ++i) values[i] = f32[i] = random.Normal();
  }

  Random random;
  TensorView view;
  std::vector<std::byte> data, scales;
  std::vector<double> values;
  std::vector<float> bias;
};

// The input rows in the form that the type asks for, and their values in f64 (zero point taken off, not yet scaled).
struct TestRows {
  TestRows(bool quantized, size_t n_rows, size_t k, uint64_t seed)
      : f32(testing::RandomVector(n_rows * k + ops::kLinearInputPadding, seed)),
        values(n_rows * k),
        scale(n_rows, 1.0) {
    if (!quantized) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = f32[i];
      return;
    }
    Random random(seed);
    int8.resize(n_rows * k + ops::kLinearInputPadding);
    for (int8_t& value : int8) value = static_cast<int8_t>(random.Bits());
    params.resize(n_rows + ops::kLinearRowPadding);
    for (size_t r = 0; r < n_rows; ++r) {
      params[r] = {static_cast<int32_t>(random.Bits() % 256) - 128, random.Uniform(0.001f, 0.1f)};
      scale[r] = params[r].scale;
      for (size_t i = 0; i < k; ++i) values[r * k + i] = int8[r * k + i] - params[r].zero_point;
    }
  }
  ops::LinearInput Input(size_t row, size_t k) {
    if (int8.empty()) return {.f32 = f32.data() + row * k};
    return {.int8 = int8.data() + row * k, .rows = params.data() + row};
  }

  std::vector<float> f32;
  std::vector<int8_t> int8;
  std::vector<ops::RowQuantization> params;
  std::vector<double> values, scale;
};

struct Packed {
  explicit Packed(const TestMatrix& matrix) {
    const TensorView& view = matrix.view;
    const auto bytes = ops::PackedProductBytes(view.dtype, view.rows(), view.columns(), view.block_size);
    REQUIRE(bytes.ok());
    storage.resize(*bytes + 64);
    auto* aligned = reinterpret_cast<std::byte*>(AlignUp(reinterpret_cast<uintptr_t>(storage.data()), 64));
    region = {aligned, *bytes};
    const auto packed_seed = ops::PackProduct(view, 0, matrix.bias.data(), region);
    REQUIRE(packed_seed.ok());
    seed = *packed_seed;
  }
  std::vector<std::byte> storage;
  std::span<std::byte> region;
  uint32_t seed = 0;
};

// On a copy of the rows: a product fills the entries behind the last one.
std::vector<float> Run(ops::MatrixProduct& product, TestRows rows, size_t first, size_t n_rows, size_t n, size_t k,
                       ops::ThreadPool& pool) {
  testing::Guarded<float> out(n_rows * n);
  CHECK(product.Run(rows.Input(first, k), n_rows, out.data(), pool).ok());
  CHECK(out.GuardsIntact());
  return std::vector<float>(out.data(), out.data() + out.size());
}

void CheckAgainstReference(const TestMatrix& matrix, const TestRows& rows, const std::vector<float>& out, size_t n,
                           size_t k, size_t n_rows) {
  const bool quantized = !rows.int8.empty();
  for (size_t r = 0; r < n_rows; ++r) {
    for (size_t j = 0; j < n; ++j) {
      double sum = 0.0, magnitude = 0.0;
      for (size_t i = 0; i < k; ++i) {
        const double weight = matrix.values[j * k + i];
        sum += weight * rows.values[r * k + i];
        // Kernels add 128 or the zero point to quantized rows and take its share off at the end.
        magnitude += std::abs(weight) * (quantized ? 512.0 : std::abs(rows.values[r * k + i]));
      }
      const double expected = sum * rows.scale[r] + matrix.bias[j];
      // At most k sums in a row and four more roundings.
      const double tolerance = static_cast<double>(quantized ? k / 32 + 6 : k + 4) * testing::kEps *
                               (magnitude * rows.scale[r] + std::abs(matrix.bias[j]));
      if (std::abs(out[r * n + j] - expected) > tolerance) {
        FAIL_CHECK("row " << r << " output " << j << ": " << out[r * n + j] << ", expected " << expected);
        return;
      }
    }
  }
}

struct Case {
  DType dtype;
  uint32_t block_size;
  size_t k;
};
constexpr Case kCases[] = {{DType::kF32, 0, 40},   {DType::kQ8, 0, 40},   {DType::kQ4, 32, 64},
                           {DType::kQ4, 32, 576},  {DType::kQ4, 64, 128}, {DType::kQ4, 64, 576},
                           {DType::kQ4, 128, 256}, {DType::kQ4, 128, 384}};

void CheckCase(const Case& test, size_t n) {
  constexpr size_t kRows = 11;
  const TestMatrix matrix(test.dtype, n, test.k, test.block_size, n + test.k);
  TestRows rows(IsQuantized(test.dtype), kRows, test.k, n);
  const Packed packed(matrix);
  auto product = ops::MatrixProduct::Create(matrix.view, 0, packed.region, packed.seed);
  REQUIRE(product.ok());
  CHECK(product->quantized_input() == IsQuantized(test.dtype));
  auto one = ops::ThreadPool::Create(1), three = ops::ThreadPool::Create(3);
  REQUIRE((one.ok() && three.ok()));
  const std::vector<float> all = Run(*product, rows, 0, kRows, n, test.k, *one);
  CheckAgainstReference(matrix, rows, all, n, test.k, kRows);
  CHECK(Run(*product, rows, 0, kRows, n, test.k, *three) == all);
  for (const size_t n_rows : {1, 2, 3, 4, 5, 6, 7}) {
    CAPTURE(n_rows);
    const std::vector<float> part = Run(*product, rows, 3, n_rows, n, test.k, *three);
    CHECK(std::memcmp(part.data(), all.data() + 3 * n, part.size() * sizeof(float)) == 0);
  }
}

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("MatrixProduct: each output is the reference's, its bits the same for any rows and threads") {
    for (const Case& test : kCases) {
      CAPTURE(test.k);
      CAPTURE(test.block_size);
      for (const size_t n : {1, 15, 16, 17, 31, 32, 33, 64, 97}) {
        CAPTURE(n);
        CheckCase(test, n);
      }
    }
  }

  TEST_CASE("MatrixProduct: every instruction set of our own kernel reads the same packed bytes") {
    for (const int64_t target : {HWY_AVX2, HWY_AVX3, HWY_AVX3_DL}) {
      hwy::SetSupportedTargetsForTest(0);
      if ((hwy::SupportedTargets() & target) == 0) continue;
      const std::string name = hwy::TargetName(target);
      CAPTURE(name);
      hwy::SetSupportedTargetsForTest(target);
      CHECK(ops::HasQ4Product());
      for (const Case& test : kCases) {
        if (test.dtype == DType::kQ4) CheckCase(test, 97);
      }
    }
    hwy::SetSupportedTargetsForTest(0);
  }

  TEST_CASE("MatrixProduct: a masked CPU runs XNNPACK's kernels with other packed bytes") {
    const TestMatrix matrix(DType::kQ4, 48, 128, 32, 7);
    const auto own = ops::ProductFingerprint();
    const Packed packed(matrix);
    if (!ops::HasQ4Product()) {
      MESSAGE("skipped: this CPU has no AVX2");
      return;
    }
    hwy::SetSupportedTargetsForTest(HWY_SSE4);
    CHECK(!ops::HasQ4Product());
    const auto masked = ops::ProductFingerprint();
    REQUIRE((own.ok() && masked.ok()));
    CHECK(*own != *masked);
    const auto refused = ops::MatrixProduct::Create(matrix.view, 0, packed.region, packed.seed);
    CHECK(refused.status().code() == StatusCode::kInvalidModel);
    for (const Case& test : {Case{DType::kQ4, 32, 576}, {DType::kQ4, 64, 576}, {DType::kQ4, 128, 384}}) {
      CAPTURE(test.block_size);
      CheckCase(test, 33);
    }
    hwy::SetSupportedTargetsForTest(0);
    CHECK(ops::HasQ4Product());
  }

  TEST_CASE("PackProduct: a q4 scale that is no normal number is refused") {
    constexpr uint16_t kBad[] = {0x0000, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0x0001, 0x8001};
    for (const uint16_t scale : kBad) {
      CAPTURE(scale);
      TestMatrix matrix(DType::kQ4, 5, 64, 32, 9);
      std::memcpy(matrix.scales.data() + 6, &scale, sizeof(scale));
      const auto bytes = ops::PackedProductBytes(DType::kQ4, 5, 64, 32);
      REQUIRE(bytes.ok());
      std::vector<std::byte> storage(*bytes + 64);
      auto* aligned = reinterpret_cast<std::byte*>(AlignUp(reinterpret_cast<uintptr_t>(storage.data()), 64));
      CHECK(ops::PackProduct(matrix.view, 0, nullptr, {aligned, *bytes}).status().code() == StatusCode::kInvalidModel);
    }
  }

  TEST_CASE("MatrixProduct: a row that is not a number stays one, and only that row") {
    const TestMatrix matrix(DType::kQ4, 32, 64, 32, 3);
    TestRows rows(true, 2, 64, 4);
    rows.params[0] = {0, std::nanf("")};
    const Packed packed(matrix);
    auto product = ops::MatrixProduct::Create(matrix.view, 0, packed.region, packed.seed);
    auto pool = ops::ThreadPool::Create(1);
    REQUIRE((product.ok() && pool.ok()));
    const std::vector<float> out = Run(*product, rows, 0, 2, 32, 64, *pool);
    for (size_t j = 0; j < 32; ++j) CHECK((std::isnan(out[j]) && std::isfinite(out[32 + j])));
  }
}

}  // namespace linnet
