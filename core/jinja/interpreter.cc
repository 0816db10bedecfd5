#include "core/jinja/interpreter.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace linnet::jinja {

const Value* Arguments::Find(size_t position, std::string_view name) const {
  if (position < values.size()) return &values[position];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Interpreter::Descent::Descent(Interpreter* interpreter)
    : interpreter_(interpreter),
      ok_(++interpreter->depth_ <= kMaxDepth ? interpreter->Charge(1) : interpreter->Fail("it recurses too deeply")) {}

/// A new scope inside of `parent` for as long as the holder lives.
class Interpreter::ScopeHolder {
 public:
  ScopeHolder(Interpreter* interpreter, Scope* parent) : interpreter_(interpreter), before_(interpreter->scope_) {
    scope_.parent = parent;
    scope_.serial = interpreter->next_serial_++;
    interpreter->scope_ = &scope_;
    interpreter->active_scopes_.push_back(&scope_);
  }
  ~ScopeHolder() {
    interpreter_->scope_ = before_;
    interpreter_->active_scopes_.pop_back();
  }

 private:
  Interpreter* interpreter_;
  Scope* before_;
  Scope scope_;
};

Interpreter::Interpreter(const Program& program, int64_t now_unix_seconds, size_t max_output_bytes,
                         Diagnostic* diagnostic)
    : program_(program), now_(now_unix_seconds), max_output_(max_output_bytes), diagnostic_(diagnostic) {}

Interpreter::~Interpreter() {
  for (const Value& value : namespaces_) value.namespace_dict().entries.clear();
}

Status Interpreter::Run(Dict globals, std::string* out) {
  for (const std::string& name : FunctionNames()) root_.variables.emplace_back(name, Value::Function(name));
  for (auto& [key, value] : globals.entries) {
    if (key.is_string()) SetVariable(key.text(), std::move(value));
  }
  Exec(program_.root, out);
  return status_;
}

bool Interpreter::FailWith(StatusCode code, const char* message, const std::string& text) {
  if (status_.ok()) {
    status_ = linnet::Fail(diagnostic_, code, message, "chat template, line %u: %.600s", line_, text.c_str());
  }
  return false;
}

bool Interpreter::Fail(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return FailWith(StatusCode::kInvalidModel, "the chat template fails", text);
}

bool Interpreter::Charge(uint64_t steps, uint64_t bytes) {
  steps_ += steps;
  bytes_ += bytes;
  if (steps_ > kMaxSteps) return Fail("it takes more than %llu steps", static_cast<unsigned long long>(kMaxSteps));
  if (bytes_ > kMaxBytesMade)
    return Fail("it makes more than %llu bytes", static_cast<unsigned long long>(kMaxBytesMade));
  return ok();
}

Value Interpreter::Lookup(const std::string& name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return value;
    }
  }
  return Value::Undefined(Concat({"'", name, "' is undefined"}));
}

bool Interpreter::SetVariable(const std::string& name, Value value) {
  if (!Check(value)) return false;
  for (auto& [key, old] : scope_->variables) {
    if (key == name) {
      old = std::move(value);
      return true;
    }
  }
  scope_->variables.emplace_back(name, std::move(value));
  return true;
}

bool Interpreter::Check(const Value& value) {
  if (value.depth() > kMaxValueDepth) return Fail("a value is nested too deeply");
  if (value.weight() > kMaxValueWeight) return Fail("a value is too big");
  return ok();
}

bool Interpreter::AppendText(const Value& value, std::string* out) {
  if (!Check(value) || !Charge(value.weight(), uint64_t{16} * value.weight())) return false;
  AppendStr(value, out);
  return true;
}

bool Interpreter::Unpack(const std::vector<std::string>& names, const Value& value) {
  if (names.size() == 1) return SetVariable(names[0], value);
  List items;
  if (!Iterate(value, &items)) return false;
  if (items.size() != names.size()) return Fail("%zu values for %zu names", items.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) SetVariable(names[i], items[i]);
  return ok();
}

// Expressions.

bool Interpreter::Eval(int index, Value* out) {
  const Descent descent(this);
  if (!descent.ok()) return false;
  const Node& node = At(index);
  line_ = node.line;
  Value left, right;
  switch (node.kind) {
    case NodeKind::kLiteral:
      *out = node.value;
      return true;
    case NodeKind::kName:
      *out = Lookup(node.text);
      return true;
    case NodeKind::kList:
    case NodeKind::kTuple: {
      List items;
      if (!EvalKids(node, &items)) return false;
      *out = Value::MakeList(std::move(items), node.kind == NodeKind::kList ? Kind::kList : Kind::kTuple);
      return Check(*out);
    }
    case NodeKind::kDict:
      return EvalDict(node, out);
    case NodeKind::kAttribute:
      return Eval(node.kids[0], &left) && Attribute(left, node.text, out);
    case NodeKind::kItem:
      return Eval(node.kids[0], &left) && Eval(node.kids[1], &right) && Item(left, right, out);
    case NodeKind::kSlice:
      return EvalSlice(node, out);
    case NodeKind::kCall:
      return EvalCall(node, out);
    case NodeKind::kFilter:
      return EvalFilter(node, out);
    case NodeKind::kTest:
      return EvalTest(node, out);
    case NodeKind::kNot:
      if (!Eval(node.kids[0], &left)) return false;
      *out = Value::Bool(!left.Truthy());
      return true;
    case NodeKind::kNegate:
    case NodeKind::kPlus:
      return EvalSign(node, out);
    case NodeKind::kAnd:
    case NodeKind::kOr:
      return EvalShortCircuit(node, out);
    case NodeKind::kCompare:
      return EvalCompare(node, out);
    case NodeKind::kBinary:
      return EvalBinary(node, out);
    case NodeKind::kConcat:
      return EvalConcat(node, out);
    case NodeKind::kCondition:
      return EvalCondition(node, out);
    default:
      return Fail("a statement stands for a value");
  }
}

bool Interpreter::EvalKids(const Node& node, List* values) {
  if (!Charge(node.kids.size(), node.kids.size() * sizeof(Value))) return false;
  values->resize(node.kids.size());
  for (size_t i = 0; i < node.kids.size(); ++i) {
    if (!Eval(node.kids[i], &(*values)[i])) return false;
  }
  return true;
}

bool Interpreter::EvalDict(const Node& node, Value* out) {
  Dict dict;
  for (size_t i = 0; i + 1 < node.kids.size(); i += 2) {
    Value key, value;
    if (!Eval(node.kids[i], &key) || !Eval(node.kids[i + 1], &value)) return false;
    if (!Charge(1 + dict.entries.size() / 8, 2 * sizeof(Value))) return false;
    if (!key.is_string() && !key.is_number() && !key.is(Kind::kNone))
      return Fail("a '%s' cannot be a key", key.TypeName());
    dict.Set(key, std::move(value));
  }
  *out = Value::MakeDict(std::move(dict));
  return Check(*out);
}

bool Interpreter::EvalSlice(const Node& node, Value* out) {
  Value object, bounds[3];
  if (!Eval(node.kids[0], &object)) return false;
  for (size_t i = 0; i < 3; ++i) {
    if (node.kids[i + 1] >= 0 && !Eval(node.kids[i + 1], &bounds[i])) return false;
    if (!bounds[i].is(Kind::kNone) && !bounds[i].is_integer()) return Fail("slice indices must be integers");
  }
  if (object.is_undefined()) return Undefined(object);
  if (!object.is_string() && !object.is_sequence()) return Fail("'%s' cannot be sliced", object.TypeName());
  List items;
  if (!Iterate(object, &items)) return false;
  const auto count = static_cast<int64_t>(items.size());
  const int64_t step = bounds[2].is(Kind::kNone) ? 1 : bounds[2].integer();
  if (step == 0) return Fail("slice step cannot be zero");
  // Python's rules: negative bounds count from the end, and all are cut to the range that the direction allows.
  const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? count : count - 1;
  const auto bound = [&](const Value& value, int64_t absent) {
    if (value.is(Kind::kNone)) return absent;
    const int64_t index = value.integer();
    return std::clamp(index < 0 ? (index < -count ? lowest : index + count) : index, lowest, highest);
  };
  const int64_t start = bound(bounds[0], step > 0 ? lowest : highest),
                stop = bound(bounds[1], step > 0 ? highest : lowest);
  List chosen;
  const int64_t stride = std::clamp(step, -count - 1, count + 1);  // so that the index cannot overflow
  for (int64_t i = start; stride > 0 ? i < stop : i > stop; i += stride)
    chosen.push_back(items[static_cast<size_t>(i)]);
  if (!object.is_string()) {
    *out = Value::MakeList(std::move(chosen), object.kind());
    return true;
  }
  std::string text;
  for (const Value& character : chosen) text += character.text();
  *out = Value::String(std::move(text));
  return true;
}

bool Interpreter::EvalArguments(const Node& node, Arguments* arguments) {
  for (size_t i = 1; i < node.kids.size(); ++i) {
    Value value;
    if (!Eval(node.kids[i], &value)) return false;
    const std::string& name = node.names[i - 1];
    if (name.empty()) {
      if (!arguments->named.empty()) return Fail("a positional argument follows a named one");
      arguments->values.push_back(std::move(value));
    } else {
      arguments->named.emplace_back(name, std::move(value));
    }
  }
  return true;
}

bool Interpreter::EvalCall(const Node& node, Value* out) {
  Value callee;
  Arguments arguments;
  if (!Eval(node.kids[0], &callee) || !EvalArguments(node, &arguments)) return false;
  line_ = node.line;
  return Call(callee, std::move(arguments), out);
}

bool Interpreter::Call(const Value& callee, Arguments arguments, Value* out) {
  switch (callee.kind()) {
    case Kind::kFunction:
      return CallFunction(*this, callee.text(), arguments, out);
    case Kind::kMethod:
      return CallMethod(*this, callee.method(), arguments, out);
    case Kind::kMacro:
      return CallMacro(callee.macro(), arguments, out);
    case Kind::kUndefined:
      return Undefined(callee);
    default:
      return Fail("'%s' is not callable", callee.TypeName());
  }
}

bool Interpreter::EvalFilter(const Node& node, Value* out) {
  Arguments arguments;
  Value input = block_text_;
  if (node.kids[0] >= 0 && !Eval(node.kids[0], &input)) return false;
  arguments.values.push_back(std::move(input));
  if (!EvalArguments(node, &arguments)) return false;
  line_ = node.line;
  return CallFilter(*this, node.text, arguments, out);
}

bool Interpreter::EvalTest(const Node& node, Value* out) {
  Arguments arguments;
  arguments.values.emplace_back();
  bool result = false;
  if (!Eval(node.kids[0], &arguments.values[0]) || !EvalArguments(node, &arguments)) return false;
  line_ = node.line;
  if (!CallTest(*this, node.text, arguments, &result)) return false;
  *out = Value::Bool(result);
  return true;
}

bool Interpreter::EvalSign(const Node& node, Value* out) {
  Value value;
  if (!Eval(node.kids[0], &value)) return false;
  if (value.is_undefined()) return Undefined(value);
  if (!value.is_number()) return Fail("bad operand of a sign: '%s'", value.TypeName());
  if (node.kind == NodeKind::kPlus) {
    *out = value.is_integer() ? Value::Int(value.integer()) : value;
    return true;
  }
  return BinaryOperator(*this, "-", Value::Int(0), value, out);
}

bool Interpreter::EvalShortCircuit(const Node& node, Value* out) {
  if (!Eval(node.kids[0], out)) return false;
  const bool decided = node.kind == NodeKind::kAnd ? !out->Truthy() : out->Truthy();
  return decided || Eval(node.kids[1], out);
}

bool Interpreter::EvalCondition(const Node& node, Value* out) {
  Value condition;
  if (!Eval(node.kids[0], &condition)) return false;
  if (condition.Truthy()) return Eval(node.kids[1], out);
  if (node.kids[2] >= 0) return Eval(node.kids[2], out);
  *out = Value::Undefined("the inline if-expression evaluated to false and no else section was defined.");
  return true;
}

bool Interpreter::CompareOne(const std::string& op, const Value& left, const Value& right, bool* out) {
  if (op == "in" || op == "not in") {
    if (!Contains(*this, right, left, out)) return false;
    *out = *out == (op == "in");
    return true;
  }
  if (!Charge(std::min(left.weight(), right.weight()))) return false;
  if (op == "==" || op == "!=") {
    *out = Equal(left, right) == (op == "==");
    return true;
  }
  if (left.is_undefined()) return Undefined(left);
  if (right.is_undefined()) return Undefined(right);
  bool comparable = true;
  const bool less = Less(left, right, &comparable), greater = Less(right, left, &comparable);
  if (!comparable) return Fail("'%s' and '%s' do not compare", left.TypeName(), right.TypeName());
  *out = op == "<"    ? less
         : op == ">"  ? greater
         : op == "<=" ? less || Equal(left, right)
                      : greater || Equal(left, right);
  return true;
}

bool Interpreter::EvalCompare(const Node& node, Value* out) {
  Value left, right;
  if (!Eval(node.kids[0], &left)) return false;
  bool result = true;
  for (size_t i = 0; i < node.names.size() && result; ++i) {
    if (!Eval(node.kids[i + 1], &right) || !CompareOne(node.names[i], left, right, &result)) return false;
    left = right;
  }
  *out = Value::Bool(result);
  return true;
}

bool Interpreter::EvalBinary(const Node& node, Value* out) {
  Value left, right;
  if (!Eval(node.kids[0], &left) || !Eval(node.kids[1], &right)) return false;
  line_ = node.line;
  return BinaryOperator(*this, node.text, left, right, out);
}

bool Interpreter::EvalConcat(const Node& node, Value* out) {
  List values;
  std::string text;
  if (!EvalKids(node, &values)) return false;
  for (const Value& value : values) {
    if (!AppendText(value, &text)) return false;
  }
  *out = Value::String(std::move(text));
  return true;
}

bool Interpreter::Attribute(const Value& object, const std::string& name, Value* out) {
  if (object.is_undefined()) return Undefined(object);
  if (HasMethod(object, name)) {
    *out = Value::Of(std::make_shared<Method>(Method{object, name}));
    return true;
  }
  if (object.is(Kind::kDict) || object.is(Kind::kNamespace)) {
    if (!Charge(1 + object.dict().entries.size() / 8)) return false;
    if (const Value* found = object.dict().Find(name)) {
      *out = *found;
      return true;
    }
  }
  if (object.is(Kind::kLoop)) {
    const Loop& loop = object.loop();
    const auto number = [&](size_t value) { return Value::Int(static_cast<int64_t>(value)); };
    const std::pair<const char*, Value> members[] = {
        {"index", number(loop.index + 1)},
        {"index0", number(loop.index)},
        {"revindex", number(loop.length - loop.index)},
        {"revindex0", number(loop.length - loop.index - 1)},
        {"first", Value::Bool(loop.index == 0)},
        {"last", Value::Bool(loop.index + 1 == loop.length)},
        {"length", number(loop.length)},
        {"previtem", loop.previous},
        {"nextitem", loop.next},
        {"depth", Value::Int(1)},  // counts recursive loops, which are not supported
        {"depth0", Value::Int(0)},
    };
    for (const auto& [key, value] : members) {
      if (name != key) continue;
      *out = value;
      return true;
    }
  }
  *out = Value::Undefined(Concat({"'", object.TypeName(), "' has no attribute '", name, "'"}));
  return true;
}

bool Interpreter::Item(const Value& object, const Value& key, Value* out) {
  if (object.is_undefined()) return Undefined(object);
  if (object.is(Kind::kDict)) {
    if (!Charge(1 + object.dict().entries.size() / 8)) return false;
    if (const Value* found = object.dict().Find(key)) {
      *out = *found;
      return true;
    }
  }
  if (key.is_integer() && (object.is_sequence() || object.is_string())) {
    const int64_t count =
        object.is_string() ? CodePointCount(object.text()) : static_cast<int64_t>(object.list().size());
    const int64_t index = key.integer() < 0 ? key.integer() + count : key.integer();
    if (object.is_string() && !Charge(1 + object.text().size() / 64)) return false;
    if (index >= 0 && index < count) {
      if (object.is_sequence()) {
        *out = Value(object.list()[static_cast<size_t>(index)]);
      } else {
        const size_t begin = OffsetOfCodePoint(object.text(), index);
        *out = Value::String(
            object.text().substr(begin, OffsetOfCodePoint(std::string_view(object.text()).substr(begin), 1)));
      }
      return true;
    }
  }
  if (key.is_string()) return Attribute(object, key.text(), out);
  const std::string name = key.is_integer() ? std::to_string(key.integer()) : key.TypeName();
  *out = Value::Undefined(Concat({"'", object.TypeName(), "' has no element ", name}));
  return true;
}

bool Interpreter::Iterate(const Value& value, List* items) {
  items->clear();
  switch (value.kind()) {
    case Kind::kUndefined:
      return true;
    case Kind::kList:
    case Kind::kTuple:
      if (!Charge(value.list().size() / 8, value.list().size() * sizeof(Value))) return false;
      *items = value.list();
      return true;
    case Kind::kDict:
      if (!Charge(value.dict().entries.size() / 8, value.dict().entries.size() * sizeof(Value))) return false;
      for (const auto& [key, unused] : value.dict().entries) items->push_back(key);
      return true;
    case Kind::kString: {
      std::string_view text = value.text();
      if (!Charge(text.size() / 8, text.size() * 2 * sizeof(Value))) return false;
      while (!text.empty()) {
        const size_t length = OffsetOfCodePoint(text, 1);
        items->push_back(Value::String(std::string(text.substr(0, length))));
        text.remove_prefix(length);
      }
      return true;
    }
    default:
      return Fail("'%s' is not iterable", value.TypeName());
  }
}

// Statements.

bool Interpreter::Append(std::string_view text, std::string* out) {
  if (out->size() + text.size() > max_output_) return Fail("its text is longer than %zu bytes", max_output_);
  if (!Charge(1, text.size())) return false;
  out->append(text);
  return true;
}

Interpreter::Flow Interpreter::Exec(int index, std::string* out) {
  const Descent descent(this);
  if (!descent.ok()) return Flow::kNormal;
  const Node& node = At(index);
  line_ = node.line;
  switch (node.kind) {
    case NodeKind::kBlock:
      for (const int kid : node.kids) {
        const Flow flow = Exec(kid, out);
        if (flow != Flow::kNormal || !ok()) return flow;
      }
      break;
    case NodeKind::kText:
      Append(node.text, out);
      break;
    case NodeKind::kOutput:
      ExecOutput(node, out);
      break;
    case NodeKind::kIf:
      return ExecIf(node, out);
    case NodeKind::kFor:
      return ExecFor(node, out);
    case NodeKind::kWith:
      return ExecWith(node, out);
    case NodeKind::kSet:
      ExecSet(node);
      break;
    case NodeKind::kSetBlock:
      ExecSetBlock(node);
      break;
    case NodeKind::kMacro:
      SetVariable(node.text, MakeMacro(index));
      break;
    case NodeKind::kCallBlock:
      ExecCallBlock(node, out);
      break;
    case NodeKind::kFilterBlock:
      ExecFilterBlock(node, out);
      break;
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      Fail("an expression stands for a statement");
  }
  return Flow::kNormal;
}

void Interpreter::ExecOutput(const Node& node, std::string* out) {
  Value value;
  if (!Eval(node.kids[0], &value)) return;
  if (value.is_string()) {
    Append(value.text(), out);
    return;
  }
  std::string text;
  if (AppendText(value, &text)) Append(text, out);
}

Interpreter::Flow Interpreter::ExecIf(const Node& node, std::string* out) {
  size_t i = 0;
  for (; i + 1 < node.kids.size(); i += 2) {
    Value condition;
    if (!Eval(node.kids[i], &condition)) return Flow::kNormal;
    if (condition.Truthy()) return Exec(node.kids[i + 1], out);
  }
  return i < node.kids.size() ? Exec(node.kids[i], out) : Flow::kNormal;
}

bool Interpreter::FilterItems(const Node& node, List* items) {
  List kept;
  for (const Value& item : *items) {
    const ScopeHolder scope(this, scope_);
    Value keep;
    if (!Unpack(node.names, item) || !Eval(node.kids[1], &keep)) return false;
    if (keep.Truthy()) kept.push_back(item);
  }
  *items = std::move(kept);
  return true;
}

Interpreter::Flow Interpreter::ExecFor(const Node& node, std::string* out) {
  Value iterable;
  List items;
  if (!Eval(node.kids[0], &iterable) || !Iterate(iterable, &items)) return Flow::kNormal;
  if (node.kids[1] >= 0 && !FilterItems(node, &items)) return Flow::kNormal;
  if (items.empty()) return node.kids[3] >= 0 ? Exec(node.kids[3], out) : Flow::kNormal;
  const auto loop = std::make_shared<Loop>();
  loop->length = items.size();
  for (size_t i = 0; i < items.size() && ok(); ++i) {
    const ScopeHolder scope(this, scope_);
    loop->index = i;
    loop->previous = i > 0 ? items[i - 1] : Value::Undefined("there is no previous item");
    loop->next = i + 1 < items.size() ? items[i + 1] : Value::Undefined("there is no next item");
    SetVariable("loop", Value::Of(loop));
    if (!Charge(1) || !Unpack(node.names, items[i])) break;
    if (Exec(node.kids[2], out) == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecWith(const Node& node, std::string* out) {
  List values;
  for (size_t i = 0; i < node.names.size(); ++i) {
    if (!Eval(node.kids[i], &values.emplace_back())) return Flow::kNormal;
  }
  const ScopeHolder scope(this, scope_);
  for (size_t i = 0; i < values.size(); ++i) SetVariable(node.names[i], values[i]);
  return Exec(node.kids.back(), out);
}

void Interpreter::ExecSet(const Node& node) {
  Value value;
  if (!Eval(node.kids[0], &value)) return;
  if (node.text.empty()) {
    Unpack(node.names, value);
    return;
  }
  const Value space = Lookup(node.text);
  if (!space.is(Kind::kNamespace)) {
    Fail("cannot assign attribute on non-namespace object '%.100s'", node.text.c_str());
    return;
  }
  if (Check(value) && Charge(1 + space.dict().entries.size() / 8, 2 * sizeof(Value))) {
    space.namespace_dict().Set(Value::String(node.names[0]), std::move(value));
  }
}

void Interpreter::ExecSetBlock(const Node& node) {
  std::string text;
  {
    const ScopeHolder scope(this, scope_);
    Exec(node.kids[0], &text);
  }
  Value value = Value::String(std::move(text));
  if (node.kids[1] >= 0 && ok()) {
    block_text_ = value;
    Eval(node.kids[1], &value);
  }
  if (ok()) SetVariable(node.names[0], std::move(value));
}

void Interpreter::ExecFilterBlock(const Node& node, std::string* out) {
  std::string text;
  {
    const ScopeHolder scope(this, scope_);
    Exec(node.kids[1], &text);
  }
  if (!ok()) return;
  block_text_ = Value::String(std::move(text));
  Value value;
  if (!Eval(node.kids[0], &value)) return;
  text.clear();
  if (AppendText(value, &text)) Append(text, out);
}

Value Interpreter::MakeMacro(int index) {
  const auto macro = std::make_shared<Macro>();
  macro->node = index;
  macro->scope = scope_;
  macro->scope_serial = scope_->serial;
  return Value::Of(macro);
}

void Interpreter::ExecCallBlock(const Node& node, std::string* out) {
  const Node& call = At(node.kids[0]);
  Value callee, result;
  Arguments arguments;
  if (!Eval(call.kids[0], &callee) || !EvalArguments(call, &arguments)) return;
  arguments.named.emplace_back("caller", MakeMacro(node.kids[1]));
  if (!Call(callee, std::move(arguments), &result)) return;
  std::string text;
  if (AppendText(result, &text)) Append(text, out);
}

bool Interpreter::BindParameters(const Node& node, const Arguments& arguments) {
  if (arguments.values.size() > node.names.size()) {
    return Fail("macro '%.100s' takes not more than %zu argument(s)", node.text.c_str(), node.names.size());
  }
  for (const auto& [name, value] : arguments.named) {
    const bool known = std::find(node.names.begin(), node.names.end(), name) != node.names.end();
    if (!known && name != "caller")
      return Fail("macro '%.100s' takes no argument '%.100s'", node.text.c_str(), name.c_str());
    if (!known) SetVariable(name, value);
  }
  for (size_t i = 0; i < node.names.size(); ++i) {
    const Value* given = arguments.Find(i, node.names[i]);
    Value value = Value::Undefined(Concat({"parameter '", node.names[i], "' was not provided"}));
    if (given != nullptr) {
      value = *given;
    } else if (node.kids[i + 1] >= 0 && !Eval(node.kids[i + 1], &value)) {
      return false;
    }
    if (!SetVariable(node.names[i], std::move(value))) return false;
  }
  return ok();
}

bool Interpreter::CallMacro(const Macro& macro, const Arguments& arguments, Value* out) {
  // A macro that outlives the scope that it was defined in sees the template's own variables only.
  Scope* scope = &root_;
  for (Scope* active : active_scopes_) {
    if (active == macro.scope && active->serial == macro.scope_serial) scope = active;
  }
  const Node& node = At(macro.node);
  std::string text;
  {
    const ScopeHolder holder(this, scope);
    if (!BindParameters(node, arguments)) return false;
    Exec(node.kids[0], &text);
  }
  *out = Value::String(std::move(text));
  return ok();
}

}  // namespace linnet::jinja
