// The normalizer steps of a tokenizer. Internal to core.
#ifndef LINNET_CORE_TOKENIZER_NORMALIZER_H_
#define LINNET_CORE_TOKENIZER_NORMALIZER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "core/base/tokenizer_spec.h"
#include "core/tokenizer_regex.h"

namespace linnet {

class TokenizerNormalizer {
 public:
  static Result<TokenizerNormalizer> Create(std::vector<NormalizerStep> steps, Diagnostic* diagnostic);

  bool empty() const { return steps_.empty(); }
  /// Applies every step to `text`, valid UTF-8, in place. Errors: those of TokenizerRegex::Find; kInvalidModel where
  /// the steps blow the text up beyond kMaxGrowth times its size; kOutOfMemory.
  Status Apply(std::string* text, TokenizerRegex::Scratch* scratch, Diagnostic* diagnostic) const;

  size_t memory_bytes() const;

 private:
  struct Step {
    NormalizerStep spec;
    std::vector<TokenizerRegex> pattern;  // one for kReplace, else none
  };
  std::vector<Step> steps_;
};

}  // namespace linnet

#endif  // LINNET_CORE_TOKENIZER_NORMALIZER_H_
