// The FlatBuffer of a model file: built from, and parsed into, plain structs. Generated types stay in the .cc files.
#ifndef LINNET_FORMATS_LINNET_METADATA_H_
#define LINNET_FORMATS_LINNET_METADATA_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/model_config.h"
#include "core/base/model_view.h"
#include "core/base/status.h"
#include "formats/linnet/file_layout.h"
#include "formats/linnet/model_content.h"

namespace linnet::formats {

struct TensorRecord {
  TensorSpec spec;
  TensorPlace place;
  Sha256Digest sha256 = {};
};

/// Limits of the parts that the description does not bound; far above any use.
constexpr uint32_t kMaxSegments = 64;
constexpr uint32_t kMaxSourceFiles = 4096;
constexpr uint32_t kMaxSourceTypes = 256;
constexpr uint32_t kMaxGoldens = 64;
constexpr uint32_t kMaxGoldenTokens = 1u << 20;
constexpr uint32_t kMaxGoldenTop = 1024;

/// What a parsed FlatBuffer says. Texts and the tokenizer point into it.
struct Metadata {
  ModelConfig config;
  std::vector<TensorRecord> tensors;
  std::vector<WeightSegment> segments;
  Sha256Digest content_hash = {};
  std::span<const std::byte> tokenizer;
  std::string_view chat_template, license, name;
  GenerationDefaults generation;
  Provenance provenance;
  std::vector<Golden> goldens;
};

/// The FlatBuffer's bytes; the same input gives the same bytes.
/// Errors: kInvalidArgument where the content is beyond a limit above or 2 GiB.
Result<std::vector<std::byte>> BuildMetadata(const ModelContent& content, std::span<const TensorRecord> tensors,
                                             std::span<const WeightSegment> segments, const Sha256Digest& content_hash,
                                             Diagnostic* diagnostic);

/// Verifies and parses `bytes`, at an address that is a multiple of 16. The description comes back validated, and the
/// tensors as many as it requires; their offsets are the caller's to check against the file.
/// Copies at most as many bytes as `bytes` holds. Errors: kInvalidModel, kUnsupported (an enumerator of a newer
/// version).
Result<Metadata> ParseMetadata(std::span<const std::byte> bytes, Diagnostic* diagnostic);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_LINNET_METADATA_H_
