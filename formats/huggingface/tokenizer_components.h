// The components of a tokenizer.json (normalizer, pre-tokenizer, decoder, post-processor) as steps. Internal to
// formats.
#ifndef LINNET_FORMATS_HUGGINGFACE_TOKENIZER_COMPONENTS_H_
#define LINNET_FORMATS_HUGGINGFACE_TOKENIZER_COMPONENTS_H_

#include "core/base/tokenizer_spec.h"
#include "formats/huggingface/json_access.h"

namespace linnet::formats {

/// Reads the four components of `root` into the step lists, byte_level, prefix_ids and suffix_ids of `spec`. Ids are
/// not compared with the vocabulary here. Errors: kUnsupported with the component's name, kInvalidModel.
Status ReadTokenizerComponents(const nlohmann::json& root, const JsonAccess& access, TokenizerSpec* spec);

/// The pattern that ByteLevel splits at (GPT-2's).
extern const char kByteLevelPattern[];

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_TOKENIZER_COMPONENTS_H_
