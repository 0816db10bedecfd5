// The pre-tokenizer steps of a tokenizer: a text is cut into the pieces that the model sees. Internal to core.
#ifndef LINNET_CORE_TOKENIZER_PIECES_H_
#define LINNET_CORE_TOKENIZER_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "core/base/tokenizer_spec.h"
#include "core/tokenizer_regex.h"

namespace linnet {

/// A text and its pieces, in order, not overlapping, none empty.
struct TokenizerPieces {
  struct Piece {
    uint32_t begin, end;
  };
  std::string text;
  std::vector<Piece> pieces;
  // Buffers that the steps write to before they change places with the above.
  std::string next_text;
  std::vector<Piece> next_pieces;

  std::string_view TextOf(const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

class TokenizerPreTokenizer {
 public:
  static Result<TokenizerPreTokenizer> Create(std::vector<PreTokenizerStep> steps, Diagnostic* diagnostic);

  /// Cuts pieces->text (valid UTF-8) into pieces->pieces. `at_start`: the text is the start of what was to be encoded.
  /// Errors: those of TokenizerRegex::Find; kInvalidModel where the steps insert more than kMaxTextBytes.
  Status Run(bool at_start, TokenizerPieces* pieces, TokenizerRegex::Scratch* scratch, Diagnostic* diagnostic) const;

  size_t memory_bytes() const;

 private:
  struct Step {
    PreTokenizerStep spec;
    std::vector<TokenizerRegex> pattern;  // one for kSplit and a splitting kMetaspace, else none
  };
  static Status Split(const Step& step, TokenizerPieces* pieces, TokenizerRegex::Scratch* scratch,
                      Diagnostic* diagnostic);
  static Status Metaspace(const Step& step, bool at_start, TokenizerPieces* pieces, TokenizerRegex::Scratch* scratch,
                          Diagnostic* diagnostic);

  std::vector<Step> steps_;
  bool maps_bytes_ = false;  // some step runs behind kByteLevel and sees the alphabet
};

}  // namespace linnet

#endif  // LINNET_CORE_TOKENIZER_PIECES_H_
