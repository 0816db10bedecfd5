// tokenizer.json -> TokenizerSpec. Internal to formats.
#ifndef LINNET_FORMATS_HUGGINGFACE_TOKENIZER_MODEL_H_
#define LINNET_FORMATS_HUGGINGFACE_TOKENIZER_MODEL_H_

#include <string_view>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "core/base/tokenizer_spec.h"

namespace linnet::formats {

/// Reads a whole tokenizer.json: model, components, added tokens. Special ids (bos, eos, pad) are not in that file.
/// The vocabulary and the merges are taken out while the text is parsed, so that no tree of them is ever in memory.
Status ReadTokenizerJson(std::string_view text, TokenizerSpec* spec, Diagnostic* diagnostic);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_TOKENIZER_MODEL_H_
