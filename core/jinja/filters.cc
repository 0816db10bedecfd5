// Jinja2's filters.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "core/base/parse_double.h"
#include "core/jinja/interpreter.h"

namespace linnet::jinja {
namespace {

/// One call of a filter: the input is the first argument.
class Filter {
 public:
  Filter(Interpreter& interpreter, const std::string& name, const Arguments& arguments, Value* out)
      : interpreter_(interpreter), name_(name), arguments_(arguments), input_(arguments.input()), out_(out) {}

  bool Run() {
    struct Entry {
      const char* name;
      bool (Filter::*run)();
    };
    static constexpr Entry kFilters[] = {
        {"abs", &Filter::Abs},         {"attr", &Filter::Attr},         {"batch", &Filter::Batch},
        {"capitalize", &Filter::Text}, {"count", &Filter::Length},      {"d", &Filter::Default},
        {"default", &Filter::Default}, {"dictsort", &Filter::DictSort}, {"e", &Filter::Escape},
        {"escape", &Filter::Escape},   {"first", &Filter::FirstOrLast}, {"float", &Filter::Float},
        {"format", &Filter::Format},   {"indent", &Filter::Indent},     {"int", &Filter::Int},
        {"items", &Filter::Items},     {"join", &Filter::Join},         {"last", &Filter::FirstOrLast},
        {"length", &Filter::Length},   {"list", &Filter::ToList},       {"lower", &Filter::Text},
        {"map", &Filter::Map},         {"max", &Filter::Extreme},       {"min", &Filter::Extreme},
        {"reject", &Filter::Select},   {"rejectattr", &Filter::Select}, {"replace", &Filter::Replace},
        {"reverse", &Filter::Reverse}, {"round", &Filter::Round},       {"safe", &Filter::Safe},
        {"select", &Filter::Select},   {"selectattr", &Filter::Select}, {"sort", &Filter::Sort},
        {"string", &Filter::ToText},   {"sum", &Filter::Sum},           {"title", &Filter::Text},
        {"tojson", &Filter::ToJson},   {"trim", &Filter::Trim},         {"unique", &Filter::Unique},
        {"upper", &Filter::Text},
    };
    for (const Entry& entry : kFilters) {
      if (name_ == entry.name) return interpreter_.Charge(1) && (this->*entry.run)();
    }
    return interpreter_.Fail("No filter named '%.100s' found.", name_.c_str());
  }

 private:
  // Arguments and results.
  const Value* Argument(size_t position, std::string_view name) const { return arguments_.Find(position, name); }
  bool Return(Value value) {
    *out_ = std::move(value);
    return interpreter_.Check(*out_);
  }
  bool ReturnText(std::string text) {
    return interpreter_.Charge(1, text.size()) && Return(Value::String(std::move(text)));
  }
  bool ReturnList(List items) {
    if (!interpreter_.Charge(items.size() / 8, items.size() * sizeof(Value))) return false;
    return Return(Value::MakeList(std::move(items)));
  }
  bool Flag(size_t position, std::string_view name, bool absent) const {
    const Value* value = Argument(position, name);
    return value == nullptr ? absent : value->Truthy();
  }
  bool Integer(size_t position, std::string_view name, int64_t* number) {
    const Value* value = Argument(position, name);
    if (value == nullptr || value->is(Kind::kNone)) return true;
    if (!value->is_integer())
      return interpreter_.Fail("%s: expected an integer, found '%s'", name_.c_str(), value->TypeName());
    *number = value->integer();
    return true;
  }
  /// str(argument); `*given` says whether there is one.
  bool TextOf(size_t position, std::string_view name, std::string* text, bool* given) {
    const Value* value = Argument(position, name);
    *given = value != nullptr && !value->is(Kind::kNone);
    return !*given || interpreter_.AppendText(*value, text);
  }

  // Texts.
  bool Text() {
    std::string text;
    if (!interpreter_.AppendText(input_, &text)) return false;
    if (name_ == "capitalize") return ReturnText(Capitalize(text));
    return ReturnText(name_ == "title" ? Title(text) : ChangeCase(text, name_ == "upper"));
  }

  /// Words begin behind white space and one of -({[<; the rest of each is made lower case.
  static std::string Title(const std::string& text) {
    std::string result;
    bool in_word = false;
    for (size_t i = 0; i < text.size();) {
      const size_t length = OffsetOfCodePoint(std::string_view(text).substr(i), 1);
      const std::string_view c = std::string_view(text).substr(i, length);
      result += ChangeCase(c, !in_word);
      in_word = !Strip(c, nullptr, true, false).empty() && std::string_view("-({[<").find(c) == std::string_view::npos;
      i += length;
    }
    return result;
  }

  bool ToText() {
    if (input_.is_string()) return Return(input_);
    std::string text;
    return interpreter_.AppendText(input_, &text) && ReturnText(std::move(text));
  }

  bool Trim() {
    std::string text, characters;
    bool given = false;
    if (!interpreter_.AppendText(input_, &text) || !TextOf(1, "chars", &characters, &given)) return false;
    if (!interpreter_.ChargeSearch(characters, text)) return false;
    return ReturnText(Strip(text, given ? &characters : nullptr, true, true));
  }

  bool Replace() {
    std::string text, from, to;
    bool has_from = false, has_to = false;
    int64_t count = -1;
    if (!interpreter_.AppendText(input_, &text) || !TextOf(1, "old", &from, &has_from) ||
        !TextOf(2, "new", &to, &has_to) || !Integer(3, "count", &count)) {
      return false;
    }
    if (!has_from || !has_to) return interpreter_.Fail("replace needs two arguments");
    const uint64_t most = from.empty() ? text.size() + 1 : text.size() / from.size();
    if (!interpreter_.ChargeSearch(text, from) || !interpreter_.Charge(1, most * to.size())) return false;
    return ReturnText(ReplaceText(text, from, to, count));
  }

  bool Escape() {
    if (!interpreter_.Check(input_) || !interpreter_.Charge(input_.weight(), uint64_t{96} * input_.weight()))
      return false;
    return Return(Value::Markup(EscapedStr(input_)));
  }

  bool Safe() {
    std::string text;
    return interpreter_.AppendText(input_, &text) && Return(Value::Markup(std::move(text)));
  }

  bool Format() {
    if (!input_.is_string()) return interpreter_.Fail("format: expected a string, found '%s'", input_.TypeName());
    return FormatPercent(interpreter_, input_.text(), List(arguments_.values.begin() + 1, arguments_.values.end()),
                         out_);
  }

  bool Indent() {
    std::string text, unit;
    if (!interpreter_.AppendText(input_, &text)) return false;
    const Value* width = Argument(1, "width");
    if (width != nullptr && width->is_string()) {
      unit = width->text();
    } else {
      int64_t spaces = 4;
      if (!Integer(1, "width", &spaces)) return false;
      if (spaces > 1024) return interpreter_.Fail("indent: a width of at most 1024");
      unit.assign(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' ');
    }
    const bool first = Flag(2, "first", false), blank = Flag(3, "blank", false);
    const std::vector<std::string> lines = SplitLines(text + "\n");
    if (!interpreter_.Charge(lines.size(), lines.size() * (unit.size() + 1) + text.size())) return false;
    std::string result = first ? unit : "";
    for (size_t i = 0; i < lines.size(); ++i) {
      if (i > 0) result += "\n";
      if (i > 0 && (blank || !lines[i].empty())) result += unit;
      result += lines[i];
    }
    return Return(Value::String(std::move(result)));
  }

  bool ToJson() {
    JsonFormat format;
    int64_t indent = -1;
    if (!Integer(2, "indent", &indent)) return false;
    if (indent > 64) return interpreter_.Fail("tojson: an indent of at most 64");
    format.indent = static_cast<int>(std::max<int64_t>(indent, -1));
    if (format.indent >= 0) format.item_separator.assign(1, ',');
    format.ensure_ascii = Flag(1, "ensure_ascii", false);
    format.sort_keys = Flag(4, "sort_keys", false);
    if (const Value* pair = Argument(3, "separators"); pair != nullptr && !pair->is(Kind::kNone)) {
      const bool texts =
          pair->is_sequence() && pair->list().size() == 2 && pair->list()[0].is_string() && pair->list()[1].is_string();
      if (!texts) return interpreter_.Fail("tojson: separators are two strings");
      format.item_separator = pair->list()[0].text();
      format.key_separator = pair->list()[1].text();
    }
    const uint64_t item_bytes = 16 + format.item_separator.size() + format.key_separator.size() +
                                static_cast<uint64_t>(format.indent + 1) * (input_.depth() + 2u);
    if (!interpreter_.Check(input_) || !interpreter_.Charge(input_.weight(), item_bytes * input_.weight()))
      return false;
    std::string text;
    if (input_.is_undefined()) return interpreter_.Undefined(input_);
    if (!AppendJson(input_, format, 0, &text)) return interpreter_.Fail("a value is not JSON serializable");
    return Return(Value::String(std::move(text)));
  }

  // Numbers.
  bool Number() {
    if (input_.is_undefined()) return interpreter_.Undefined(input_);
    return input_.is_number() ||
           interpreter_.Fail("%s: expected a number, found '%s'", name_.c_str(), input_.TypeName());
  }

  bool Abs() {
    if (!Number()) return false;
    if (!input_.is_integer()) return Return(Value::Float(std::fabs(input_.number())));
    if (input_.integer() == INT64_MIN) return interpreter_.Fail("an integer needs more than 64 bits");
    return Return(Value::Int(std::abs(input_.integer())));
  }

  bool Int() {
    const Value* other = Argument(1, "default");
    const Value absent = other == nullptr ? Value::Int(0) : *other;
    if (input_.is_integer()) return Return(Value::Int(input_.integer()));
    double number = 0.0;
    if (input_.is(Kind::kFloat)) {
      number = input_.number();
    } else if (input_.is_string()) {
      const std::string text = Strip(input_.text(), nullptr, true, true);
      int64_t value = 0;
      const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
      const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
      if (error == std::errc() && end == text.data() + text.size()) return Return(Value::Int(value));
      if (!ParseFloat(text, &number)) return Return(absent);
    } else {
      return Return(absent);
    }
    if (!(std::fabs(number) < 9.2e18)) return Return(absent);
    return Return(Value::Int(static_cast<int64_t>(number)));
  }

  static bool ParseFloat(const std::string& text, double* number) {
    return ParseDouble(std::string_view(text).substr(text.starts_with('+') ? 1 : 0), number);
  }

  bool Float() {
    if (input_.is_number()) return Return(Value::Float(input_.number()));
    double number = 0.0;
    if (input_.is_string() && ParseFloat(Strip(input_.text(), nullptr, true, true), &number))
      return Return(Value::Float(number));
    const Value* other = Argument(1, "default");
    return Return(other == nullptr ? Value::Float(0.0) : *other);
  }

  bool Round() {
    int64_t precision = 0;
    std::string method = "common";
    bool given = false;
    if (!Number() || !Integer(1, "precision", &precision)) return false;
    if (Argument(2, "method") != nullptr) {
      method.clear();
      if (!TextOf(2, "method", &method, &given)) return false;
    }
    if (precision < -15 || precision > 15) return interpreter_.Fail("round: a precision from -15 to 15");
    const double scale = std::pow(10.0, static_cast<double>(precision)), scaled = input_.number() * scale;
    const double rounded = method == "ceil"    ? std::ceil(scaled)
                           : method == "floor" ? std::floor(scaled)
                                               : std::nearbyint(scaled);
    return Return(Value::Float(rounded / scale));
  }

  // Lists.
  bool Length() {
    if (input_.is_string()) return Return(Value::Int(CodePointCount(input_.text())));
    if (input_.is_sequence()) return Return(Value::Int(static_cast<int64_t>(input_.list().size())));
    if (input_.is(Kind::kDict)) return Return(Value::Int(static_cast<int64_t>(input_.dict().entries.size())));
    if (input_.is_undefined()) return Return(Value::Int(0));
    return interpreter_.Fail("object of type '%s' has no len()", input_.TypeName());
  }

  bool ToList() {
    List items;
    return interpreter_.Iterate(input_, &items) && ReturnList(std::move(items));
  }

  bool Items() {
    if (input_.is_undefined()) return ReturnList({});
    if (!input_.is(Kind::kDict)) return interpreter_.Fail("Can only get item pairs from a mapping.");
    return CallMethod(interpreter_, Method{input_, "items"}, {}, out_);
  }

  bool FirstOrLast() {
    List items;
    if (!interpreter_.Iterate(input_, &items)) return false;
    if (items.empty()) return Return(Value::Undefined(Concat({"No ", name_, " item, sequence was empty."})));
    return Return(name_ == "first" ? items.front() : items.back());
  }

  bool Reverse() {
    List items;
    if (!interpreter_.Iterate(input_, &items)) return false;
    std::reverse(items.begin(), items.end());
    if (!input_.is_string()) return ReturnList(std::move(items));
    std::string text;
    for (const Value& item : items) text += item.text();
    return ReturnText(std::move(text));
  }

  bool Join() {
    List items;
    std::string separator, text;
    bool given = false;
    if (!interpreter_.Iterate(input_, &items) || !TextOf(1, "d", &separator, &given)) return false;
    const Value* attribute = Argument(2, "attribute");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text += separator;
      if (attribute != nullptr && !Path(items[i], *attribute, &items[i])) return false;
      if (!interpreter_.Charge(1, separator.size()) || !interpreter_.AppendText(items[i], &text)) return false;
    }
    return ReturnText(std::move(text));
  }

  bool Batch() {
    List items, batches, batch;
    int64_t size = 0;
    if (!interpreter_.Iterate(input_, &items) || !Integer(1, "linecount", &size)) return false;
    if (size < 1) return interpreter_.Fail("batch: a size of at least 1");
    const Value* fill = Argument(2, "fill_with");
    const auto full = static_cast<size_t>(size);
    for (const Value& item : items) {
      batch.push_back(item);
      if (batch.size() == full) batches.push_back(Value::MakeList(std::exchange(batch, {})));
    }
    if (!batch.empty() && fill != nullptr) {
      if (full > static_cast<size_t>(kMaxRange)) return interpreter_.Fail("batch: the size is too large");
      batch.resize(full, *fill);
    }
    if (!batch.empty()) batches.push_back(Value::MakeList(std::move(batch)));
    return ReturnList(std::move(batches));
  }

  // Attributes, orders and choices.
  bool Attr() {
    const Value* name = Argument(1, "name");
    if (name == nullptr || !name->is_string()) return interpreter_.Fail("attr: expected a name");
    // Unlike ".", it does not look at the entries of a dict.
    if (!input_.is(Kind::kDict) || HasMethod(input_, name->text()))
      return interpreter_.Attribute(input_, name->text(), out_);
    return Return(Value::Undefined(Concat({"'dict object' has no attribute '", name->text(), "'"})));
  }

  bool Default() {
    const Value* other = Argument(1, "default_value");
    const bool replace = input_.is_undefined() || (Flag(2, "boolean", false) && !input_.Truthy());
    if (!replace) return Return(input_);
    return Return(other == nullptr ? Value::String("") : *other);
  }

  /// "a.b.0" of an item.
  bool Path(const Value& item, const Value& path, Value* out) {
    if (path.is_integer()) return interpreter_.Item(item, path, out);
    if (!path.is_string()) return interpreter_.Fail("an attribute is named by a string");
    Value current = item;
    std::string_view rest = path.text();
    while (true) {
      const size_t dot = rest.find('.');
      const std::string part(rest.substr(0, dot));
      int64_t index = 0;
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
      const bool number = error == std::errc() && end == part.data() + part.size();
      Value found;
      if (!interpreter_.Item(current, number ? Value::Int(index) : Value::String(part), &found)) return false;
      current = std::move(found);
      if (dot == std::string_view::npos) break;
      rest.remove_prefix(dot + 1);
    }
    *out = std::move(current);
    return interpreter_.Charge(1 + path.text().size() / 16);
  }

  /// What an item is ordered by: its attribute, strings without case unless asked for.
  bool SortKey(const Value& item, const Value* attribute, bool case_sensitive, Value* key) {
    *key = item;
    if (attribute != nullptr && !attribute->is(Kind::kNone) && !Path(item, *attribute, key)) return false;
    if (case_sensitive || !key->is_string()) return true;
    if (!interpreter_.Charge(1, key->text().size())) return false;
    *key = Value::String(ChangeCase(key->text(), false));
    return true;
  }

  struct Keyed {
    Value key, item;
  };
  bool SortKeyed(std::vector<Keyed>* entries, bool reverse) {
    uint64_t weight = 0;
    for (const Keyed& entry : *entries) weight += entry.key.weight();
    if (!interpreter_.Charge(weight * static_cast<uint64_t>(std::bit_width(entries->size())))) return false;
    bool comparable = true;
    std::stable_sort(entries->begin(), entries->end(), [&](const Keyed& a, const Keyed& b) {
      return reverse ? Less(b.key, a.key, &comparable) : Less(a.key, b.key, &comparable);
    });
    return comparable || interpreter_.Fail("%s: the items do not compare", name_.c_str());
  }

  bool KeyedItems(const Value* attribute, bool case_sensitive, std::vector<Keyed>* entries) {
    List items;
    if (!interpreter_.Iterate(input_, &items)) return false;
    for (const Value& item : items) {
      Keyed& entry = entries->emplace_back();
      entry.item = item;
      if (!SortKey(item, attribute, case_sensitive, &entry.key)) return false;
    }
    return true;
  }
  bool ReturnKeyed(const std::vector<Keyed>& entries) {
    List items;
    for (const Keyed& entry : entries) items.push_back(entry.item);
    return ReturnList(std::move(items));
  }

  bool Sort() {
    std::vector<Keyed> entries;
    if (!KeyedItems(Argument(3, "attribute"), Flag(2, "case_sensitive", false), &entries)) return false;
    return SortKeyed(&entries, Flag(1, "reverse", false)) && ReturnKeyed(entries);
  }

  bool DictSort() {
    if (!input_.is(Kind::kDict))
      return interpreter_.Fail("dictsort: expected a mapping, found '%s'", input_.TypeName());
    const bool case_sensitive = Flag(1, "case_sensitive", false);
    std::string by;
    bool given = false;
    if (!TextOf(2, "by", &by, &given)) return false;
    std::vector<Keyed> entries;
    for (const auto& [key, value] : input_.dict().entries) {
      Keyed& entry = entries.emplace_back();
      entry.item = Value::MakeList({key, value}, Kind::kTuple);
      if (!SortKey(by == "value" ? value : key, nullptr, case_sensitive, &entry.key)) return false;
    }
    return SortKeyed(&entries, Flag(3, "reverse", false)) && ReturnKeyed(entries);
  }

  bool Unique() {
    std::vector<Keyed> entries, chosen;
    if (!KeyedItems(Argument(2, "attribute"), Flag(1, "case_sensitive", false), &entries)) return false;
    for (Keyed& entry : entries) {
      bool is_new = true;
      for (const Keyed& other : chosen) {
        if (!interpreter_.Charge(std::min(entry.key.weight(), other.key.weight()))) return false;
        if (!Equal(entry.key, other.key)) continue;
        is_new = false;
        break;
      }
      if (is_new) chosen.push_back(std::move(entry));
    }
    return ReturnKeyed(chosen);
  }

  bool Extreme() {
    std::vector<Keyed> entries;
    if (!KeyedItems(Argument(2, "attribute"), Flag(1, "case_sensitive", false), &entries)) return false;
    if (entries.empty()) return Return(Value::Undefined("No aggregated item, sequence was empty."));
    if (!SortKeyed(&entries, name_ == "max")) return false;
    return Return(entries.front().item);
  }

  bool Sum() {
    List items;
    if (!interpreter_.Iterate(input_, &items)) return false;
    const Value* start = Argument(2, "start");
    const Value* attribute = Argument(1, "attribute");
    Value total = start == nullptr ? Value::Int(0) : *start;
    for (const Value& item : items) {
      Value addend = item;
      if (attribute != nullptr && !attribute->is(Kind::kNone) && !Path(item, *attribute, &addend)) return false;
      Value next;
      if (!BinaryOperator(interpreter_, "+", total, addend, &next)) return false;
      total = std::move(next);
    }
    return Return(std::move(total));
  }

  bool Map() {
    List items;
    if (!input_.Truthy()) return ReturnList({});  // None as well, here and in Select
    if (!interpreter_.Iterate(input_, &items)) return false;
    const Value* attribute = Argument(SIZE_MAX, "attribute");
    const Value* absent = Argument(SIZE_MAX, "default");
    if (attribute == nullptr && (arguments_.values.size() < 2 || !arguments_.values[1].is_string())) {
      return interpreter_.Fail("map requires a filter argument");
    }
    for (Value& item : items) {
      Value mapped;
      if (!interpreter_.Charge(1)) return false;
      if (attribute != nullptr) {
        if (!Path(item, *attribute, &mapped)) return false;
        if (mapped.is_undefined() && absent != nullptr) mapped = *absent;
      } else {
        Arguments arguments = Following(2, item);
        if (!CallFilter(interpreter_, arguments_.values[1].text(), arguments, &mapped)) return false;
      }
      item = std::move(mapped);
    }
    return ReturnList(std::move(items));
  }

  /// The arguments from `begin` on, behind `input`.
  Arguments Following(size_t begin, const Value& input) const {
    Arguments arguments;
    arguments.values.push_back(input);
    for (size_t i = begin; i < arguments_.values.size(); ++i) arguments.values.push_back(arguments_.values[i]);
    arguments.named = arguments_.named;
    return arguments;
  }

  /// select, reject, selectattr, rejectattr.
  bool Select() {
    const bool by_attribute = name_ == "selectattr" || name_ == "rejectattr",
               keep = name_ == "select" || name_ == "selectattr";
    const size_t test_at = by_attribute ? 2 : 1;
    List items, chosen;
    if (!input_.Truthy()) return ReturnList({});
    if (!interpreter_.Iterate(input_, &items)) return false;
    if (arguments_.values.size() < test_at) return interpreter_.Fail("%s: expected an attribute", name_.c_str());
    const bool has_test = arguments_.values.size() > test_at;
    if (has_test && !arguments_.values[test_at].is_string())
      return interpreter_.Fail("%s: expected the name of a test", name_.c_str());
    for (const Value& item : items) {
      Value value = item;
      if (!interpreter_.Charge(1) || (by_attribute && !Path(item, arguments_.values[1], &value))) return false;
      bool result = value.Truthy();
      if (has_test &&
          !CallTest(interpreter_, arguments_.values[test_at].text(), Following(test_at + 1, value), &result))
        return false;
      if (result == keep) chosen.push_back(item);
    }
    return ReturnList(std::move(chosen));
  }

  Interpreter& interpreter_;
  const std::string& name_;
  const Arguments& arguments_;
  const Value& input_;
  Value* out_;
};

}  // namespace

bool CallFilter(Interpreter& interpreter, const std::string& name, const Arguments& arguments, Value* out) {
  const Interpreter::Descent descent(&interpreter);  // map may name itself
  return descent.ok() && Filter(interpreter, name, arguments, out).Run();
}

}  // namespace linnet::jinja
