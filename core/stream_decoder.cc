#include <algorithm>

#include "core/base/utf8.h"
#include "core/tokenizer.h"
#include "core/tokenizer_impl.h"

namespace linnet {
namespace {

void ReplaceAll(std::string_view text, std::string_view pattern, std::string_view content, std::string* out) {
  for (size_t begin = 0;;) {
    const size_t end = text.find(pattern, begin);
    out->append(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return;
    out->append(content);
    begin = end + pattern.size();
  }
}

void Strip(const DecoderStep& step, std::string* text) {
  size_t begin = 0, end = text->size();
  const std::string& unit = step.content;
  for (uint32_t i = 0; i < step.start && text->compare(begin, unit.size(), unit) == 0; ++i) begin += unit.size();
  for (uint32_t i = 0;
       i < step.stop && end >= begin + unit.size() && text->compare(end - unit.size(), unit.size(), unit) == 0; ++i) {
    end -= unit.size();
  }
  text->resize(end);
  text->erase(0, begin);
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const StreamOptions& options)
    : tokenizer_(&tokenizer),
      options_(options),
      first_token_(options.at_start),
      strip_left_(options.at_start ? tokenizer.impl_->strip_count : 0) {
  if (tokenizer.impl_->token_steps.empty()) return;  // texts are used where they are
  const size_t longest = 2 * size_t{tokenizer.impl_->view.max_token_bytes} + 16;
  token_.reserve(longest);
  replaced_.reserve(longest);
}

void StreamDecoder::Push(int32_t id, std::string* out) {
  const Tokenizer::Impl& tokenizer = *tokenizer_->impl_;
  if (!tokenizer.view.HasToken(id)) return;
  if (options_.skip_special && tokenizer_->IsSpecial(id)) return;
  const std::string_view text = tokenizer.DecodedText(id);
  const bool first = first_token_;
  first_token_ = false;
  if (tokenizer.token_steps.empty()) {
    PushText(text, out);
    return;
  }
  token_.assign(text);
  for (const DecoderStep& step : tokenizer.token_steps) {
    switch (step.kind) {
      case DecoderKind::kByteFallback: {
        const int byte = ByteOfByteToken(token_);
        if (byte < 0) break;
        PushByte(static_cast<char>(byte), out);
        return;
      }
      case DecoderKind::kReplace:
        replaced_.clear();
        ReplaceAll(token_, step.pattern, step.content, &replaced_);
        token_.swap(replaced_);
        break;
      case DecoderKind::kMetaspace: {
        const bool drop = first && step.prepend != PrependScheme::kNever;
        replaced_.clear();
        ReplaceAll(token_, step.pattern, drop ? "" : " ", &replaced_);
        token_.swap(replaced_);
        break;
      }
      case DecoderKind::kStrip:
        Strip(step, &token_);
        break;
      case DecoderKind::kFuse:
        break;  // was taken out when the tokenizer was made
    }
  }
  PushText(token_, out);
}

void StreamDecoder::PushText(std::string_view text, std::string* out) {
  for (char byte : text) PushByte(byte, out);
}

void StreamDecoder::PushByte(char byte, std::string* out) {
  pending_[pending_count_++] = byte;
  while (pending_count_ > 0) {
    const std::string_view held(pending_.data(), pending_count_);
    const Utf8Result result = DecodeUtf8(held);
    if (result.incomplete) return;
    const uint32_t used = result.length != 0 ? result.length : result.bad_length;
    Emit(result.length != 0 ? held.substr(0, used) : kReplacementCharacter, out);
    std::copy(pending_.begin() + used, pending_.begin() + pending_count_, pending_.begin());
    pending_count_ -= used;
  }
}

void StreamDecoder::Emit(std::string_view code_point, std::string* out) {
  if (strip_left_ > 0) {
    if (code_point == tokenizer_->impl_->strip_text) {
      --strip_left_;
      return;
    }
    strip_left_ = 0;
  }
  out->append(code_point);
}

void StreamDecoder::Flush(std::string* out) {
  if (pending_count_ > 0) Emit(kReplacementCharacter, out);
  pending_count_ = 0;
}

}  // namespace linnet
