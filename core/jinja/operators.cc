// Python's operators.
#include <algorithm>
#include <cmath>

#include "core/jinja/interpreter.h"

namespace linnet::jinja {
namespace {

bool IntegerOperator(Interpreter& interpreter, const std::string& op, int64_t a, int64_t b, Value* out) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (b == 0) {
    return interpreter.Fail("division by zero");
  } else if (b == -1) {
    overflow = op == "//" && __builtin_sub_overflow(int64_t{0}, a, &result);  // the machine traps on the lowest a
  } else {
    const bool round_down = a % b != 0 && (a < 0) != (b < 0);  // Python rounds towards minus infinity
    result = op == "//" ? a / b - (round_down ? 1 : 0) : a % b + (round_down ? b : 0);
  }
  if (overflow) return interpreter.Fail("an integer needs more than 64 bits");
  *out = Value::Int(result);
  return true;
}

bool IntegerPower(Interpreter& interpreter, int64_t base, int64_t exponent, Value* out) {
  int64_t result = 1;
  // A base beyond one overflows within 63 steps; the others repeat after two.
  const int64_t count = base >= -1 && base <= 1 ? std::min(exponent, 2 - exponent % 2) : exponent;
  for (int64_t i = 0; i < count; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return interpreter.Fail("an integer needs more than 64 bits");
  }
  *out = Value::Int(result);
  return true;
}

bool NumberOperator(Interpreter& interpreter, const std::string& op, const Value& left, const Value& right,
                    Value* out) {
  const bool integers = left.is_integer() && right.is_integer();
  if (op == "**" && integers && right.integer() >= 0) {
    return IntegerPower(interpreter, left.integer(), right.integer(), out);
  }
  if (integers && op != "/" && op != "**")
    return IntegerOperator(interpreter, op, left.integer(), right.integer(), out);
  const double a = left.number(), b = right.number();
  double result = 0.0;
  if (op == "+") {
    result = a + b;
  } else if (op == "-") {
    result = a - b;
  } else if (op == "*") {
    result = a * b;
  } else if (op == "**") {
    result = std::pow(a, b);
  } else if (b == 0.0) {
    return interpreter.Fail("division by zero");
  } else if (op == "/") {
    result = a / b;
  } else if (op == "//") {
    result = std::floor(a / b);
  } else {
    result = a - b * std::floor(a / b);
  }
  *out = Value::Float(result);
  return true;
}

bool Repeat(Interpreter& interpreter, const Value& value, int64_t count, Value* out) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  const uint64_t size = value.is_string() ? value.text().size() : value.list().size() * sizeof(Value);
  if (times > 0 && size > kMaxBytesMade / times)
    return interpreter.Fail("it makes more than %llu bytes", static_cast<unsigned long long>(kMaxBytesMade));
  const bool empty = size == 0;
  if (!interpreter.Charge(1, size * times)) return false;
  if (value.is_string()) {
    std::string text;
    text.reserve(size * times);
    for (uint64_t i = 0; i < times && !empty; ++i) text += value.text();
    *out = Value::String(std::move(text));
    return true;
  }
  List items;
  for (uint64_t i = 0; i < times && !empty; ++i) items.insert(items.end(), value.list().begin(), value.list().end());
  *out = Value::MakeList(std::move(items), value.kind());
  return interpreter.Check(*out);
}

bool Join(Interpreter& interpreter, const Value& left, const Value& right, Value* out) {
  if (left.is_string()) {
    if (!interpreter.Charge(1, left.text().size() + right.text().size())) return false;
    if (left.is_markup() || right.is_markup()) {
      *out = Value::Markup(EscapedStr(left) + EscapedStr(right));
      return true;
    }
    *out = Value::String(left.text() + right.text());
    return true;
  }
  if (!interpreter.Charge(1, (left.list().size() + right.list().size()) * sizeof(Value))) return false;
  List items = left.list();
  items.insert(items.end(), right.list().begin(), right.list().end());
  *out = Value::MakeList(std::move(items), left.kind());
  return interpreter.Check(*out);
}

}  // namespace

bool BinaryOperator(Interpreter& interpreter, const std::string& op, const Value& left, const Value& right,
                    Value* out) {
  if (left.is_undefined()) return interpreter.Undefined(left);
  if (op == "%" && left.is_string()) {
    return FormatPercent(interpreter, left.text(), right.is(Kind::kTuple) ? right.list() : List{right}, out);
  }
  if (right.is_undefined()) return interpreter.Undefined(right);
  if (left.is_number() && right.is_number()) return NumberOperator(interpreter, op, left, right, out);
  const auto repeats = [](const Value& value) { return value.is_string() || value.is_sequence(); };
  if (op == "*" && repeats(left) && right.is_integer()) return Repeat(interpreter, left, right.integer(), out);
  if (op == "*" && repeats(right) && left.is_integer()) return Repeat(interpreter, right, left.integer(), out);
  if (op == "+" && repeats(left) && left.kind() == right.kind()) return Join(interpreter, left, right, out);
  return interpreter.Fail("unsupported operands for %s: '%s' and '%s'", op.c_str(), left.TypeName(), right.TypeName());
}

bool FormatPercent(Interpreter& interpreter, const std::string& format, const List& values, Value* out) {
  std::string text;
  size_t used = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      text.push_back(format[i]);
      continue;
    }
    const char conversion = i + 1 < format.size() ? format[++i] : '\0';
    if (conversion == '%') {
      text.push_back('%');
      continue;
    }
    if (used == values.size()) return interpreter.Fail("not enough arguments for a format");
    const Value& value = values[used++];
    if (conversion == 's') {
      if (!interpreter.AppendText(value, &text)) return false;
    } else if (conversion == 'd' && value.is_integer()) {
      text += std::to_string(value.integer());
    } else {
      return interpreter.Fail("the format character '%c' is not supported for '%s'", conversion, value.TypeName());
    }
  }
  if (used != values.size()) return interpreter.Fail("not all arguments of a format are used");
  if (!interpreter.Charge(1, text.size())) return false;
  *out = Value::String(std::move(text));
  return true;
}

bool Contains(Interpreter& interpreter, const Value& container, const Value& item, bool* out) {
  *out = false;
  if (container.is_string()) {
    if (item.is_undefined()) return interpreter.Undefined(item);
    if (!item.is_string()) return interpreter.Fail("'in <string>' requires a string, not '%s'", item.TypeName());
    if (!interpreter.ChargeSearch(container.text(), item.text())) return false;
    *out = container.text().find(item.text()) != std::string::npos;
    return true;
  }
  if (container.is(Kind::kDict)) {
    if (!interpreter.Charge(1 + container.dict().entries.size() / 8)) return false;
    *out = container.dict().Find(item) != nullptr;
    return true;
  }
  List items;
  if (!interpreter.Iterate(container, &items)) return false;
  for (const Value& candidate : items) {
    if (!interpreter.Charge(std::min(candidate.weight(), item.weight()))) return false;
    if (!Equal(candidate, item)) continue;
    *out = true;
    break;
  }
  return true;
}

}  // namespace linnet::jinja
