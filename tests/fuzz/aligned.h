// Bytes at an aligned address with nothing readable behind them, so that AddressSanitizer sees every overrun.
#ifndef LINNET_TESTS_FUZZ_ALIGNED_H_
#define LINNET_TESTS_FUZZ_ALIGNED_H_

#include <cstddef>
#include <cstring>
#include <new>
#include <span>

namespace linnet::fuzz {

/// Zeros at a multiple of 64.
class Aligned {
 public:
  explicit Aligned(size_t size)
      : base_(static_cast<std::byte*>(::operator new(size, std::align_val_t{kAlignment}))), size_(size) {
    std::memset(base_, 0, size);
  }
  explicit Aligned(std::span<const std::byte> bytes) : Aligned(bytes.size()) { Place(0, bytes); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  ~Aligned() { ::operator delete(base_, std::align_val_t{kAlignment}); }

  void Place(size_t offset, std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(base_ + offset, bytes.data(), bytes.size());
  }
  std::span<const std::byte> bytes() const { return {base_, size_}; }

 private:
  static constexpr size_t kAlignment = 64;

  std::byte* base_;
  size_t size_;
};

}  // namespace linnet::fuzz

#endif  // LINNET_TESTS_FUZZ_ALIGNED_H_
