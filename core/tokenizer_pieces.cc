#include "core/tokenizer_pieces.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/utf8.h"

namespace linnet {
namespace {

using Piece = TokenizerPieces::Piece;

// Positions are 32 bits wide; steps that insert (a space before each of many pieces) stop here.
constexpr size_t kMaxPiecesBytes = std::numeric_limits<uint32_t>::max();

/// Collects the parts of one piece, matches and what lies between them, as a behavior says.
class PartCollector {
 public:
  PartCollector(SplitBehavior behavior, bool invert, std::vector<Piece>* out)
      : behavior_(behavior), invert_(invert), first_(out->size()), out_(out) {}

  void Add(size_t begin, size_t end, bool is_match) {
    if (begin == end) return;
    if (is_match != invert_) {
      AddDelimiter({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    } else {
      AddText({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    }
  }

 private:
  void AddText(Piece part) {
    // Neighbouring texts exist where invert makes texts of the matches; kContiguous joins those as well.
    const bool joins_text = behavior_ == SplitBehavior::kContiguous && !after_delimiter_ && out_->size() > first_;
    if (joins_text || (behavior_ == SplitBehavior::kMergedWithNext && after_delimiter_)) {
      out_->back().end = part.end;
    } else {
      out_->push_back(part);
    }
    after_delimiter_ = false;
  }

  void AddDelimiter(Piece part) {
    const bool has_previous = out_->size() > first_;
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        break;
      case SplitBehavior::kMergedWithPrevious:
        if (has_previous && !after_delimiter_) {
          out_->back().end = part.end;
        } else {
          out_->push_back(part);
        }
        break;
      case SplitBehavior::kContiguous:
        if (has_previous && after_delimiter_) {
          out_->back().end = part.end;
        } else {
          out_->push_back(part);
        }
        break;
      case SplitBehavior::kIsolated:
      case SplitBehavior::kMergedWithNext:
        out_->push_back(part);
        break;
    }
    after_delimiter_ = true;
  }

  SplitBehavior behavior_;
  bool invert_;
  bool after_delimiter_ = false;
  size_t first_;
  std::vector<Piece>* out_;
};

Status SplitPiece(const TokenizerRegex& pattern, const PreTokenizerStep& spec, const Piece& piece,
                  TokenizerPieces* pieces, TokenizerRegex::Scratch* scratch, Diagnostic* diagnostic) {
  const std::string_view text = pieces->TextOf(piece);
  PartCollector parts(spec.behavior, spec.invert, &pieces->next_pieces);
  size_t previous = 0, start = 0;
  while (start < text.size()) {
    LINNET_ASSIGN_OR_RETURN(const TokenizerRegex::Match match, pattern.Find(text, start, scratch, diagnostic));
    if (!match.found) break;
    parts.Add(piece.begin + previous, piece.begin + match.begin, false);
    parts.Add(piece.begin + match.begin, piece.begin + match.end, true);
    previous = match.end;
    start = match.end;
    if (match.begin == match.end && start < text.size()) {  // an empty match cuts, and the search goes on behind
      start += std::max(1u, DecodeUtf8(text.substr(start, 4)).length);
    }
  }
  parts.Add(piece.begin + previous, piece.end, false);
  return Status::Ok();
}

/// Rebuilds the text piece by piece: `append(piece_text, index, &text)` appends a piece's new text.
template <typename Append>
Status RewritePieces(TokenizerPieces* pieces, Diagnostic* diagnostic, const Append& append) {
  pieces->next_text.clear();
  pieces->next_pieces.clear();
  for (size_t i = 0; i < pieces->pieces.size(); ++i) {
    const size_t begin = pieces->next_text.size();
    append(pieces->TextOf(pieces->pieces[i]), i, &pieces->next_text);
    const size_t end = pieces->next_text.size();
    if (end > kMaxPiecesBytes) {
      return Fail(diagnostic, StatusCode::kInvalidArgument, "the text is too long for the tokenizer",
                  "tokenizer: more than %zu bytes after the pre-tokenizer", kMaxPiecesBytes);
    }
    pieces->next_pieces.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  }
  std::swap(pieces->text, pieces->next_text);
  std::swap(pieces->pieces, pieces->next_pieces);
  return Status::Ok();
}

void AppendAlphabet(std::string_view bytes, std::string* out) {
  for (char byte : bytes) AppendUtf8(kByteAlphabet[static_cast<uint8_t>(byte)], out);
}

void AppendReplaced(std::string_view text, char from, std::string_view to, std::string* out) {
  for (char c : text) {
    if (c == from) {
      out->append(to);
    } else {
      out->push_back(c);
    }
  }
}

}  // namespace

Result<TokenizerPreTokenizer> TokenizerPreTokenizer::Create(std::vector<PreTokenizerStep> steps,
                                                            Diagnostic* diagnostic) {
  TokenizerPreTokenizer result;
  bool byte_level_seen = false;
  for (PreTokenizerStep& spec : steps) {
    result.maps_bytes_ |= byte_level_seen;
    if (spec.kind == PreTokenizerKind::kByteLevel) {
      if (byte_level_seen) {
        return Fail(diagnostic, StatusCode::kUnsupported, "a tokenizer with two byte-level steps",
                    "tokenizer: two byte-level pre-tokenizers in a row, expected one");
      }
      byte_level_seen = true;
    }
    Step step{std::move(spec), {}};
    const bool metaspace = step.spec.kind == PreTokenizerKind::kMetaspace;
    if (step.spec.kind == PreTokenizerKind::kSplit || (metaspace && step.spec.split)) {
      LINNET_ASSIGN_OR_RETURN(TokenizerRegex pattern,
                              TokenizerRegex::Compile(step.spec.pattern, step.spec.regex && !metaspace, diagnostic));
      step.pattern.push_back(std::move(pattern));
    }
    if (metaspace) {
      step.spec.behavior = SplitBehavior::kMergedWithNext;
      step.spec.invert = false;
    }
    result.steps_.push_back(std::move(step));
  }
  return result;
}

Status TokenizerPreTokenizer::Split(const Step& step, TokenizerPieces* pieces, TokenizerRegex::Scratch* scratch,
                                    Diagnostic* diagnostic) {
  pieces->next_pieces.clear();
  for (const Piece& piece : pieces->pieces) {
    LINNET_RETURN_IF_ERROR(SplitPiece(step.pattern.front(), step.spec, piece, pieces, scratch, diagnostic));
  }
  std::swap(pieces->pieces, pieces->next_pieces);
  return Status::Ok();
}

Status TokenizerPreTokenizer::Metaspace(const Step& step, bool at_start, TokenizerPieces* pieces,
                                        TokenizerRegex::Scratch* scratch, Diagnostic* diagnostic) {
  const std::string& mark = step.spec.pattern;
  LINNET_RETURN_IF_ERROR(RewritePieces(pieces, diagnostic, [&](std::string_view text, size_t index, std::string* out) {
    const bool wanted = step.spec.prepend == PrependScheme::kAlways ||
                        (step.spec.prepend == PrependScheme::kFirst && at_start && index == 0);
    if (wanted && !text.starts_with(' ') && !text.starts_with(mark)) out->append(mark);
    AppendReplaced(text, ' ', mark, out);
  }));
  return step.spec.split ? Split(step, pieces, scratch, diagnostic) : Status::Ok();
}

Status TokenizerPreTokenizer::Run(bool at_start, TokenizerPieces* pieces, TokenizerRegex::Scratch* scratch,
                                  Diagnostic* diagnostic) const {
  pieces->pieces.clear();
  if (pieces->text.empty()) return Status::Ok();
  pieces->pieces.push_back({0, static_cast<uint32_t>(pieces->text.size())});
  for (const Step& step : steps_) {
    switch (step.spec.kind) {
      case PreTokenizerKind::kSplit:
        LINNET_RETURN_IF_ERROR(Split(step, pieces, scratch, diagnostic));
        break;
      case PreTokenizerKind::kPrefixSpace:
        LINNET_RETURN_IF_ERROR(RewritePieces(pieces, diagnostic, [](std::string_view text, size_t, std::string* out) {
          if (!text.starts_with(' ')) out->push_back(' ');
          out->append(text);
        }));
        break;
      case PreTokenizerKind::kByteLevel:
        if (!maps_bytes_) break;
        LINNET_RETURN_IF_ERROR(RewritePieces(
            pieces, diagnostic, [](std::string_view text, size_t, std::string* out) { AppendAlphabet(text, out); }));
        break;
      case PreTokenizerKind::kMetaspace:
        LINNET_RETURN_IF_ERROR(Metaspace(step, at_start, pieces, scratch, diagnostic));
        break;
    }
  }
  if (!maps_bytes_) return Status::Ok();
  return RewritePieces(pieces, diagnostic, [](std::string_view text, size_t, std::string* out) {
    if (!AppendBytesOfAlphabet(text, out)) out->append(text);  // a later step inserted something else
  });
}

size_t TokenizerPreTokenizer::memory_bytes() const {
  size_t bytes = steps_.capacity() * sizeof(Step);
  for (const Step& step : steps_) {
    bytes += step.spec.pattern.capacity();
    for (const TokenizerRegex& pattern : step.pattern) bytes += pattern.memory_bytes();
  }
  return bytes;
}

}  // namespace linnet
