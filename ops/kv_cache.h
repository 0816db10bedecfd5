// Public header. One layer's key-value cache: its memory layout, and the operation that stores new positions.
#ifndef LINNET_OPS_KV_CACHE_H_
#define LINNET_OPS_KV_CACHE_H_

#include <cstddef>
#include <cstdint>

#include "ops/walsh_hadamard.h"

namespace linnet::ops {

/// Element types of a cache. kF16 and kInt8 are converted to f32 in registers where attention reads them.
enum class KvType : uint8_t {
  kF32 = 0,
  kF16 = 1,   // IEEE binary16, to nearest; magnitudes above 65504 are stored as 65504
  kInt8 = 2,  // symmetric, one f32 scale per position and kv head, keys and values apart
};

/// "f32", "f16", "int8".
const char* KvTypeName(KvType type);

/// The width of the block Hadamard rotation (ops/walsh_hadamard.h) that keys, values or a latent of `width` carry in a
/// cache of this type; 1: none. Whoever stores them rotates them, and rotates the queries and attention's output too,
/// which leaves the result as it was but for rounding. It spreads a head's few large dimensions over all, so that the
/// one scale of an int8 row fits them.
constexpr size_t KvRotationBlock(KvType type, size_t width) {
  return type == KvType::kInt8 ? LargestRotationBlock(width) : 1;
}

/// Positions are allocated in blocks of this many. The keys of a block lie interleaved, so that a vector of scores
/// needs no sum across lanes; a block never straddles a ring's end, and every vector width in use divides it.
constexpr uint32_t kKvBlock = 64;

/// Positions that a layer must hold: the whole context, or for a window layer the window and the other tokens of one
/// prefill chunk, whichever is less; rounded up to kKvBlock. window: 0 for none. context, chunk: >= 1.
uint32_t KvCapacity(uint32_t window, uint32_t context, uint32_t chunk);

struct KvShape {
  KvType type = KvType::kF32;
  uint32_t n_kv_heads = 0;  // 1 where latent
  uint32_t head_dim = 0;    // width of a key; where latent: kv_lora_rank + rope_dim
  uint32_t value_dim = 0;   // width of a value; where latent: kv_lora_rank
  uint32_t capacity = 0;    // positions, from KvCapacity
  bool latent = false;      // multi-head latent attention: one row per position is key and value at once
};

/// Where everything lies in a layer's cache. Position p lives in slot p % capacity.
///   keys     [n_kv_heads][capacity / 64][head_dim][64]   blocks of interleaved positions
///   values   [n_kv_heads][capacity][value_dim]
///   key_scales, value_scales   [n_kv_heads][capacity] f32, kInt8 only
/// No byte is padding: bytes = capacity * n_kv_heads * ((head_dim + value_dim) * element bytes [+ 8 where kInt8]).
/// Latent: keys are [capacity][head_dim], the values are the first value_dim elements of the same rows, and there are
/// key_scales only: bytes = capacity * (head_dim * element bytes [+ 4 where kInt8]).
struct KvLayout {
  KvShape shape;
  // Offsets in bytes from the layer's start, which is aligned to 64 bytes. Every one is a multiple of 64.
  uint64_t keys_offset = 0;
  uint64_t values_offset = 0;
  uint64_t key_scales_offset = 0;
  uint64_t value_scales_offset = 0;
  uint64_t bytes = 0;  // of the layer
};

/// The layout of a checked shape (dimensions within core/base/model_config.h's limits: nothing overflows 64 bits).
KvLayout MakeKvLayout(const KvShape& shape);

struct KvStoreArgs {
  const KvLayout* layout = nullptr;
  std::byte* cache = nullptr;  // the layer's start; may hold anything (NaN, old data) where nothing was stored
  uint32_t first_pos = 0;      // absolute position of the first row
  uint32_t n_tokens = 0;       // >= 1, <= capacity
  const float* k = nullptr;    // [n_tokens][n_kv_heads][head_dim], heads adjacent; latent: [n_tokens][head_dim]
  size_t k_token_stride = 0;   // floats from one token's row to the next
  const float* v = nullptr;    // [n_tokens][n_kv_heads][value_dim], heads adjacent; latent: not read
  size_t v_token_stride = 0;
};

/// Storing as independent tasks (kv head, block of positions), each run once on any thread.
/// All must have finished before attention reads the positions.
size_t KvStoreTaskCount(const KvStoreArgs& args);
void RunKvStoreTask(const KvStoreArgs& args, size_t task);
/// Runs all of them on this thread: for single tokens, where dispatch would cost more than the work.
void StoreKv(const KvStoreArgs& args);

}  // namespace linnet::ops

#endif  // LINNET_OPS_KV_CACHE_H_
