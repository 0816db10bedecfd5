#include "core/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/base/utf8.h"

namespace linnet::jinja {

Value Value::Bool(bool value) {
  Value result(Kind::kBool);
  result.integer_ = value ? 1 : 0;
  return result;
}
Value Value::Int(int64_t value) {
  Value result(Kind::kInt);
  result.integer_ = value;
  return result;
}
Value Value::Float(double value) {
  Value result(Kind::kFloat);
  result.float_ = value;
  return result;
}
Value Value::String(std::string text) {
  const size_t weight = 1 + text.size() / 16;
  Value result(Kind::kString, std::make_shared<std::string>(std::move(text)));
  result.weight_ = static_cast<uint32_t>(std::min<size_t>(weight, UINT32_MAX));
  return result;
}
Value Value::Markup(std::string text) {
  Value result = String(std::move(text));
  result.markup_ = true;
  return result;
}
Value Value::Undefined(std::string what) { return {Kind::kUndefined, std::make_shared<std::string>(std::move(what))}; }
Value Value::Function(std::string name) { return {Kind::kFunction, std::make_shared<std::string>(std::move(name))}; }
Value Value::MakeList(List items, Kind kind) {
  Value result(kind, std::make_shared<List>(std::move(items)));
  for (const Value& item : result.list()) result.AddPart(item);
  return result;
}
Value Value::MakeDict(Dict entries, Kind kind) {
  Value result(kind, std::make_shared<Dict>(std::move(entries)));
  if (kind == Kind::kNamespace) return result;  // is written as a name, and may change
  for (const auto& [key, value] : result.dict().entries) {
    result.AddPart(key);
    result.AddPart(value);
  }
  return result;
}
Value Value::Of(std::shared_ptr<Macro> macro) { return {Kind::kMacro, std::move(macro)}; }
Value Value::Of(std::shared_ptr<Method> method) {
  const Value self = method->self;
  Value result(Kind::kMethod, std::move(method));
  result.AddPart(self);
  return result;
}
Value Value::Of(std::shared_ptr<Loop> loop) {
  const Value previous = loop->previous, next = loop->next;
  Value result(Kind::kLoop, std::move(loop));
  result.AddPart(previous);
  result.AddPart(next);
  return result;
}

void Value::AddPart(const Value& part) {
  depth_ = static_cast<uint16_t>(std::min<uint32_t>(std::max<uint32_t>(depth_, part.depth_ + 1u), UINT16_MAX));
  weight_ = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{weight_} + part.weight_, UINT32_MAX));
}

const std::string& Value::text() const { return *static_cast<const std::string*>(object_.get()); }
const List& Value::list() const { return *static_cast<const List*>(object_.get()); }
const Dict& Value::dict() const { return *static_cast<const Dict*>(object_.get()); }
Dict& Value::namespace_dict() const { return *static_cast<Dict*>(object_.get()); }
const Macro& Value::macro() const { return *static_cast<const Macro*>(object_.get()); }
const Method& Value::method() const { return *static_cast<const Method*>(object_.get()); }
Loop& Value::loop() const { return *static_cast<Loop*>(object_.get()); }

bool Value::Truthy() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return integer_ != 0;
    case Kind::kFloat:
      return float_ != 0.0;
    case Kind::kString:
      return !text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !list().empty();
    case Kind::kDict:
      return !dict().entries.empty();
    default:
      return true;
  }
}

const char* Value::TypeName() const {
  switch (kind_) {
    case Kind::kUndefined:
      return "undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "bool object";
    case Kind::kInt:
      return "int object";
    case Kind::kFloat:
      return "float object";
    case Kind::kString:
      return "str object";
    case Kind::kList:
      return "list object";
    case Kind::kTuple:
      return "tuple object";
    case Kind::kDict:
      return "dict object";
    case Kind::kNamespace:
      return "namespace object";
    case Kind::kLoop:
      return "loop object";
    case Kind::kMacro:
      return "macro object";
    case Kind::kFunction:
    case Kind::kMethod:
      return "function object";
  }
  return "object";
}

const Value* Dict::Find(const Value& key) const {
  for (const auto& [name, value] : entries) {
    if (Equal(name, key)) return &value;
  }
  return nullptr;
}
const Value* Dict::Find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}
void Dict::Set(const Value& key, Value value) {
  for (auto& [name, old] : entries) {
    if (Equal(name, key)) {
      old = std::move(value);
      return;
    }
  }
  entries.emplace_back(key, std::move(value));
}

namespace {

bool EqualDicts(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.Find(entry.first);
    return other != nullptr && Equal(entry.second, *other);
  });
}

void AppendFloat(double value, std::string* out) {
  if (std::isnan(value) || std::isinf(value)) {
    out->append(std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    return;
  }
  // Python writes the shortest digits that read back the same, with an exponent below 1e-4 and from 1e16 on.
  char buffer[64];
  const double size = std::fabs(value);
  const bool scientific = size != 0.0 && (size < 1e-4 || size >= 1e16);
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                          scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string_view digits(buffer, static_cast<size_t>(end - buffer));
  out->append(digits);
  if (!scientific && digits.find('.') == std::string_view::npos) out->append(".0");
}

void AppendStringRepr(std::string_view text, std::string* out) {
  const bool has_single = text.find('\'') != std::string_view::npos,
             has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out->push_back(quote);
  for (char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == quote || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out->append(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\x%02x", byte);
      out->append(escape);
    } else {
      out->push_back(c);
    }
  }
  out->push_back(quote);
}

void AppendUnicodeEscape(uint32_t unit, std::string* out) {
  char escape[8];
  std::snprintf(escape, sizeof(escape), "\\u%04x", unit & 0xffffu);
  out->append(escape);
}

void AppendJsonString(std::string_view text, bool ensure_ascii, std::string* out) {
  out->push_back('"');
  for (size_t i = 0; i < text.size();) {
    const Utf8Result c = DecodeUtf8(text.substr(i, 4));
    const uint32_t length = std::max(1u, c.length);
    constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
    const size_t named = c.code_point < 0x80 ? kEscaped.find(text[i]) : std::string_view::npos;
    if (named != std::string_view::npos) {
      out->push_back('\\');
      out->push_back(kNames[named]);
    } else if (c.code_point < 0x20 || (ensure_ascii && c.code_point >= 0x7f && c.code_point < 0x10000)) {
      AppendUnicodeEscape(c.code_point, out);
    } else if (ensure_ascii && c.code_point >= 0x10000) {
      AppendUnicodeEscape(0xd800 + ((c.code_point - 0x10000) >> 10), out);
      AppendUnicodeEscape(0xdc00 + ((c.code_point - 0x10000) & 0x3ff), out);
    } else {
      out->append(text.substr(i, length));
    }
    i += length;
  }
  out->push_back('"');
}

/// Calls `append(i)` for each of `count` items with separators and line breaks between the brackets.
template <typename Append>
bool AppendJsonItems(size_t count, const char* brackets, const JsonFormat& format, int level, std::string* out,
                     const Append& append) {
  const auto line = [&](int depth) {
    if (format.indent < 0) return;
    out->push_back('\n');
    out->append(static_cast<size_t>(format.indent) * static_cast<size_t>(depth), ' ');
  };
  out->push_back(brackets[0]);
  for (size_t i = 0; i < count; ++i) {
    if (i != 0) out->append(format.item_separator);
    line(level + 1);
    if (!append(i)) return false;
  }
  if (count != 0) line(level);
  out->push_back(brackets[1]);
  return true;
}

bool AppendJsonDict(const Dict& dict, const JsonFormat& format, int level, std::string* out) {
  std::vector<const std::pair<Value, Value>*> entries;
  for (const auto& entry : dict.entries) entries.push_back(&entry);
  if (format.sort_keys) {
    bool comparable = true;
    std::stable_sort(entries.begin(), entries.end(),
                     [&](const auto* a, const auto* b) { return Less(a->first, b->first, &comparable); });
  }
  return AppendJsonItems(entries.size(), "{}", format, level, out, [&](size_t i) {
    const auto& [key, value] = *entries[i];
    if (key.is_string()) {
      AppendJsonString(key.text(), format.ensure_ascii, out);
    } else {  // Python writes other keys as strings
      out->push_back('"');
      if (!AppendJson(key, format, 0, out)) return false;
      out->push_back('"');
    }
    out->append(format.key_separator);
    return AppendJson(value, format, level + 1, out);
  });
}

}  // namespace

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
    case Kind::kFunction:
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return std::equal(a.list().begin(), a.list().end(), b.list().begin(), b.list().end(), Equal);
    case Kind::kDict:
      return EqualDicts(a.dict(), b.dict());
    case Kind::kNamespace:
      return &a.dict() == &b.dict();
    default:
      return false;
  }
}

bool Less(const Value& a, const Value& b, bool* comparable) {
  if (a.is_number() && b.is_number()) {
    return a.is_integer() && b.is_integer() ? a.integer() < b.integer() : a.number() < b.number();
  }
  if (a.is_string() && b.is_string()) return a.text() < b.text();  // the order of bytes is that of code points
  if (a.is_sequence() && a.kind() == b.kind()) {
    const List &x = a.list(), &y = b.list();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!Equal(x[i], y[i])) return Less(x[i], y[i], comparable);
    }
    return x.size() < y.size();
  }
  *comparable = false;
  return false;
}

void AppendStr(const Value& value, std::string* out) {
  if (value.is_string()) {
    out->append(value.text());
  } else if (!value.is_undefined()) {
    AppendRepr(value, out);
  }
}

std::string EscapedStr(const Value& value) {
  std::string text, result;
  AppendStr(value, &text);
  if (value.is_markup()) return text;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '\'':
        result += "&#39;";
        break;
      case '"':
        result += "&#34;";
        break;
      default:
        result.push_back(c);
    }
  }
  return result;
}

void AppendRepr(const Value& value, std::string* out) {
  switch (value.kind()) {
    case Kind::kUndefined:
      out->append("Undefined");
      break;
    case Kind::kNone:
      out->append("None");
      break;
    case Kind::kBool:
      out->append(value.integer() != 0 ? "True" : "False");
      break;
    case Kind::kInt:
      out->append(std::to_string(value.integer()));
      break;
    case Kind::kFloat:
      AppendFloat(value.number(), out);
      break;
    case Kind::kString:
      AppendStringRepr(value.text(), out);
      break;
    case Kind::kList:
    case Kind::kTuple: {
      const bool tuple = value.is(Kind::kTuple);
      out->push_back(tuple ? '(' : '[');
      for (size_t i = 0; i < value.list().size(); ++i) {
        if (i != 0) out->append(", ");
        AppendRepr(value.list()[i], out);
      }
      if (tuple && value.list().size() == 1) out->push_back(',');
      out->push_back(tuple ? ')' : ']');
      break;
    }
    case Kind::kDict: {
      out->push_back('{');
      for (size_t i = 0; i < value.dict().entries.size(); ++i) {
        if (i != 0) out->append(", ");
        AppendRepr(value.dict().entries[i].first, out);
        out->append(": ");
        AppendRepr(value.dict().entries[i].second, out);
      }
      out->push_back('}');
      break;
    }
    default:
      out->append("<").append(value.TypeName()).append(">");
  }
}

bool AppendJson(const Value& value, const JsonFormat& format, int level, std::string* out) {
  switch (value.kind()) {
    case Kind::kNone:
      out->append("null");
      return true;
    case Kind::kBool:
      out->append(value.integer() != 0 ? "true" : "false");
      return true;
    case Kind::kInt:
      out->append(std::to_string(value.integer()));
      return true;
    case Kind::kFloat:
      if (std::isfinite(value.number())) {
        AppendFloat(value.number(), out);
      } else {
        out->append(std::isnan(value.number()) ? "NaN" : value.number() < 0 ? "-Infinity" : "Infinity");
      }
      return true;
    case Kind::kString:
      AppendJsonString(value.text(), format.ensure_ascii, out);
      return true;
    case Kind::kList:
    case Kind::kTuple:
      return AppendJsonItems(value.list().size(), "[]", format, level, out,
                             [&](size_t i) { return AppendJson(value.list()[i], format, level + 1, out); });
    case Kind::kDict:
      return AppendJsonDict(value.dict(), format, level, out);
    default:
      return false;
  }
}

int64_t CodePointCount(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

size_t OffsetOfCodePoint(std::string_view text, int64_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) {
    ++offset;
    while (offset < text.size() && (static_cast<uint8_t>(text[offset]) & 0xc0) == 0x80) ++offset;
  }
  return offset;
}

}  // namespace linnet::jinja
