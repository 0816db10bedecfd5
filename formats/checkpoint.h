// A source to convert from: what safetensors folders and GGUF files have in common.
#ifndef LINNET_FORMATS_CHECKPOINT_H_
#define LINNET_FORMATS_CHECKPOINT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/file_mapping.h"
#include "core/base/model_config.h"
#include "core/base/model_view.h"
#include "core/base/tokenizer_spec.h"

namespace linnet::formats {

/// A file that the conversion read, for the model's provenance.
struct SourceFile {
  std::string name;                      // without folders
  std::span<const std::byte> bytes;      // the whole mapped file
  const FileMapping* mapping = nullptr;  // whose pages are dropped after hashing; null: not a mapped file
};

/// Everything but weights that the model file takes from its source.
struct CheckpointInfo {
  ModelConfig config;         // validated
  TokenizerSpec tokenizer;    // kind kNone where the source has none
  std::string chat_template;  // Jinja text; empty: none
  GenerationDefaults generation;
  std::string license;  // the licence's text or name as the source gives it; may be empty
  std::string name;     // the model's name as the source gives it; may be empty
};

/// How a tensor is stored in the source, for reports and for the choice of automatic types.
struct SourceType {
  const char* name = "F32";  // "F32", "BF16", "Q4_K", ...
  double bits_per_weight = 32.0;
};

/// Rows of a tensor that its source stores as integers of 4 bits, symmetric, with one scale a block.
struct Q4GridRows {
  std::span<uint8_t> levels;  // [rows, K / 2]: q + 8 with q from -8 to 7, two a byte, even k in the low nibble
  std::span<float> scales;    // [rows, K / block]: the source's own; of any sign, 0 and not finite ones included
};

/// An opened, checked checkpoint. Bytes of weights are read on demand, so that conversion streams.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  virtual const CheckpointInfo& info() const = 0;
  virtual std::span<const SourceFile> files() const = 0;

  /// The source's storage type of the tensor that the description asks for (of its first part where several
  /// source tensors are stacked).
  virtual SourceType TypeOf(const TensorRequirement& tensor) const = 0;

  /// Reads rows [row_begin, row_begin + row_count) of one group as f32 into out [row_count, K], in Linnet's own
  /// layout: stacked (q over k over v, gate over up), [out, in], permutations of the source undone.
  /// Rank 1 tensors have one row of K = dims[0]. Errors: kInvalidModel, kUnsupported, kIoError.
  virtual Status ReadRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                          std::span<float> out, Diagnostic* diagnostic) const = 0;

  /// Where the source stores `tensor` as such integers: how many neighbours share a scale (32, 64 or 128; a wider block
  /// counts as several with one scale), so that q4 can hold the integers as they are. 0: stored otherwise.
  virtual uint32_t Q4GridBlock(const TensorRequirement& /*tensor*/) const { return 0; }

  /// As ReadRows, the integers themselves, in blocks of Q4GridBlock(tensor), which is not 0.
  virtual Status ReadQ4Grid(const TensorRequirement& /*tensor*/, uint64_t /*group*/, uint64_t /*row_begin*/,
                            uint64_t /*row_count*/, const Q4GridRows& /*out*/, Diagnostic* diagnostic) const {
    return Fail(diagnostic, StatusCode::kInternal, "the source has no grid", "the source has no grid of 4 bits");
  }

  /// Says that the bytes behind `tensor` are not needed again, so that mapped pages can be dropped. May do nothing.
  virtual void Release(const TensorRequirement& tensor) const = 0;
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CHECKPOINT_H_
