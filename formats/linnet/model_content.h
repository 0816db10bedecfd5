// Public header. What a model file holds beside its weights.
#ifndef LINNET_FORMATS_LINNET_MODEL_CONTENT_H_
#define LINNET_FORMATS_LINNET_MODEL_CONTENT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/model_config.h"
#include "core/base/model_view.h"

namespace linnet::formats {

using Sha256Digest = std::array<uint8_t, 32>;

/// A file that the conversion read.
struct SourceRecord {
  std::string name;  // without folders
  uint64_t size_bytes = 0;
  Sha256Digest sha256 = {};
  bool operator==(const SourceRecord&) const = default;
};

/// How much of the model came in which storage type ("BF16", "Q4_K").
struct SourceTypeRecord {
  std::string name;
  uint32_t tensors = 0;
  uint64_t elements = 0;
  bool operator==(const SourceTypeRecord&) const = default;
};

struct Provenance {
  std::string converter;  // "linnet 0.1.0"
  std::vector<SourceRecord> sources;
  std::vector<SourceTypeRecord> source_types;  // most elements first
  bool operator==(const Provenance&) const = default;
};

/// Recorded answers: after reading ids[0..i], the n_top largest logits and whose they are.
struct Golden {
  std::vector<int32_t> ids;  // [n_tokens]
  uint32_t n_top = 0;
  std::vector<int32_t> top_ids;   // [n_tokens, n_top]
  std::vector<float> top_logits;  // [n_tokens, n_top], descending in each row
  bool operator==(const Golden&) const = default;
};

/// Everything of a model file but its weights and tensor table.
struct ModelContent {
  ModelConfig config;
  std::vector<std::byte> tokenizer;  // formats/linnet/tokenizer_section.h; empty: none
  std::string chat_template;
  std::string license;
  std::string name;
  GenerationDefaults generation;
  Provenance provenance;
  std::vector<Golden> goldens;
};

/// Weights are grouped by how they are read, so that pages of one use do not hold another's.
enum class SegmentKind : uint8_t {
  kTables = 0,   // embedding and position tables: single rows, anywhere
  kLinear = 1,   // matrices: read from end to end, or not at all once a packed copy exists
  kVectors = 2,  // gains, biases, routers: small, f32, read in every step
};

constexpr uint64_t kSegmentAlignment = 64 * 1024;  // pages are 4, 16 or 64 KiB across devices
constexpr uint64_t kTensorAlignment = 64;          // one cache line, the widest vector register

/// A part of the file that holds weights; starts at a multiple of kSegmentAlignment.
struct WeightSegment {
  SegmentKind kind = SegmentKind::kTables;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_LINNET_MODEL_CONTENT_H_
