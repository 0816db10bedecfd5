#include "core/tokenizer_normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "core/base/utf8.h"

namespace linnet {
namespace {

// No published normalizer grows text more than NFKD does (18 times, U+FDFA); a chain of replacements could by far.
constexpr size_t kMaxGrowth = 64;

/// Canonical (or compatibility) decomposition. utf8proc maps each code point; the order of combining marks is ours,
/// since utf8proc's own sort is quadratic in the length of a run of marks.
bool Decompose(std::string_view text, bool compatibility, std::vector<utf8proc_int32_t>* out) {
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0));
  out->clear();
  out->reserve(text.size() + 4);
  for (size_t i = 0; i < text.size();) {
    const Utf8Result c = DecodeUtf8(text.substr(i, 4));
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code_point), parts, 32, options, &boundary);
    if (count < 0 || count > 32) return false;
    out->insert(out->end(), parts, parts + count);
    i += std::max(1u, c.length);
  }
  const auto combining_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (size_t begin = 0; begin < out->size();) {
    if (combining_class((*out)[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < out->size() && combining_class((*out)[end]) != 0) ++end;
    std::stable_sort(out->begin() + static_cast<ptrdiff_t>(begin), out->begin() + static_cast<ptrdiff_t>(end),
                     [&](utf8proc_int32_t a, utf8proc_int32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
  return true;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

Status NormalizeForm(bool compatibility, bool compose, std::string* text, Diagnostic* diagnostic) {
  if (IsAscii(*text)) return Status::Ok();  // is in every form already
  std::vector<utf8proc_int32_t> points;
  bool ok = Decompose(*text, compatibility, &points);
  auto count = static_cast<utf8proc_ssize_t>(points.size());
  if (ok && compose) {
    count = utf8proc_normalize_utf32(points.data(), count,
                                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    ok = count >= 0;
  }
  if (!ok) {
    return Fail(diagnostic, StatusCode::kInternal, "Unicode normalization failed",
                "tokenizer: Unicode normalization failed");
  }
  text->clear();
  for (utf8proc_ssize_t i = 0; i < count; ++i) AppendUtf8(static_cast<uint32_t>(points[static_cast<size_t>(i)]), text);
  return Status::Ok();
}

/// Appends map(c) for every code point; the map appends what it likes to the new text.
template <typename Map>
void MapCodePoints(std::string* text, const Map& map) {
  std::string result;
  result.reserve(text->size());
  for (size_t i = 0; i < text->size();) {
    const Utf8Result c = DecodeUtf8(std::string_view(*text).substr(i, 4));
    map(c.code_point, &result);
    i += std::max(1u, c.length);
  }
  *text = std::move(result);
}

void Lowercase(std::string* text) {
  MapCodePoints(text, [](uint32_t c, std::string* out) {
    if (c == 0x130) {  // the only capital whose lowercase form is two code points
      out->append("i\xcc\x87");
    } else {
      AppendUtf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
    }
  });
}

void StripAccents(std::string* text) {
  MapCodePoints(text, [](uint32_t c, std::string* out) {
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    const bool mark =
        category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
    if (!mark) AppendUtf8(c, out);
  });
}

void StripLeft(std::string* text) {
  size_t begin = 0;
  while (begin < text->size()) {
    const Utf8Result c = DecodeUtf8(std::string_view(*text).substr(begin, 4));
    if (!IsWhiteSpace(c.code_point) || c.length == 0) break;
    begin += c.length;
  }
  text->erase(0, begin);
}

void StripRight(std::string* text) {
  size_t end = text->size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<uint8_t>((*text)[begin]) & 0xc0) == 0x80) --begin;
    if (!IsWhiteSpace(DecodeUtf8(std::string_view(*text).substr(begin, 4)).code_point)) break;
    end = begin;
  }
  text->resize(end);
}

Status Replace(const TokenizerRegex& pattern, const std::string& content, size_t limit, std::string* text,
               TokenizerRegex::Scratch* scratch, Diagnostic* diagnostic) {
  std::string result;
  size_t copied = 0, start = 0;
  while (start <= text->size()) {
    LINNET_ASSIGN_OR_RETURN(const TokenizerRegex::Match match, pattern.Find(*text, start, scratch, diagnostic));
    if (!match.found) break;
    result.append(*text, copied, match.begin - copied).append(content);
    copied = match.end;
    start = match.end;
    if (match.begin == match.end) {  // an empty match: go on behind the next character
      if (start == text->size()) break;
      start += std::max(1u, DecodeUtf8(std::string_view(*text).substr(start, 4)).length);
    }
    if (result.size() > limit) {
      return Fail(diagnostic, StatusCode::kInvalidModel, "the tokenizer's normalizer grows text too much",
                  "tokenizer: a replacement makes more than %zu bytes of a text", limit);
    }
  }
  if (copied == 0 && result.empty()) return Status::Ok();
  result.append(*text, copied);
  *text = std::move(result);
  return Status::Ok();
}

}  // namespace

Result<TokenizerNormalizer> TokenizerNormalizer::Create(std::vector<NormalizerStep> steps, Diagnostic* diagnostic) {
  TokenizerNormalizer normalizer;
  for (NormalizerStep& spec : steps) {
    Step step{std::move(spec), {}};
    if (step.spec.kind == NormalizerKind::kReplace) {
      LINNET_ASSIGN_OR_RETURN(TokenizerRegex pattern,
                              TokenizerRegex::Compile(step.spec.pattern, step.spec.regex, diagnostic));
      step.pattern.push_back(std::move(pattern));
    }
    normalizer.steps_.push_back(std::move(step));
  }
  return normalizer;
}

Status TokenizerNormalizer::Apply(std::string* text, TokenizerRegex::Scratch* scratch, Diagnostic* diagnostic) const {
  const size_t limit = kMaxGrowth * (text->size() + TokenizerSpec::kMaxPatternBytes);
  for (const Step& step : steps_) {
    switch (step.spec.kind) {
      case NormalizerKind::kNfc:
        LINNET_RETURN_IF_ERROR(NormalizeForm(false, true, text, diagnostic));
        break;
      case NormalizerKind::kNfd:
        LINNET_RETURN_IF_ERROR(NormalizeForm(false, false, text, diagnostic));
        break;
      case NormalizerKind::kNfkc:
        LINNET_RETURN_IF_ERROR(NormalizeForm(true, true, text, diagnostic));
        break;
      case NormalizerKind::kNfkd:
        LINNET_RETURN_IF_ERROR(NormalizeForm(true, false, text, diagnostic));
        break;
      case NormalizerKind::kLowercase:
        Lowercase(text);
        break;
      case NormalizerKind::kStripAccents:
        StripAccents(text);
        break;
      case NormalizerKind::kPrepend:
        if (!text->empty()) text->insert(0, step.spec.content);
        break;
      case NormalizerKind::kReplace:
        LINNET_RETURN_IF_ERROR(Replace(step.pattern.front(), step.spec.content, limit, text, scratch, diagnostic));
        break;
      case NormalizerKind::kStripLeft:
        StripLeft(text);
        break;
      case NormalizerKind::kStripRight:
        StripRight(text);
        break;
    }
  }
  return Status::Ok();
}

size_t TokenizerNormalizer::memory_bytes() const {
  size_t bytes = steps_.capacity() * sizeof(Step);
  for (const Step& step : steps_) {
    bytes += step.spec.pattern.capacity() + step.spec.content.capacity();
    for (const TokenizerRegex& pattern : step.pattern) bytes += pattern.memory_bytes();
  }
  return bytes;
}

}  // namespace linnet
