// Test data: reproducible random values, and buffers that notice writes beyond their ends.
#ifndef LINNET_TESTS_SUPPORT_GUARDED_H_
#define LINNET_TESTS_SUPPORT_GUARDED_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace linnet::testing {

/// Uniform values from a linear congruential generator, the same on every platform.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  uint32_t Bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 32);
  }
  float Uniform(float low, float high) { return low + (high - low) * (static_cast<float>(Bits() >> 8) * 0x1.0p-24f); }
  /// About normal with deviation 1: the sum of four uniform values.
  float Normal() { return (Uniform(-1, 1) + Uniform(-1, 1) + Uniform(-1, 1) + Uniform(-1, 1)) * 0.8660254f; }

 private:
  uint64_t state_;
};

inline std::vector<float> RandomVector(size_t n, uint64_t seed, float scale = 1.0f) {
  Random random(seed);
  std::vector<float> values(n);
  for (float& value : values) value = scale * random.Normal();
  return values;
}

/// `n` values that start one element after an aligned address, between guard bytes.
template <typename T>
class Guarded {
 public:
  explicit Guarded(size_t n) : n_(n), bytes_(kBefore + n * sizeof(T) + kAfter, kGuard) {
    const size_t misaligned = reinterpret_cast<uintptr_t>(bytes_.data() + 64) % 64;
    offset_ = 64 + (64 - misaligned) + sizeof(T);
    std::fill_n(data(), n, T{});
  }
  explicit Guarded(const std::vector<T>& values) : Guarded(values.size()) {
    std::memcpy(data(), values.data(), values.size() * sizeof(T));
  }

  T* data() { return reinterpret_cast<T*>(bytes_.data() + offset_); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + offset_); }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  size_t size() const { return n_; }

  bool GuardsIntact() const {
    for (size_t i = 0; i < offset_; ++i) {
      if (bytes_[i] != kGuard) return false;
    }
    for (size_t i = offset_ + n_ * sizeof(T); i < bytes_.size(); ++i) {
      if (bytes_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kBefore = 192, kAfter = 128;
  static constexpr unsigned char kGuard = 0xA5;

  size_t n_;
  size_t offset_;
  std::vector<unsigned char> bytes_;
};

}  // namespace linnet::testing

#endif  // LINNET_TESTS_SUPPORT_GUARDED_H_
