// Public header. A checked model in memory: the description and views of its tensors.
#ifndef LINNET_CORE_BASE_MODEL_VIEW_H_
#define LINNET_CORE_BASE_MODEL_VIEW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/model_config.h"

namespace linnet {

/// What a tensor is for. The values are part of the file format and never change; new ones go last.
/// Shapes are [N, K] row-major: output features, input features. H = n_heads, G = n_kv_heads, D = head_dim,
/// V = value_dim, d = model_dim, F = ffn_dim, E = n_experts, S = shared_ffn_dim, R = kv_lora_rank, Q = q_lora_rank,
/// P = rope_dim, C = qk_nope_dim.
enum class TensorRole : uint8_t {
  // Global, layer = -1.
  kTokenEmbedding = 0,     // [vocab_size, d]
  kPositionEmbedding = 1,  // [position_rows, d]
  kEmbeddingNormGain = 2,  // [d]
  kEmbeddingNormBias = 3,  // [d]
  kFinalNormGain = 4,      // [d]
  kFinalNormBias = 5,      // [d]
  kHead = 6,               // [vocab_size, d]; absent where tied
  kHeadBias = 7,           // [vocab_size]
  // Norms of a block. kAttentionNorm and kFfnNorm are the norm of the placement, the kPost ones exist with kBothSides.
  kAttentionNormGain = 16,      // [d]
  kAttentionNormBias = 17,      // [d]
  kAttentionPostNormGain = 18,  // [d]
  kAttentionPostNormBias = 19,  // [d]
  kFfnNormGain = 20,            // [d]; absent where parallel_shared_norm
  kFfnNormBias = 21,            // [d]
  kFfnPostNormGain = 22,        // [d]
  kFfnPostNormBias = 23,        // [d]
  // Attention.
  kQkv = 32,               // [H*D + G*D + G*V, d]: all q rows, all k rows, all v rows
  kQkvBias = 33,           // [H*D + G*D + G*V]
  kQNormGain = 34,         // [D], [H, D] or [H*D], as QkNorm says
  kKNormGain = 35,         // [D], [G, D] or [G*D]
  kAttentionOut = 36,      // [d, H*V]
  kAttentionOutBias = 37,  // [d]
  kSinks = 38,             // [H]
  kQNormBias = 39,         // as kQNormGain, where qk_norm_spec.has_bias
  kKNormBias = 40,
  // Multi-head latent attention.
  kLatentIn = 48,          // [Q + R + P, d], or [H*D + R + P, d] where Q = 0: q_a (or q), kv_a, the rotated key
  kLatentInBias = 49,      // [the same rows]
  kLatentQNormGain = 50,   // [Q]
  kLatentKvNormGain = 51,  // [R]
  kLatentQ = 52,           // [H*D, Q]: q_b
  kLatentKeyUp =
      53,  // [H, R, C]: per head, maps the query's C values onto the latent (the key half of kv_b, transposed)
  kLatentValueUp = 54,  // [H, V, R]: per head, the value half of kv_b
  // Dense FFN, or one stack of experts.
  kFfnUp = 64,                // [2F, d] gated: all gate rows, all up rows; else [F, d]
  kFfnUpBias = 65,            // [2F] or [F]
  kFfnDown = 66,              // [d, F]
  kFfnDownBias = 67,          // [d]
  kRouter = 68,               // [E, d], f32
  kRouterBias = 69,           // [E]
  kRouterSelectionBias = 70,  // [E]
  kExpertUp = 71,             // [E, 2F, d] or [E, F, d]
  kExpertUpBias = 72,         // [E, 2F] or [E, F]
  kExpertDown = 73,           // [E, d, F]
  kExpertDownBias = 74,       // [E, d]
  kSharedUp = 75,             // [2S, d] or [S, d]
  kSharedDown = 76,           // [d, S]
  kSharedGate = 77,           // [1, d], f32
};

/// The role's name in reports: "attention.qkv", "ffn.down", ...; "?" for no role.
const char* TensorRoleName(TensorRole role);
bool IsKnownTensorRole(uint8_t value);
bool IsLayerRole(TensorRole role);
/// True for matrices that go through a matrix product (and may be quantized), false for gains, biases, sinks,
/// routers and gates (always f32) and for the embedding tables.
bool IsLinearRole(TensorRole role);

/// A tensor in mapped or caller-given bytes. Rank 1: [N]; rank 2: [N, K]; rank 3: [groups, N, K], each group quantized
/// and laid out on its own, one after another.
struct TensorView {
  TensorRole role = TensorRole::kTokenEmbedding;
  int32_t layer = -1;
  DType dtype = DType::kF32;
  uint32_t rank = 1;
  std::array<uint64_t, 3> dims = {};
  uint32_t block_size = 0;      // kQ4: weights along K that share one scale: 32, 64 or 128
  uint32_t rotation_block = 0;  // the stored matrix is W * R, R a block Hadamard rotation of this width (a power of two
                                // that divides K); the input is rotated before the product. 0: none
  std::span<const std::byte> data;    // rows packed without gaps; kQ4: two weights a byte, even k in the low nibble
  std::span<const std::byte> scales;  // kQ8: f32 [groups, N]; kQ4: bf16 [groups, N, K / block_size]; else empty

  uint64_t groups() const { return rank == 3 ? dims[0] : 1; }
  uint64_t rows() const { return rank == 1 ? 1 : dims[rank - 2]; }  // N
  uint64_t columns() const { return dims[rank - 1]; }               // K
  uint64_t elements() const { return groups() * rows() * columns(); }
  const float* f32() const { return reinterpret_cast<const float*>(data.data()); }
};

/// Bytes of a tensor's data and scales for checked dims. Errors: kInvalidModel on overflow or a block that does not
/// divide.
struct TensorBytes {
  uint64_t data = 0;
  uint64_t scales = 0;
};
Result<TensorBytes> ComputeTensorBytes(DType dtype, std::span<const uint64_t> dims, uint32_t block_size);

/// What the description requires of a tensor: whether it must exist, and its shape.
struct TensorRequirement {
  TensorRole role;
  int32_t layer;
  uint32_t rank;
  std::array<uint64_t, 3> dims;
  bool must_be_f32;
};
/// Every tensor that the (validated) description asks for, in file order: layer after layer, then the globals' head.
std::vector<TensorRequirement> RequiredTensors(const ModelConfig& config);

/// Defaults for generation that came with the model; absent values keep Linnet's own.
struct GenerationDefaults {
  int32_t bos_id = -1;           // -1: none
  bool add_bos = false;          // text is encoded with bos first
  std::vector<int32_t> end_ids;  // every token that ends an answer
  float temperature = -1.0f;     // < 0: not given
  int32_t top_k = -1;            // < 0: not given
  float top_p = -1.0f;
  float repetition_penalty = -1.0f;
  bool operator==(const GenerationDefaults&) const = default;
};

/// A model whose every size, shape and offset has been checked. Does not own the bytes; the owner (formats'
/// ModelFile, or a test's memory) outlives it.
class ModelView {
 public:
  ModelView() = default;
  /// `tensors` hold exactly what RequiredTensors(config) asks for; the maker has checked that.
  ModelView(const ModelConfig* config, std::span<const TensorView> tensors) : config_(config), tensors_(tensors) {}

  const ModelConfig& config() const { return *config_; }
  std::span<const TensorView> tensors() const { return tensors_; }
  /// The tensor, or null where the description does not ask for it. Linear in the number of tensors: load time only.
  const TensorView* Find(TensorRole role, int32_t layer = -1) const;
  /// Identifies the content for packed weights: a hash that the converter computed over all tensor bytes.
  std::array<uint8_t, 32> content_hash = {};

 private:
  const ModelConfig* config_ = nullptr;
  std::span<const TensorView> tensors_;
};

/// Checks that `tensors` match RequiredTensors(config): presence, rank, shape, dtype, alignment of data, block sizes,
/// rotation, and byte counts. Errors: kInvalidModel or kUnsupported, with the tensor's name in the diagnostic.
Status ValidateTensors(const ModelConfig& config, std::span<const TensorView> tensors, class Diagnostic* diagnostic);

}  // namespace linnet

#endif  // LINNET_CORE_BASE_MODEL_VIEW_H_
