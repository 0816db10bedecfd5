// Methods of strings, lists, dicts and loops. Those that change a list or dict are refused, as by the sandbox that
// transformers renders templates in.
#include <algorithm>
#include <iterator>

#include "core/jinja/interpreter.h"

namespace linnet::jinja {
namespace {

constexpr std::string_view kTextMethods[] = {
    "strip", "lstrip",     "rstrip",     "split",    "rsplit",  "splitlines",   "upper",        "lower",
    "title", "capitalize", "startswith", "endswith", "replace", "join",         "find",         "rfind",
    "index", "count",      "isdigit",    "isalpha",  "isspace", "removeprefix", "removesuffix", "format"};
constexpr std::string_view kListMethods[] = {"index", "count",  "append",  "extend", "insert",
                                             "pop",   "remove", "reverse", "sort",   "clear"};
constexpr std::string_view kDictMethods[] = {"get",    "items",      "keys",    "values", "pop",
                                             "update", "setdefault", "popitem", "clear"};
constexpr std::string_view kLoopMethods[] = {"cycle", "changed"};

template <size_t kCount>
bool IsAmong(const std::string_view (&names)[kCount], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// Reads an argument that must be a string, or is absent (null).
bool TextArgument(Interpreter& interpreter, const Value* value, const std::string** text) {
  *text = nullptr;
  if (value == nullptr || value->is(Kind::kNone)) return true;
  if (value->is_undefined()) return interpreter.Undefined(*value);
  if (!value->is_string()) return interpreter.Fail("expected a string, found '%s'", value->TypeName());
  *text = &value->text();
  return true;
}

bool CountArgument(Interpreter& interpreter, const Value* value, int64_t* count) {
  if (value == nullptr || value->is(Kind::kNone)) return true;
  if (!value->is_integer()) return interpreter.Fail("expected an integer, found '%s'", value->TypeName());
  *count = value->integer();
  return true;
}

class TextMethod {
 public:
  TextMethod(Interpreter& interpreter, const std::string& text, const std::string& name, const Arguments& arguments,
             Value* out)
      : interpreter_(interpreter), text_(text), name_(name), arguments_(arguments), out_(out) {}

  bool Run() {
    if (!interpreter_.Charge(1 + text_.size() / 16, 2 * text_.size())) return false;
    if (name_ == "split" || name_ == "rsplit") return Split();
    if (name_ == "startswith" || name_ == "endswith") return HasEnd();
    if (name_ == "join") return CallFilter(interpreter_, "join", JoinArguments(), out_);
    const std::string* first = nullptr;
    if (name_ == "splitlines") {
      List lines;
      for (std::string& line : SplitLines(text_)) lines.push_back(Value::String(std::move(line)));
      return Return(Value::MakeList(std::move(lines)));
    }
    if (name_ == "upper" || name_ == "lower") return Return(Value::String(ChangeCase(text_, name_ == "upper")));
    if (name_ == "title") return Return(Value::String(Title()));
    if (name_ == "capitalize") return Return(Value::String(Capitalize(text_)));
    if (name_ == "isdigit" || name_ == "isalpha" || name_ == "isspace") return Return(Value::Bool(IsAll()));
    if (name_ == "format") return interpreter_.Fail("the method format is not supported");
    if (!TextArgument(interpreter_, arguments_.Find(0, name_ == "replace" ? "old" : "chars"), &first)) return false;
    if (name_ == "strip" || name_ == "lstrip" || name_ == "rstrip") {
      if (first != nullptr && !interpreter_.ChargeSearch(*first, text_)) return false;
      return Return(Value::String(Strip(text_, first, name_ != "rstrip", name_ != "lstrip")));
    }
    if (first == nullptr) return interpreter_.Fail("%s() needs an argument", name_.c_str());
    if (!interpreter_.ChargeSearch(text_, *first)) return false;
    if (name_ == "replace") return Replace(*first);
    if (name_ == "removeprefix") {
      return Return(Value::String(text_.starts_with(*first) ? text_.substr(first->size()) : text_));
    }
    if (name_ == "removesuffix") {
      const bool has = !first->empty() && text_.ends_with(*first);
      return Return(Value::String(has ? text_.substr(0, text_.size() - first->size()) : text_));
    }
    if (name_ == "count") return Return(Value::Int(Count(*first)));
    const size_t at = name_ == "rfind" ? text_.rfind(*first) : text_.find(*first);
    if (at == std::string::npos && name_ == "index") return interpreter_.Fail("substring not found");
    return Return(Value::Int(at == std::string::npos ? -1 : CodePointCount(std::string_view(text_).substr(0, at))));
  }

 private:
  bool Return(Value value) {
    *out_ = std::move(value);
    return interpreter_.Check(*out_);
  }

  Arguments JoinArguments() const {
    Arguments arguments;
    arguments.values.push_back(arguments_.values.empty() ? Value() : arguments_.values[0]);
    arguments.values.push_back(Value::String(text_));
    return arguments;
  }

  bool Replace(const std::string& from) {
    const std::string* to = nullptr;
    int64_t count = -1;
    if (!TextArgument(interpreter_, arguments_.Find(1, "new"), &to)) return false;
    if (to == nullptr) return interpreter_.Fail("replace() needs two arguments");
    if (!CountArgument(interpreter_, arguments_.Find(2, "count"), &count)) return false;
    const uint64_t matches = static_cast<uint64_t>(from.empty() ? CodePointCount(text_) + 1 : Count(from));
    if (!interpreter_.Charge(1, matches * to->size())) return false;
    return Return(Value::String(ReplaceText(text_, from, *to, count)));
  }

  int64_t Count(const std::string& part) const {
    if (part.empty()) return CodePointCount(text_) + 1;
    int64_t count = 0;
    for (size_t i = text_.find(part); i != std::string::npos; i = text_.find(part, i + part.size())) ++count;
    return count;
  }

  bool HasEnd() {
    const Value* given = arguments_.Find(0, "");
    if (given == nullptr) return interpreter_.Fail("%s() needs an argument", name_.c_str());
    if (given->is_undefined()) return interpreter_.Undefined(*given);
    const List one{*given};
    for (const Value& end : given->is(Kind::kTuple) ? given->list() : one) {
      if (!end.is_string()) return interpreter_.Fail("%s() needs a string, found '%s'", name_.c_str(), end.TypeName());
      const bool has = name_ == "startswith" ? text_.starts_with(end.text()) : text_.ends_with(end.text());
      if (has) return Return(Value::Bool(true));
    }
    return Return(Value::Bool(false));
  }

  bool Split() {
    const std::string* separator = nullptr;
    int64_t limit = -1;
    if (!TextArgument(interpreter_, arguments_.Find(0, "sep"), &separator)) return false;
    if (!CountArgument(interpreter_, arguments_.Find(1, "maxsplit"), &limit)) return false;
    if (separator != nullptr && separator->empty()) return interpreter_.Fail("empty separator");
    if (separator != nullptr && !interpreter_.ChargeSearch(text_, *separator)) return false;
    List parts;
    if (separator == nullptr) {
      SplitAtSpace(limit, &parts);
    } else if (name_ == "split") {
      SplitForward(*separator, limit, &parts);
    } else {
      SplitBackward(*separator, limit, &parts);
    }
    if (!interpreter_.Charge(parts.size() / 8, parts.size() * 2 * sizeof(Value))) return false;
    return Return(Value::MakeList(std::move(parts)));
  }

  void SplitForward(const std::string& separator, int64_t limit, List* parts) const {
    size_t begin = 0;
    for (; limit != 0; --limit) {
      const size_t end = text_.find(separator, begin);
      if (end == std::string::npos) break;
      parts->push_back(Value::String(text_.substr(begin, end - begin)));
      begin = end + separator.size();
    }
    parts->push_back(Value::String(text_.substr(begin)));
  }

  void SplitBackward(const std::string& separator, int64_t limit, List* parts) const {
    size_t end = text_.size();
    for (; limit != 0 && end >= separator.size(); --limit) {
      const size_t at = text_.rfind(separator, end - separator.size());
      if (at == std::string::npos) break;
      parts->push_back(Value::String(text_.substr(at + separator.size(), end - at - separator.size())));
      end = at;
    }
    parts->push_back(Value::String(text_.substr(0, end)));
    std::reverse(parts->begin(), parts->end());
  }

  /// Runs of white space divide; none is left at the ends. rsplit with a limit is not needed by templates and splits as
  /// split does.
  void SplitAtSpace(int64_t limit, List* parts) const {
    std::string rest = Strip(text_, nullptr, true, false);
    while (!rest.empty()) {
      if (limit-- == 0) {
        parts->push_back(Value::String(Strip(rest, nullptr, false, true)));
        return;
      }
      size_t end = 0;
      while (end < rest.size()) {
        const size_t length = OffsetOfCodePoint(std::string_view(rest).substr(end), 1);
        if (Strip(std::string_view(rest).substr(end, length), nullptr, true, false).empty()) break;
        end += length;
      }
      parts->push_back(Value::String(rest.substr(0, end)));
      rest = Strip(std::string_view(rest).substr(end), nullptr, true, false);
      if (!interpreter_.Charge(1 + rest.size() / 64, rest.size() / 16)) return;
    }
  }

  std::string Title() const {
    std::string result;
    bool in_word = false;
    for (size_t i = 0; i < text_.size();) {
      const size_t length = OffsetOfCodePoint(std::string_view(text_).substr(i), 1);
      const std::string_view c = std::string_view(text_).substr(i, length);
      const std::string upper = ChangeCase(c, true), lower = ChangeCase(c, false);
      result += in_word ? lower : upper;
      in_word = upper != lower;  // what has case is a letter of a word
      i += length;
    }
    return result;
  }

  bool IsAll() const {
    const auto fits = [&](char c) {
      const auto byte = static_cast<uint8_t>(c);
      if (name_ == "isdigit") return byte >= '0' && byte <= '9';
      if (name_ == "isspace") return byte == ' ' || (byte >= 9 && byte <= 13);
      return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte >= 0x80;
    };
    return !text_.empty() && std::all_of(text_.begin(), text_.end(), fits);
  }

  Interpreter& interpreter_;
  const std::string& text_;
  const std::string& name_;
  const Arguments& arguments_;
  Value* out_;
};

bool ListMethod(Interpreter& interpreter, const List& list, const std::string& name, const Arguments& arguments,
                Value* out) {
  if (name != "index" && name != "count")
    return interpreter.Fail("access to attribute '%s' of 'list' object is unsafe.", name.c_str());
  const Value* wanted = arguments.Find(0, "");
  if (wanted == nullptr) return interpreter.Fail("%s() needs an argument", name.c_str());
  int64_t count = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!interpreter.Charge(std::min(list[i].weight(), wanted->weight()))) return false;
    if (!Equal(list[i], *wanted)) continue;
    ++count;
    if (name == "index") {
      *out = Value::Int(static_cast<int64_t>(i));
      return true;
    }
  }
  if (name == "index") return interpreter.Fail("the value is not in the list");
  *out = Value::Int(count);
  return true;
}

bool DictMethod(Interpreter& interpreter, const Value& self, const std::string& name, const Arguments& arguments,
                Value* out) {
  const Dict& dict = self.dict();
  if (!interpreter.Charge(1 + dict.entries.size() / 8)) return false;
  if (name == "get") {
    const Value* key = arguments.Find(0, "key");
    if (key == nullptr) return interpreter.Fail("get() needs a key");
    const Value* found = dict.Find(*key);
    const Value* other = arguments.Find(1, "default");
    *out = found != nullptr ? *found : other != nullptr ? *other : Value();
    return true;
  }
  if (name != "items" && name != "keys" && name != "values") {
    return interpreter.Fail("access to attribute '%s' of 'dict' object is unsafe.", name.c_str());
  }
  if (!interpreter.Charge(1, dict.entries.size() * 4 * sizeof(Value))) return false;
  List items;
  for (const auto& [key, value] : dict.entries) {
    items.push_back(name == "keys" ? key : name == "values" ? value : Value::MakeList({key, value}, Kind::kTuple));
  }
  *out = Value::MakeList(std::move(items));
  return interpreter.Check(*out);
}

bool LoopMethod(Interpreter& interpreter, const Value& self, const std::string& name, const Arguments& arguments,
                Value* out) {
  Loop& loop = self.loop();
  if (name == "cycle") {
    if (arguments.values.empty()) return interpreter.Fail("no items for cycling given");
    *out = arguments.values[loop.index % arguments.values.size()];
    return true;
  }
  std::string written;
  for (const Value& value : arguments.values) {
    if (!interpreter.AppendText(value, &written)) return false;
    written.append(value.TypeName()).push_back('\0');
  }
  *out = Value::Bool(!loop.has_changed || written != loop.changed);
  loop.has_changed = true;
  loop.changed = std::move(written);
  return true;
}

}  // namespace

bool HasMethod(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString:
      return IsAmong(kTextMethods, name);
    case Kind::kList:
      return IsAmong(kListMethods, name);
    case Kind::kTuple:
      return name == "index" || name == "count";
    case Kind::kDict:
      return IsAmong(kDictMethods, name);
    case Kind::kLoop:
      return IsAmong(kLoopMethods, name);
    default:
      return false;
  }
}

bool CallMethod(Interpreter& interpreter, const Method& method, const Arguments& arguments, Value* out) {
  const Value& self = method.self;
  switch (self.kind()) {
    case Kind::kString:
      return TextMethod(interpreter, self.text(), method.name, arguments, out).Run();
    case Kind::kList:
    case Kind::kTuple:
      return ListMethod(interpreter, self.list(), method.name, arguments, out);
    case Kind::kDict:
      return DictMethod(interpreter, self, method.name, arguments, out);
    default:
      return LoopMethod(interpreter, self, method.name, arguments, out);
  }
}

}  // namespace linnet::jinja
