// Public header. Reads a .linnet model file: one mapping, everything checked before anything is used.
#ifndef LINNET_FORMATS_LINNET_MODEL_FILE_H_
#define LINNET_FORMATS_LINNET_MODEL_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/diagnostic.h"
#include "core/base/file_mapping.h"
#include "core/base/model_config.h"
#include "core/base/model_view.h"
#include "core/base/status.h"
#include "formats/linnet/model_content.h"

namespace linnet::formats {

/// An opened model file. Owns the mapping, the parsed description and the tensor table; weights, tokenizer and texts
/// stay where they are mapped. Move-only; views and spans stay valid when it moves and die with it.
class ModelFile {
 public:
  /// Checks `mapping` and takes it over: FlatBuffers' verifier first, then every size, offset, alignment, shape and
  /// enumerator against the file's length and the description (ValidateModelConfig, ValidateTensors). Reads the header
  /// and the metadata only, never the weights, and allocates no more than the metadata's own size justifies.
  /// Errors: kInvalidModel (not a model file, truncated, damaged), kUnsupported (a newer format version).
  static Result<ModelFile> Open(FileMapping mapping, Diagnostic* diagnostic);
  /// Maps `path` and opens it. Errors: those of FileMapping::Open and of the function above, with the path in front.
  static Result<ModelFile> Open(const std::string& path, Diagnostic* diagnostic);
  /// The same over bytes that the caller keeps alive, at an address that is a multiple of 64 (tests, fuzzers, models
  /// linked into a program). Errors: also kInvalidArgument for a wrong address.
  static Result<ModelFile> FromBytes(std::span<const std::byte> bytes, Diagnostic* diagnostic);

  ModelFile(ModelFile&&) noexcept;
  ModelFile& operator=(ModelFile&&) noexcept;
  ~ModelFile();

  /// Description, tensors and content hash. Valid as long as the ModelFile.
  ModelView view() const;
  const ModelConfig& config() const;

  /// The tokenizer's section as formats/linnet/tokenizer_section.h writes it, at an address that is a multiple of 16;
  /// empty where the model came without a tokenizer.
  std::span<const std::byte> tokenizer_bytes() const;
  std::string_view chat_template() const;  // Jinja text; empty: none
  std::string_view license() const;        // text or name as the source gave it; may be empty
  std::string_view name() const;           // the model's name as the source gave it; may be empty
  const GenerationDefaults& generation() const;
  const Provenance& provenance() const;
  /// Recorded answers that `verify` replays; may be empty.
  std::span<const Golden> goldens() const;

  /// The whole file.
  std::span<const std::byte> bytes() const;
  uint32_t format_version() const;
  uint64_t file_bytes() const;
  /// Bytes of the FlatBuffer with everything but the weights.
  uint64_t metadata_bytes() const;
  /// Bytes of all tensors, data and scales, padding not counted.
  uint64_t weight_bytes() const;
  std::span<const WeightSegment> segments() const;
  /// Null where the file was opened by FromBytes.
  const FileMapping* mapping() const;

  /// Reads every weight and compares the tensors' hashes and the content hash with the stored ones.
  /// Errors: kInvalidModel naming the first damaged tensor.
  Status CheckContent(Diagnostic* diagnostic) const;

  /// Writes the same model with other recorded answers to `target`, which may be the file itself: it appears whole or
  /// not at all, and this one stays as it is mapped. The content hash, so packed weights too, are unchanged.
  /// Errors: kIoError; kInvalidArgument where the goldens are malformed or beyond metadata.h's limits.
  Status WriteCopy(const std::string& target, std::span<const Golden> goldens, Diagnostic* diagnostic) const;

 private:
  struct State;
  explicit ModelFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_LINNET_MODEL_FILE_H_
