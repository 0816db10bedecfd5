#include "ops/kv_cache.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/support/attention_harness.h"
#include "tests/support/guarded.h"
#include "tests/support/targets.h"

namespace linnet::testing {
namespace {

using ops::KvLayout;
using ops::KvType;

struct Cache {
  explicit Cache(const KvLayout& l) : layout(l), bytes(l.bytes, std::byte{0xFF}) {}

  template <typename T>
  T At(uint64_t offset, size_t element) const {
    T value;
    std::memcpy(&value, bytes.data() + offset + element * sizeof(T), sizeof(T));
    return value;
  }
  size_t KeyElement(uint32_t head, uint32_t slot, uint32_t d) const {
    const ops::KvShape& s = layout.shape;
    const size_t block = (size_t{head} * s.capacity + slot) / ops::kKvBlock;
    return (block * s.head_dim + d) * ops::kKvBlock + slot % ops::kKvBlock;
  }
  size_t ValueElement(uint32_t head, uint32_t slot, uint32_t d) const {
    return (size_t{head} * layout.shape.capacity + slot) * layout.shape.value_dim + d;
  }

  KvLayout layout;
  std::vector<std::byte> bytes;
};

float HalfToFloat(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                        : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

struct Rows {
  std::vector<float> k, v;
  size_t k_stride, v_stride;
};

Rows RandomRows(const KvLayout& layout, uint32_t n_tokens) {
  const ops::KvShape& s = layout.shape;
  Rows rows = {{}, {}, size_t{s.n_kv_heads} * s.head_dim + 3, size_t{s.n_kv_heads} * s.value_dim + 5};
  rows.k = RandomVector(n_tokens * rows.k_stride, 1);
  rows.v = RandomVector(n_tokens * rows.v_stride, 2);
  return rows;
}

ops::KvStoreArgs Args(Cache& cache, const Rows& rows, uint32_t first_pos, uint32_t n_tokens) {
  return {&cache.layout, cache.bytes.data(), first_pos,     n_tokens,
          rows.k.data(), rows.k_stride,      rows.v.data(), rows.v_stride};
}

TEST_SUITE("ops") {
  TEST_CASE("KvCapacity: whole blocks, of the context or of a ring that a chunk does not overrun") {
    CHECK(ops::KvCapacity(0, 1, 1) == 64);
    CHECK(ops::KvCapacity(0, 64, 512) == 64);
    CHECK(ops::KvCapacity(0, 65, 1) == 128);
    CHECK(ops::KvCapacity(512, 4096, 1) == 512);
    CHECK(ops::KvCapacity(512, 4096, 2) == 576);
    CHECK(ops::KvCapacity(512, 4096, 512) == 1024);
    CHECK(ops::KvCapacity(512, 300, 512) == 320);
    CHECK(ops::KvCapacity(4294967295u, 1000, 4294967295u) == 1024);
  }

  TEST_CASE("MakeKvLayout: no byte is padding and every part is aligned") {
    const KvLayout f16 = ops::MakeKvLayout({KvType::kF16, 3, 64, 48, 128, false});
    CHECK(f16.bytes == 128 * 3 * (64 + 48) * 2);
    CHECK(f16.values_offset == 128 * 3 * 64 * 2);
    const KvLayout int8 = ops::MakeKvLayout({KvType::kInt8, 3, 6, 10, 64, false});
    CHECK(int8.bytes == 64 * 3 * (6 + 10 + 8));
    CHECK(int8.values_offset % 64 == 0);
    CHECK(int8.key_scales_offset % 64 == 0);
    CHECK(int8.value_scales_offset == int8.key_scales_offset + 64 * 3 * 4);
    const KvLayout latent = ops::MakeKvLayout({KvType::kF32, 1, 576, 512, 64, true});
    CHECK(latent.bytes == 64 * 576 * 4);
    // 80 layers of a 70B-class model, 64 kv heads of 128, context 32768, f16: 80 GiB.
    const KvLayout large = ops::MakeKvLayout({KvType::kF16, 64, 128, 128, 32768, false});
    CHECK(large.bytes * 80 == uint64_t{80} << 30);
  }

  TEST_CASE("StoreKv: rows land in their slots, wrap around the ring and touch nothing else") {
    const KvLayout layout = ops::MakeKvLayout({KvType::kF32, 2, 10, 6, 128, false});
    const uint32_t first = 120, n = 20;  // slots 120 to 127, then 0 to 11
    const Rows rows = RandomRows(layout, n);
    ForEachTarget([&] {
      Cache cache(layout);
      const ops::KvStoreArgs args = Args(cache, rows, first, n);
      CHECK(ops::KvStoreTaskCount(args) == 2 * 2);
      ops::StoreKv(args);
      size_t written = 0;
      for (uint32_t t = 0; t < n; ++t) {
        for (uint32_t h = 0; h < 2; ++h) {
          const uint32_t slot = (first + t) % 128;
          for (uint32_t d = 0; d < 10; ++d, ++written) {
            CHECK(cache.At<float>(0, cache.KeyElement(h, slot, d)) == rows.k[t * rows.k_stride + h * 10 + d]);
          }
          for (uint32_t d = 0; d < 6; ++d, ++written) {
            CHECK(cache.At<float>(layout.values_offset, cache.ValueElement(h, slot, d)) ==
                  rows.v[t * rows.v_stride + h * 6 + d]);
          }
        }
      }
      size_t found = 0;
      for (size_t i = 0; i < layout.bytes / 4; ++i) found += !std::isnan(cache.At<float>(0, i));
      CHECK(found == written);
    });
  }

  TEST_CASE("StoreKv: f16 rounds to nearest, keeps subnormals and NaN, and limits what is too large") {
    const KvLayout layout = ops::MakeKvLayout({KvType::kF16, 1, 40, 40, 64, false});
    Rows rows = RandomRows(layout, 3);
    const float infinity = std::numeric_limits<float>::infinity();
    const float special[] = {0.0f,     -0.0f, 1.0f + 1.0f / 2048, 1.0f + 3.0f / 2048, 6e-8f, 1e-6f, 65504.0f,
                             65519.0f, 1e6f,  -infinity};
    std::memcpy(rows.k.data(), special, sizeof special);
    rows.k[20] = std::nanf("");
    ForEachTarget([&] {
      Cache cache(layout);
      ops::StoreKv(Args(cache, rows, 5, 3));
      for (uint32_t t = 0; t < 3; ++t) {
        for (uint32_t d = 0; d < 40; ++d) {
          const uint16_t key = cache.At<uint16_t>(0, cache.KeyElement(0, 5 + t, d));
          const float k = rows.k[t * rows.k_stride + d];
          if (std::isnan(k)) {
            CHECK((key & 0x7FFF) > 0x7C00);
          } else {
            CHECK(HalfToFloat(key) == RoundToHalf(k));
          }
          const uint16_t value = cache.At<uint16_t>(layout.values_offset, cache.ValueElement(0, 5 + t, d));
          CHECK(HalfToFloat(value) == RoundToHalf(rows.v[t * rows.v_stride + d]));
        }
      }
    });
  }

  TEST_CASE("StoreKv: int8 is within half a step of its row's own scale") {
    const KvLayout layout = ops::MakeKvLayout({KvType::kInt8, 2, 33, 17, 64, false});
    Rows rows = RandomRows(layout, 4);
    for (uint32_t d = 0; d < 33; ++d) rows.k[d] = 0.0f;  // a row of zeros has scale 0
    for (uint32_t d = 0; d < 17; ++d) rows.v[d] *= 1e-3f;
    ForEachTarget([&] {
      Cache cache(layout);
      ops::StoreKv(Args(cache, rows, 0, 4));
      for (uint32_t t = 0; t < 4; ++t) {
        for (uint32_t h = 0; h < 2; ++h) {
          const float k_scale = cache.At<float>(layout.key_scales_offset, h * 64 + t);
          const float v_scale = cache.At<float>(layout.value_scales_offset, h * 64 + t);
          CHECK((t != 0 || h != 0 || k_scale == 0.0f));
          for (uint32_t d = 0; d < 33; ++d) {
            const float k = k_scale * cache.At<int8_t>(0, cache.KeyElement(h, t, d));
            CHECK(std::abs(k - rows.k[t * rows.k_stride + h * 33 + d]) <= 0.5001f * k_scale);
          }
          for (uint32_t d = 0; d < 17; ++d) {
            const float v = v_scale * cache.At<int8_t>(layout.values_offset, cache.ValueElement(h, t, d));
            CHECK(std::abs(v - rows.v[t * rows.v_stride + h * 17 + d]) <= 0.5001f * v_scale);
          }
        }
      }
    });
  }

  TEST_CASE("KvRotationBlock: int8 rows with an outlier keep more of themselves when rotated") {
    CHECK(ops::KvRotationBlock(KvType::kF32, 64) == 1);
    CHECK(ops::KvRotationBlock(KvType::kF16, 64) == 1);
    CHECK(ops::KvRotationBlock(KvType::kInt8, 96) == 32);
    const KvLayout layout = ops::MakeKvLayout({KvType::kInt8, 1, 64, 64, 64, false});
    Rows rows = RandomRows(layout, 1);
    rows.k[7] = 40.0f;  // the others are within 1
    rows.v.assign(rows.k.begin(), rows.k.begin() + 64);
    ops::WalshHadamard({rows.v.data(), 64}, 1, 64, 64, {rows.v.data(), 64});
    Cache cache(layout);
    ops::StoreKv(Args(cache, rows, 0, 1));
    double plain = 0.0, rotated = 0.0;
    for (uint32_t d = 0; d < 64; ++d) {
      const float k = cache.At<float>(layout.key_scales_offset, 0) * cache.At<int8_t>(0, cache.KeyElement(0, 0, d));
      const float v = cache.At<float>(layout.value_scales_offset, 0) *
                      cache.At<int8_t>(layout.values_offset, cache.ValueElement(0, 0, d));
      plain += (k - rows.k[d]) * (k - rows.k[d]);
      rotated += (v - rows.v[d]) * (v - rows.v[d]);
    }
    // The outlier is spread over 64 values, each an eighth of it: the largest value, hence the step, is a fifth or
    // less.
    CHECK(rotated < plain / 10);
  }
}

}  // namespace
}  // namespace linnet::testing
