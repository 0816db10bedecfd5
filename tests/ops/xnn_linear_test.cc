// Matrix products from packed bytes, beside operators that XNNPACK packs itself.
#include "ops/xnn_linear.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xnnpack.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/checked.h"
#include "core/base/float16.h"
#include "tests/support/ops_reference.h"

namespace linnet::ops {
namespace {

struct Line {
  alignas(64) std::byte bytes[64];
};

// A matrix of random weights with everything that a TensorView points at.
struct Matrix {
  std::vector<std::byte> data;
  std::vector<float> q8_scales;
  std::vector<uint16_t> q4_scales;
  std::vector<float> bias;
  TensorView view;

  Matrix(DType type, uint64_t n, uint64_t k, uint32_t block_size) {
    uint32_t state = static_cast<uint32_t>(n * 31 + k);
    const auto next = [&state] { return (state = state * 1664525u + 1013904223u) >> 8; };
    data.resize(n * k * DTypeBits(type) / 8);
    for (std::byte& b : data) b = static_cast<std::byte>(next());
    if (type == DType::kF32) {
      for (size_t i = 0; i < n * k; ++i) {
        const float value = static_cast<float>(next() % 2001) / 1000.0f - 1.0f;
        std::memcpy(data.data() + 4 * i, &value, 4);
      }
    }
    view.dtype = type;
    view.rank = 2;
    view.dims = {n, k, 0};
    view.block_size = block_size;
    view.data = data;
    if (type == DType::kQ8) {
      for (uint64_t i = 0; i < n; ++i) q8_scales.push_back(0.01f + static_cast<float>(next() % 100) / 1000.0f);
      view.scales = std::as_bytes(std::span(q8_scales));
    }
    if (type == DType::kQ4) {
      for (uint64_t i = 0; i < n * k / block_size; ++i) {
        q4_scales.push_back(BF16FromF32(0.01f + static_cast<float>(next() % 100) / 1000.0f));
      }
      view.scales = std::as_bytes(std::span(q4_scales));
    }
    for (uint64_t i = 0; i < n; ++i) bias.push_back(static_cast<float>(next() % 100) / 50.0f);
  }
};

struct Input {
  std::vector<float> f32;
  std::vector<int8_t> int8;
  std::vector<RowQuantization> rows;

  Input(size_t m, size_t k) : f32(m * k + kLinearInputPadding), int8(m * k + kLinearInputPadding) {
    rows.resize(m + kLinearRowPadding);
    for (size_t i = 0; i < m * k; ++i) {
      f32[i] = std::sin(static_cast<float>(i));
      int8[i] = static_cast<int8_t>(static_cast<int>(i * 37 % 255) - 127);
    }
    for (size_t r = 0; r < m; ++r) rows[r] = {static_cast<int32_t>(r % 5) - 2, 0.02f + 0.001f * static_cast<float>(r)};
  }
  LinearInput For(DType type) {
    return IsQuantized(type) ? LinearInput{.int8 = int8.data(), .rows = rows.data()} : LinearInput{.f32 = f32.data()};
  }
};

// The product by an operator that XNNPACK creates, packs and checks whole, without any of Linnet's code.
std::vector<float> ByXnnpack(const Matrix& matrix, Input& input, size_t m) {
  const size_t n = matrix.view.rows(), k = matrix.view.columns();
  std::vector<float> out(m * n);
  xnn_operator_t op = nullptr;
  const auto* rows = reinterpret_cast<const xnn_quantization_params*>(input.rows.data());
  std::fill_n(input.rows.data() + m, kLinearRowPadding, input.rows[m - 1]);
  const float infinity = INFINITY;
  switch (matrix.view.dtype) {
    case DType::kQ8:
      REQUIRE(xnn_create_fully_connected_nc_qd8_f32_qc8w(
                  k, n, k, n, matrix.q8_scales.data(), reinterpret_cast<const int8_t*>(matrix.data.data()),
                  matrix.bias.data(), -infinity, infinity, 0, nullptr, nullptr, &op) == xnn_status_success);
      REQUIRE(xnn_reshape_fully_connected_nc_qd8_f32_qc8w(op, m, nullptr) == xnn_status_success);
      REQUIRE(xnn_setup_fully_connected_nc_qd8_f32_qc8w(op, input.int8.data(), out.data(), rows) == xnn_status_success);
      break;
    case DType::kQ4:
      REQUIRE(xnn_create_fully_connected_nc_qd8_f32_qb4w(k, n, k, n, matrix.view.block_size, 8, matrix.q4_scales.data(),
                                                         matrix.data.data(), matrix.bias.data(), -infinity, infinity, 0,
                                                         nullptr, nullptr, &op) == xnn_status_success);
      REQUIRE(xnn_reshape_fully_connected_nc_qd8_f32_qb4w(op, m, nullptr) == xnn_status_success);
      REQUIRE(xnn_setup_fully_connected_nc_qd8_f32_qb4w(op, input.int8.data(), out.data(), rows) == xnn_status_success);
      break;
    default:
      REQUIRE(xnn_create_fully_connected_nc_f32(k, n, k, n, matrix.view.f32(), matrix.bias.data(), -infinity, infinity,
                                                0, nullptr, nullptr, &op) == xnn_status_success);
      REQUIRE(xnn_reshape_fully_connected_nc_f32(op, m, nullptr) == xnn_status_success);
      REQUIRE(xnn_setup_fully_connected_nc_f32(op, input.f32.data(), out.data()) == xnn_status_success);
  }
  REQUIRE(xnn_run_operator(op, nullptr) == xnn_status_success);
  xnn_delete_operator(op);
  return out;
}

struct Packed {
  std::vector<Line> lines;
  std::span<std::byte> bytes;
  uint32_t seed = 0;

  explicit Packed(const Matrix& matrix) {
    const TensorView& view = matrix.view;
    const auto size = PackedMatrixBytes(view.dtype, view.rows(), view.columns(), view.block_size);
    REQUIRE(size.ok());
    lines.resize(CeilDiv(*size, 64));
    bytes = {lines[0].bytes, *size};
    const auto packed = PackMatrix(view, 0, matrix.bias.data(), bytes);
    REQUIRE(packed.ok());
    seed = *packed;
  }
};

// Memory that nobody can read.
class Unreadable {
 public:
  explicit Unreadable(size_t bytes) : bytes_(bytes) {
    base_ = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(base_ != MAP_FAILED);
  }
  ~Unreadable() { munmap(base_, bytes_); }
  std::span<const std::byte> bytes(size_t size) const { return {static_cast<const std::byte*>(base_), size}; }

 private:
  void* base_;
  size_t bytes_;
};

struct Case {
  DType type;
  uint64_t n, k;
  uint32_t block_size;
};
const Case kCases[] = {{DType::kF32, 1, 8, 0},       {DType::kF32, 37, 64, 0},  {DType::kF32, 600, 40, 0},
                       {DType::kQ8, 1, 32, 0},       {DType::kQ8, 37, 100, 0},  {DType::kQ8, 600, 64, 0},
                       {DType::kQ4, 1, 64, 32},      {DType::kQ4, 37, 128, 32}, {DType::kQ4, 600, 256, 64},
                       {DType::kQ4, 2048, 256, 128}, {DType::kQ4, 65, 512, 128}};

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("Linear: from packed bytes it computes what XNNPACK's own operator computes, bit for bit") {
    REQUIRE(InitializeXnnpack().ok());
    auto pool = ThreadPool::Create(2);
    REQUIRE(pool.ok());
    for (const Case& c : kCases) {
      CAPTURE(std::string(DTypeName(c.type)));
      CAPTURE(c.n);
      CAPTURE(c.k);
      const Matrix matrix(c.type, c.n, c.k, c.block_size);
      const Packed packed(matrix);
      auto linear = Linear::Create(matrix.view, 0, packed.bytes, packed.seed);
      REQUIRE(linear.ok());
      for (const size_t m : {1, 9, 2}) {
        CAPTURE(m);
        Input input(m, c.k);
        const std::vector<float> expected = ByXnnpack(matrix, input, m);
        std::vector<float> found(m * c.n);
        REQUIRE(linear->Run(input.For(c.type), m, found.data(), *pool).ok());
        CHECK(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0);
      }
    }
  }

  TEST_CASE("Linear: creation reads neither the weights nor their scales") {
    // Otherwise a start would read most of the model file again.
    for (const Case& c : kCases) {
      CAPTURE(std::string(DTypeName(c.type)));
      CAPTURE(c.n);
      const Matrix matrix(c.type, c.n, c.k, c.block_size);
      const Packed packed(matrix);
      const Unreadable nothing(matrix.data.size() + matrix.view.scales.size() + 1);
      TensorView unreadable = matrix.view;
      unreadable.data = nothing.bytes(matrix.data.size());
      unreadable.scales = nothing.bytes(matrix.view.scales.size());
      CHECK(Linear::Create(unreadable, 0, packed.bytes, packed.seed).ok());
    }
  }

  TEST_CASE("Linear: packed bytes of another kernel or shape are refused") {
    for (const Case& c : kCases) {
      const Matrix matrix(c.type, c.n, c.k, c.block_size);
      const Packed packed(matrix);
      CHECK(Linear::Create(matrix.view, 0, packed.bytes, packed.seed ^ 8u).status().code() ==
            StatusCode::kInvalidModel);
    }
  }

  TEST_CASE("PackMatrix: q4 scales that are no normal numbers are refused") {
    for (const float scale : {0.0f, INFINITY, NAN, 1e-40f}) {
      Matrix matrix(DType::kQ4, 8, 64, 32);
      matrix.q4_scales[5] = BF16FromF32(scale);
      const Packed good(Matrix(DType::kQ4, 8, 64, 32));
      std::vector<Line> lines(good.lines.size());
      CHECK(PackMatrix(matrix.view, 0, nullptr, {lines[0].bytes, good.bytes.size()}).status().code() ==
            StatusCode::kInvalidModel);
    }
  }
}

}  // namespace linnet::ops
