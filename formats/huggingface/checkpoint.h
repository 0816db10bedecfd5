// A Hugging Face directory as a source to convert from.
#ifndef LINNET_FORMATS_HUGGINGFACE_CHECKPOINT_H_
#define LINNET_FORMATS_HUGGINGFACE_CHECKPOINT_H_

#include <memory>
#include <string>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "formats/checkpoint.h"

namespace linnet::formats {

/// Opens `directory`: config.json, safetensors weights (one file or shards), and, where they exist, the tokenizer's
/// files, generation_config.json and the licence's text. Everything but the weights' bytes is read and checked here:
/// every tensor that the description asks for exists with its shape, and none is left over. Errors: kIoError (a file
/// that must exist cannot be opened), kInvalidModel, kUnsupported; one line each.
Result<std::unique_ptr<Checkpoint>> OpenHuggingFaceCheckpoint(const std::string& directory, Diagnostic* diagnostic);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_CHECKPOINT_H_
