// A tokenizer as bytes of the model file, and back.
#ifndef LINNET_FORMATS_LINNET_TOKENIZER_SECTION_H_
#define LINNET_FORMATS_LINNET_TOKENIZER_SECTION_H_

#include <cstddef>
#include <span>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "core/base/tokenizer_spec.h"
#include "core/base/tokenizer_view.h"

namespace linnet::formats {

/// Checks `spec` and writes it with its hash tables; the bytes may be placed at any address that is a multiple of 16.
/// Of tokens with the same text, and of merges of the same pair, the last one is found, as in the libraries that made
/// them. Kind kNone gives no bytes. Errors: kInvalidModel (an id, a length or a count out of range).
Result<std::vector<std::byte>> WriteTokenizerSection(const TokenizerSpec& spec, Diagnostic* diagnostic);

/// Checks a section and gives a view into it; `bytes` outlive the view and start at a multiple of 16. Runs the
/// FlatBuffers verifier, then its own checks of every id, offset, slot, enumerator and limit: afterwards no lookup
/// reads outside `bytes` or runs longer than kMaxHashProbes. One pass over the arrays, no allocation that grows with
/// the vocabulary. Empty bytes give kind kNone. Errors: kInvalidModel, kUnsupported (a newer layout).
Result<TokenizerView> ReadTokenizerSection(std::span<const std::byte> bytes, Diagnostic* diagnostic);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_LINNET_TOKENIZER_SECTION_H_
