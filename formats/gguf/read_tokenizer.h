// From a file's metadata to the tables that tokenizer_metadata.h reads.
#ifndef LINNET_FORMATS_GGUF_READ_TOKENIZER_H_
#define LINNET_FORMATS_GGUF_READ_TOKENIZER_H_

#include "core/base/diagnostic.h"
#include "core/base/model_view.h"
#include "core/base/status.h"
#include "core/base/tokenizer_spec.h"
#include "formats/gguf/gguf_file.h"

namespace linnet::formats {

/// Reads the tokenizer.ggml.* keys of `file`, checks their types, and fills `tokenizer` and `generation`.
/// Works for vocabulary-only files too. Errors: those of TokenizerFromGgufMetadata; kInvalidModel for a key of another
/// type, naming it; kUnsupported for a switch that changes the ids and is not known.
Status ReadGgufTokenizer(const GgufFile& file, TokenizerSpec* tokenizer, GenerationDefaults* generation,
                         Diagnostic* diagnostic);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_GGUF_READ_TOKENIZER_H_
