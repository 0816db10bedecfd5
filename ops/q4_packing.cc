// The layout that ops/q4_product.cc reads. One strip of 32 outputs after another, each:
//   f32 [32]           minus the sum of the row's weights, scales applied: what an activation's offset of 1 adds
//   per block          block_size / 8 groups of [2 halves of 16 outputs][16 outputs][4 bytes]: the low nibbles hold
//                      weights 0..3 of the group's eight along k, the high ones 4..7, as two's complement; then
//                      bf16 [32], a sixteenth of the scales (the kernel multiplies by 16 q)
//   f32 [32]           bias
// so that a strip is read from its first byte to its last, a vector of 64 bytes at a time.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "core/base/checked.h"
#include "core/base/float16.h"
#include "ops/q4_product.h"

namespace linnet::ops {
namespace {

constexpr size_t kWeightsPerGroup = 8;  // along k, of one output: one 32-bit lane
constexpr size_t kRowOfFloats = kQ4StripOutputs * sizeof(float);
constexpr int kKernelShift = 4;  // the kernel sees weights in the high nibble

// Four nibbles to the low halves of four bytes.
uint32_t Spread(uint32_t nibbles) {
  const uint32_t pairs = (nibbles | nibbles << 8) & 0x00ff00ffu;
  return (pairs | pairs << 4) & 0x0f0f0f0fu;
}

// Eight weights q + 8 of one output, in the order of k, to the lane that the kernel reads.
uint32_t PackGroup(uint32_t weights) {
  constexpr uint32_t kOffsetToTwosComplement = 0x88888888u;
  return (Spread(weights & 0xffffu) | Spread(weights >> 16) << 4) ^ kOffsetToTwosComplement;
}

int64_t SumOfBlock(const uint8_t* data, size_t bytes) {
  int64_t sum = 0;
  for (size_t i = 0; i < bytes; ++i) sum += (data[i] & 15) + (data[i] >> 4) - 16;
  return sum;
}

// Packs one output into its strip.
Status PackOutput(const Q4Shape& shape, const uint8_t* data, const uint16_t* scales, float bias, size_t output,
                  std::byte* strip_data) {
  const size_t lane = output % kQ4StripOutputs, blocks = shape.k / shape.block_size;
  data += output * shape.k / 2;
  scales += output * blocks;
  const size_t block_bytes = kQ4StripOutputs * (shape.block_size / 2 + sizeof(uint16_t));
  double sum = 0.0;
  for (size_t b = 0; b < blocks; ++b) {
    const float scale = F32FromBF16(scales[b]), sixteenth = scale / (1 << kKernelShift);
    if (!std::isnormal(sixteenth) || !std::isnormal(scale)) {
      return Status(StatusCode::kInvalidModel, "a q4 scale is not a normal number",
                    static_cast<int64_t>(output * blocks + b));
    }
    const uint8_t* block = data + b * shape.block_size / 2;
    sum += scale * static_cast<double>(SumOfBlock(block, shape.block_size / 2));
    std::byte* out = strip_data + kRowOfFloats + b * block_bytes;
    for (size_t group = 0; group < shape.block_size / kWeightsPerGroup; ++group) {
      uint32_t weights;
      std::memcpy(&weights, block + group * sizeof(weights), sizeof(weights));
      const uint32_t packed = PackGroup(weights);
      std::memcpy(out + (group * kQ4StripOutputs + lane) * sizeof(packed), &packed, sizeof(packed));
    }
    const uint16_t stored = BF16FromF32(sixteenth);
    std::memcpy(out + kQ4StripOutputs * shape.block_size / 2 + lane * sizeof(stored), &stored, sizeof(stored));
  }
  const float minus_sum = static_cast<float>(-sum);
  std::memcpy(strip_data + lane * sizeof(float), &minus_sum, sizeof(float));
  std::memcpy(strip_data + Q4StripBytes(shape) - kRowOfFloats + lane * sizeof(float), &bias, sizeof(float));
  return Status::Ok();
}

}  // namespace

Result<uint64_t> Q4PackedBytes(const Q4Shape& shape) { return CheckedMul(Q4StripCount(shape), Q4StripBytes(shape)); }

Status PackQ4(const Q4Shape& shape, const uint8_t* data, const uint16_t* scales, const float* bias,
              std::span<std::byte> packed) {
  const size_t strip_bytes = Q4StripBytes(shape);
  LINNET_CHECK(packed.size() == Q4StripCount(shape) * strip_bytes);
  for (size_t s = 0; s < Q4StripCount(shape); ++s) {
    std::byte* strip_data = packed.data() + s * strip_bytes;
    // Outputs beyond the last have no weights: zeros, and the file's bytes are the same each time.
    if ((s + 1) * kQ4StripOutputs > shape.n) std::memset(strip_data, 0, strip_bytes);
    const size_t end = std::min(shape.n, (s + 1) * kQ4StripOutputs);
    for (size_t output = s * kQ4StripOutputs; output < end; ++output) {
      const float output_bias = bias == nullptr ? 0.0f : bias[output];
      LINNET_RETURN_IF_ERROR(PackOutput(shape, data, scales, output_bias, output, strip_data));
    }
  }
  return Status::Ok();
}

}  // namespace linnet::ops
