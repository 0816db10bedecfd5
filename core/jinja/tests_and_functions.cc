// The tests behind "is", and the functions that every template sees.
#include <algorithm>

#include "core/jinja/interpreter.h"

namespace linnet::jinja {
namespace {

bool IsSequenceLike(const Value& value) {
  return value.is_string() || value.is_sequence() || value.is(Kind::kDict) || value.is_undefined();
}

/// Tests of the kind of a value.
bool KindTest(const std::string& name, const Value& value, bool* known) {
  *known = true;
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is(Kind::kNone);
  if (name == "boolean") return value.is(Kind::kBool);
  if (name == "true") return value.is(Kind::kBool) && value.integer() != 0;
  if (name == "false") return value.is(Kind::kBool) && value.integer() == 0;
  if (name == "integer") return value.is(Kind::kInt);
  if (name == "float") return value.is(Kind::kFloat);
  if (name == "number") return value.is_number();
  if (name == "string") return value.is_string();
  if (name == "mapping") return value.is(Kind::kDict);
  if (name == "sequence" || name == "iterable") return IsSequenceLike(value);
  if (name == "callable") return value.is(Kind::kMacro) || value.is(Kind::kFunction) || value.is(Kind::kMethod);
  if (name == "lower") return value.is_string() && ChangeCase(value.text(), false) == value.text();
  if (name == "upper") return value.is_string() && ChangeCase(value.text(), true) == value.text();
  *known = false;
  return false;
}

/// The comparison that a test's name stands for; empty: none.
std::string ComparisonOf(const std::string& name) {
  if (name == "eq" || name == "equalto" || name == "==" || name == "sameas") return "==";
  if (name == "ne" || name == "!=") return "!=";
  if (name == "lt" || name == "lessthan" || name == "<") return "<";
  if (name == "gt" || name == "greaterthan" || name == ">") return ">";
  if (name == "le" || name == "<=") return "<=";
  if (name == "ge" || name == ">=") return ">=";
  return {};
}

bool ComparisonTest(Interpreter& interpreter, const std::string& op, const Value& left, const Value& right, bool* out) {
  if (!interpreter.Charge(std::min(left.weight(), right.weight()))) return false;
  if (op == "==" || op == "!=") {
    *out = Equal(left, right) == (op == "==");
    return true;
  }
  bool comparable = true;
  const bool less = Less(left, right, &comparable), greater = Less(right, left, &comparable);
  if (!comparable) return interpreter.Fail("'%s' and '%s' do not compare", left.TypeName(), right.TypeName());
  *out = op == "<" ? less : op == ">" ? greater : op == "<=" ? !greater : !less;
  return true;
}

bool Range(Interpreter& interpreter, const Arguments& arguments, Value* out) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t count = arguments.values.size();
  if (count < 1 || count > 3 || !arguments.named.empty()) return interpreter.Fail("range() takes 1 to 3 arguments");
  for (size_t i = 0; i < count; ++i) {
    if (arguments.values[i].is_undefined()) return interpreter.Undefined(arguments.values[i]);
    if (!arguments.values[i].is_integer())
      return interpreter.Fail("range() takes integers, found '%s'", arguments.values[i].TypeName());
    bounds[count == 1 ? 1 : i] = arguments.values[i].integer();
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) return interpreter.Fail("range() step must not be zero");
  List items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() >= static_cast<size_t>(kMaxRange))
      return interpreter.Fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    items.push_back(Value::Int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (!interpreter.Charge(items.size() / 8, items.size() * sizeof(Value))) return false;
  *out = Value::MakeList(std::move(items));
  return true;
}

/// dict(a=1) and namespace(a=1), also from a dict.
bool MakeEntries(Interpreter& interpreter, const Arguments& arguments, Kind kind, Value* out) {
  Dict dict;
  for (const Value& value : arguments.values) {
    if (!value.is(Kind::kDict)) return interpreter.Fail("expected a mapping, found '%s'", value.TypeName());
    for (const auto& [key, entry] : value.dict().entries) {
      if (!interpreter.Charge(1 + dict.entries.size() / 8, 2 * sizeof(Value))) return false;
      dict.Set(key, entry);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    if (!interpreter.Check(value) || !interpreter.Charge(1 + dict.entries.size() / 8, 2 * sizeof(Value))) return false;
    dict.Set(Value::String(name), value);
  }
  *out = Value::MakeDict(std::move(dict), kind);
  if (kind == Kind::kNamespace) interpreter.Adopt(*out);
  return interpreter.Check(*out) && interpreter.Charge(1, sizeof(Dict));
}

bool StringArgument(Interpreter& interpreter, const char* function, const Arguments& arguments, std::string* text) {
  const Value* value = arguments.Find(0, "message");
  if (value == nullptr) value = arguments.Find(0, "format");
  if (value == nullptr) return interpreter.Fail("%s() needs an argument", function);
  return interpreter.AppendText(*value, text);
}

}  // namespace

bool CallTest(Interpreter& interpreter, const std::string& name, const Arguments& arguments, bool* out) {
  const Value& value = arguments.input();
  bool known = false;
  if ((name == "lower" || name == "upper") && !interpreter.Charge(value.weight(), uint64_t{16} * value.weight()))
    return false;
  *out = KindTest(name, value, &known);
  if (known) return true;
  const bool parity = name == "odd" || name == "even";
  const Value* other = arguments.Find(1, "");
  if (parity || name == "divisibleby") {
    if (value.is_undefined()) return interpreter.Undefined(value);
    const int64_t divisor = parity ? 2 : other != nullptr && other->is_integer() ? other->integer() : 0;
    if (!value.is_integer() || divisor == 0) return interpreter.Fail("the test %s needs integers", name.c_str());
    *out = divisor == -1 || (value.integer() % divisor == 0) == (name != "odd");
    return true;
  }
  const std::string comparison = ComparisonOf(name);
  if (comparison.empty() && name != "in") return interpreter.Fail("No test named '%.100s'.", name.c_str());
  if (other == nullptr) return interpreter.Fail("the test %s needs an argument", name.c_str());
  return name == "in" ? Contains(interpreter, *other, value, out)
                      : ComparisonTest(interpreter, comparison, value, *other, out);
}

std::vector<std::string> FunctionNames() { return {"range", "dict", "namespace", "raise_exception", "strftime_now"}; }

bool CallFunction(Interpreter& interpreter, const std::string& name, const Arguments& arguments, Value* out) {
  if (name == "range") return Range(interpreter, arguments, out);
  if (name == "dict") return MakeEntries(interpreter, arguments, Kind::kDict, out);
  if (name == "namespace") return MakeEntries(interpreter, arguments, Kind::kNamespace, out);
  std::string text;
  if (!StringArgument(interpreter, name.c_str(), arguments, &text)) return false;
  if (name == "raise_exception") {
    return interpreter.FailWith(StatusCode::kInvalidArgument, "the chat template refuses the conversation", text);
  }
  *out = Value::String(FormatTime(interpreter.now_unix_seconds(), text));
  return true;
}

}  // namespace linnet::jinja
