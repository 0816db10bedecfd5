// SHA-256 for provenance and content hashes. Not for secrets.
#ifndef LINNET_FORMATS_LINNET_SHA256_H_
#define LINNET_FORMATS_LINNET_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace linnet::formats {

/// Streaming SHA-256 (FIPS 180-4). Source: https://doi.org/10.6028/NIST.FIPS.180-4.
class Sha256 {
 public:
  void Update(std::span<const std::byte> bytes);
  /// The digest of everything so far; the object is used up.
  std::array<uint8_t, 32> Finish();

 private:
  static constexpr size_t kBlockBytes = 64;

  void Compress(const std::byte* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, kBlockBytes> pending_ = {};
  size_t pending_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

/// Lower-case hexadecimal.
std::string HexText(std::span<const uint8_t> bytes);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_LINNET_SHA256_H_
