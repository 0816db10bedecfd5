// GGUF files as a source to convert from.
#ifndef LINNET_FORMATS_GGUF_CHECKPOINT_H_
#define LINNET_FORMATS_GGUF_CHECKPOINT_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "formats/checkpoint.h"
#include "formats/gguf/gguf_set.h"

namespace linnet::formats {

/// Opens a GGUF model: one file, or the first of a split model's. Everything is checked here (container, description,
/// tokenizer, that every tensor is present, of the expected shape, of a type that can be read, and that none is left
/// over); ReadRows then fails only for ranges outside the tensor.
/// Errors: kIoError, kInvalidModel, kUnsupported, each with one line naming the file and the key or tensor.
Result<std::unique_ptr<Checkpoint>> OpenGgufCheckpoint(const std::string& path, Diagnostic* diagnostic);

/// The same for a file in memory; `bytes` outlive the checkpoint.
Result<std::unique_ptr<Checkpoint>> OpenGgufCheckpointFromBytes(std::span<const std::byte> bytes, std::string_view name,
                                                                Diagnostic* diagnostic);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_GGUF_CHECKPOINT_H_
