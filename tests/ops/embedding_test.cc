#include "ops/embedding.h"

#include <bit>
#include <cmath>

#include "ops/convert_float.h"
#include "ops/walsh_hadamard.h"
#include "tests/support/guarded.h"
#include "tests/support/ops_reference.h"
#include "tests/support/targets.h"

namespace linnet {
namespace {

using testing::Guarded;
using testing::kEps;

constexpr size_t kVocab = 5;
constexpr int32_t kIds[] = {4, 0, 2};

/// A table of random bytes and what they mean.
struct Table {
  std::vector<unsigned char> data, scales;
  std::vector<double> values;
  TensorView view;
};

uint16_t RandomHalf(testing::Random& random, DType dtype) {
  const float value = random.Normal();
  uint16_t bits = 0;
  dtype == DType::kF16 ? ops::F32ToF16(&value, 1, &bits) : ops::F32ToBF16(&value, 1, &bits);
  return bits;
}

template <typename T>
void Append(std::vector<unsigned char>& bytes, T value) {
  const auto* first = reinterpret_cast<const unsigned char*>(&value);
  bytes.insert(bytes.end(), first, first + sizeof(T));
}

void FillQ4(Table& table, size_t width, uint32_t block, testing::Random& random) {
  for (size_t i = 0; i < kVocab * width / block; ++i) Append(table.scales, RandomHalf(random, DType::kBF16));
  for (size_t i = 0; i < kVocab * width / 2; ++i) table.data.push_back(static_cast<unsigned char>(random.Bits() >> 20));
  for (size_t i = 0; i < kVocab * width; ++i) {
    uint16_t scale = 0;
    std::memcpy(&scale, table.scales.data() + i / block * 2, 2);
    const int nibble = i % 2 == 0 ? table.data[i / 2] & 15 : table.data[i / 2] >> 4;
    table.values.push_back((nibble - 8) *
                           static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(scale) << 16)));
  }
}

void FillPlain(Table& table, size_t width, DType dtype, testing::Random& random) {
  for (size_t row = 0; row < kVocab; ++row) {
    const float scale = random.Uniform(0.01f, 0.1f);
    if (dtype == DType::kQ8) Append(table.scales, scale);
    for (size_t i = 0; i < width; ++i) {
      if (dtype == DType::kF32) {
        const float value = random.Normal();
        Append(table.data, value);
        table.values.push_back(value);
      } else if (dtype == DType::kQ8) {
        const int8_t value = static_cast<int8_t>(random.Bits() >> 24);
        Append(table.data, value);
        table.values.push_back(value * static_cast<double>(scale));
      } else {
        const uint16_t bits = RandomHalf(random, dtype);
        Append(table.data, bits);
        table.values.push_back(dtype == DType::kF16
                                   ? testing::ReferenceF16(bits)
                                   : static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)));
      }
    }
  }
}

Table MakeTable(DType dtype, size_t width, uint32_t block) {
  testing::Random random(width + block);
  Table table;
  dtype == DType::kQ4 ? FillQ4(table, width, block, random) : FillPlain(table, width, dtype, random);
  table.view.dtype = dtype;
  table.view.rank = 2;
  table.view.dims = {kVocab, width, 0};
  table.view.block_size = block;
  table.view.data = std::as_bytes(std::span(table.data));
  table.view.scales = std::as_bytes(std::span(table.scales));
  return table;
}

void CheckTable(DType dtype, size_t width, uint32_t block) {
  const std::string type_name = DTypeName(dtype);
  CAPTURE(type_name);
  CAPTURE(width);
  const Table table = MakeTable(dtype, width, block);
  const size_t stride = width + 1;
  Guarded<float> out(3 * stride);
  ops::EmbeddingLookup(table.view, kIds, 1.5f, {out.data(), stride});
  CHECK(out.GuardsIntact());
  Guarded<float> row(width);
  for (size_t t = 0; t < 3; ++t) {
    ops::DequantizeRow(table.view, kIds[t], row.data());
    CHECK(row.GuardsIntact());
    for (size_t i = 0; i < width; ++i) {
      const double expected = table.values[kIds[t] * width + i];
      REQUIRE(std::fabs(row[i] - expected) <= kEps * std::fabs(expected));
      REQUIRE(std::fabs(out[t * stride + i] - 1.5 * expected) <= 2.0 * kEps * std::fabs(1.5 * expected));
    }
  }
  Guarded<float> positions(2 * stride);
  ops::AddPositionRows(table.view, 3, 2, {positions.data(), stride});
  CHECK(positions.GuardsIntact());
  for (size_t t = 0; t < 2; ++t) {
    for (size_t i = 0; i < width; ++i) {
      const double expected = table.values[(3 + t) * width + i];
      REQUIRE(std::fabs(positions[t * stride + i] - expected) <= kEps * std::fabs(expected));
    }
  }
}

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("EmbeddingLookup, DequantizeRow, AddPositionRows: every type on every target") {
    testing::ForEachTarget([] {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8}) {
        for (const size_t width : testing::kWidths) CheckTable(dtype, width, 0);
      }
      for (const uint32_t block : {32u, 64u, 128u}) {
        for (const size_t n_blocks : {1, 2, 3, 5, 11}) CheckTable(DType::kQ4, block * n_blocks, block);
      }
    });
  }

  TEST_CASE("EmbeddingLookup: a rotated table gives the rows before the rotation") {
    testing::ForEachTarget([] {
      constexpr size_t kWidth = 192, kBlock = 64;
      Table table = MakeTable(DType::kF32, kWidth, 0);
      const std::vector<float> original = testing::RandomVector(kVocab * kWidth, 4);
      auto* stored = reinterpret_cast<float*>(table.data.data());
      ops::WalshHadamard({original.data(), kWidth}, kVocab, kWidth, kBlock, {stored, kWidth});
      table.view.rotation_block = kBlock;
      std::vector<float> out(3 * kWidth);
      ops::EmbeddingLookup(table.view, kIds, 1.0f, {out.data(), kWidth});
      for (size_t t = 0; t < 3; ++t) {
        for (size_t i = 0; i < kWidth; ++i) {
          REQUIRE(std::fabs(out[t * kWidth + i] - original[kIds[t] * kWidth + i]) <= 14.0 * kEps * 8.0 * 3.5);
        }
      }
    });
  }
}

}  // namespace linnet
