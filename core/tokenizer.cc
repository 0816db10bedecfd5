#include "core/tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/base/utf8.h"
#include "core/tokenizer_impl.h"

namespace linnet {

/// One call of Encode: its buffers, and the way from a text through segments and pieces to ids.
class TokenizerEncoder {
 public:
  TokenizerEncoder(const Tokenizer::Impl& tokenizer, bool parse_special, std::vector<int32_t>* out,
                   Diagnostic* diagnostic)
      : tokenizer_(tokenizer), parse_special_(parse_special), out_(out), diagnostic_(diagnostic) {}

  /// Cuts the text at the added tokens that are searched in the text as given.
  Status Run(std::string_view text) {
    return ForEachSegment(tokenizer_.raw_tokens, text, [this](std::string_view segment, bool at_start) {
      return EncodeRawSegment(segment, at_start);
    });
  }

 private:
  /// Appends the ids of `set` found in `text` and hands what lies between them to `encode(segment, at_start)`.
  template <typename Encode>
  Status ForEachSegment(const AddedTokenSet& set, std::string_view text, const Encode& encode) {
    size_t start = 0;
    while (start < text.size()) {
      const AddedTokenSet::Match match = set.Find(text, start, parse_special_);
      const size_t end = match.id < 0 ? text.size() : match.begin;
      if (end > start) LINNET_RETURN_IF_ERROR(encode(text.substr(start, end - start), start == 0));
      if (match.id < 0) break;
      out_->push_back(match.id);
      start = match.end;
    }
    return Status::Ok();
  }

  Status EncodeRawSegment(std::string_view segment, bool at_start) {
    normalized_.assign(segment);
    LINNET_RETURN_IF_ERROR(tokenizer_.normalizer.Apply(&normalized_, &regex_, diagnostic_));
    return ForEachSegment(tokenizer_.normalized_tokens, normalized_, [&](std::string_view part, bool part_at_start) {
      return EncodeSegment(part, at_start && part_at_start);
    });
  }

  Status EncodeSegment(std::string_view segment, bool at_start) {
    pieces_.text.assign(segment);
    LINNET_RETURN_IF_ERROR(tokenizer_.pre_tokenizer.Run(at_start, &pieces_, &regex_, diagnostic_));
    for (const TokenizerPieces::Piece& piece : pieces_.pieces) {
      if (piece.begin != piece.end) tokenizer_.bpe.Encode(pieces_.TextOf(piece), &bpe_, out_);
    }
    return Status::Ok();
  }

  const Tokenizer::Impl& tokenizer_;
  bool parse_special_;
  std::vector<int32_t>* out_;
  Diagnostic* diagnostic_;
  TokenizerRegex::Scratch regex_;
  TokenizerPieces pieces_;
  TokenizerBpe::Scratch bpe_;
  std::string normalized_;
};

namespace {

/// Normalizes the added tokens that are searched in normalized text, in the order of their ids.
Status NormalizeAddedTokens(Tokenizer::Impl* impl, Diagnostic* diagnostic) {
  if (impl->normalizer.empty()) return Status::Ok();
  TokenizerRegex::Scratch regex;
  for (const AddedTokenEntry& token : impl->view.added_tokens) {
    if ((token.flags & AddedTokenEntry::kNormalized) == 0) continue;
    auto& [id, text] = impl->normalized_texts.emplace_back(token.id, impl->view.AddedText(token));
    LINNET_RETURN_IF_ERROR(impl->normalizer.Apply(&text, &regex, diagnostic));
  }
  std::stable_sort(impl->normalized_texts.begin(), impl->normalized_texts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return Status::Ok();
}

/// Sorts the added tokens by the text that they are searched in.
Status MakeAddedTokens(Tokenizer::Impl* impl, Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(NormalizeAddedTokens(impl, diagnostic));
  std::vector<AddedTokenSet::Entry> raw, normalized;
  for (const AddedTokenEntry& token : impl->view.added_tokens) {
    const bool is_normalized = (token.flags & AddedTokenEntry::kNormalized) != 0;
    const std::string_view text =
        is_normalized && !impl->normalizer.empty() ? impl->DecodedText(token.id) : impl->view.AddedText(token);
    if (!text.empty()) (is_normalized ? normalized : raw).push_back({text, token.id, token.flags});
  }
  raw.shrink_to_fit();
  normalized.shrink_to_fit();
  impl->raw_tokens = AddedTokenSet(std::move(raw));
  impl->normalized_tokens = AddedTokenSet(std::move(normalized));
  return Status::Ok();
}

/// Splits the decoder into steps on single tokens and what happens at the start of the whole text.
Status MakeDecoder(Tokenizer::Impl* impl, Diagnostic* diagnostic) {
  bool fused = false;
  for (const DecoderStep& step : impl->view.decoder) {
    const bool strip = step.kind == DecoderKind::kStrip;
    if (strip && DecodeUtf8(step.content).length != step.content.size()) {
      return Fail(diagnostic, StatusCode::kUnsupported, "a decoder that this build cannot run",
                  "tokenizer: the Strip decoder's content is \"%s\", expected one character", step.content.c_str());
    }
    if (step.kind == DecoderKind::kFuse) {
      fused = true;
    } else if (!fused) {
      impl->token_steps.push_back(step);
    } else if (strip && step.stop == 0 && impl->strip_count == 0) {
      impl->strip_text = step.content;
      impl->strip_count = step.start;
    } else {
      return Fail(diagnostic, StatusCode::kUnsupported, "a decoder that this build cannot run",
                  "tokenizer: a decoder step of kind %d behind Fuse, expected only one Strip at the start",
                  static_cast<int>(step.kind));
    }
  }
  return Status::Ok();
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::Create(TokenizerView view, Diagnostic* diagnostic) {
  if (view.kind != TokenizerKind::kBpe && view.kind != TokenizerKind::kSentencePieceBpe) {
    return Fail(diagnostic, StatusCode::kUnsupported, "the model has no tokenizer that this build can run",
                "tokenizer: kind %d, expected BPE by rank (1) or by score (2)", static_cast<int>(view.kind));
  }
  LINNET_ASSIGN_OR_RETURN(TokenizerNormalizer normalizer, TokenizerNormalizer::Create(view.normalizer, diagnostic));
  LINNET_ASSIGN_OR_RETURN(TokenizerPreTokenizer pre_tokenizer,
                          TokenizerPreTokenizer::Create(view.pre_tokenizer, diagnostic));
  auto impl = std::make_unique<Impl>(std::move(view), std::move(normalizer), std::move(pre_tokenizer));
  LINNET_RETURN_IF_ERROR(MakeAddedTokens(impl.get(), diagnostic));
  LINNET_RETURN_IF_ERROR(MakeDecoder(impl.get(), diagnostic));
  return Tokenizer(std::move(impl));
}

Status Tokenizer::Encode(std::string_view text, const EncodeOptions& options, std::vector<int32_t>* out,
                         Diagnostic* diagnostic) const {
  if (text.size() > kMaxTextBytes) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the text is too long for the tokenizer",
                "text: %zu bytes, expected at most %zu", text.size(), kMaxTextBytes);
  }
  std::string valid;
  if (!IsValidUtf8(text)) {
    AppendValidUtf8(text, &valid);
    text = valid;
  }
  const size_t size_before = out->size();
  const auto append = [&](std::span<const int32_t> ids) { out->insert(out->end(), ids.begin(), ids.end()); };
  if (options.add_special) append(impl_->view.prefix_ids);
  const Status status = TokenizerEncoder(*impl_, options.parse_special, out, diagnostic).Run(text);
  if (!status.ok()) {
    out->resize(size_before);
    return status;
  }
  if (options.add_special) append(impl_->view.suffix_ids);
  return Status::Ok();
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  StreamDecoder decoder(*this, {.skip_special = skip_special, .at_start = true});
  for (int32_t id : ids) decoder.Push(id, &text);
  decoder.Flush(&text);
  return text;
}

std::string_view Tokenizer::TokenText(int32_t id) const {
  return impl_->view.HasToken(id) ? impl_->view.TokenText(id) : std::string_view();
}

bool Tokenizer::IsSpecial(int32_t id) const {
  if (!impl_->view.HasToken(id)) return false;
  const TokenType type = impl_->view.Type(id);
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

int32_t Tokenizer::FindId(std::string_view text) const {
  for (const AddedTokenEntry& token : impl_->view.added_tokens) {
    if (impl_->view.AddedText(token) == text) return token.id;
  }
  return impl_->view.FindToken(text);
}

int32_t Tokenizer::vocab_size() const { return impl_->view.token_count(); }
int32_t Tokenizer::bos_id() const { return impl_->view.bos_id; }
int32_t Tokenizer::eos_id() const { return impl_->view.eos_id; }
std::span<const int32_t> Tokenizer::prefix_ids() const { return impl_->view.prefix_ids; }
const TokenizerView& Tokenizer::view() const { return impl_->view; }

size_t Tokenizer::memory_bytes() const {
  size_t bytes = sizeof(Impl) + impl_->normalizer.memory_bytes() + impl_->pre_tokenizer.memory_bytes() +
                 impl_->raw_tokens.memory_bytes() + impl_->normalized_tokens.memory_bytes();
  for (const auto& entry : impl_->normalized_texts) bytes += sizeof(entry) + entry.second.capacity();
  const auto add_steps = [&](const auto& steps) { bytes += steps.capacity() * sizeof(steps[0]); };
  add_steps(impl_->view.normalizer);
  add_steps(impl_->view.pre_tokenizer);
  add_steps(impl_->view.decoder);
  add_steps(impl_->token_steps);
  return bytes;
}

}  // namespace linnet
