// Runs a parsed template. Internal to core.
#ifndef LINNET_CORE_JINJA_INTERPRETER_H_
#define LINNET_CORE_JINJA_INTERPRETER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "core/jinja/program.h"
#include "core/jinja/text.h"
#include "core/jinja/value.h"

namespace linnet::jinja {

// Limits on one rendering; each ends it with a typed error. A long conversation takes thousands of steps and a few
// megabytes.
inline constexpr uint64_t kMaxSteps = 4'000'000;
inline constexpr uint64_t kMaxBytesMade = uint64_t{1} << 28;  // of all texts and lists together
inline constexpr int kMaxDepth = 600;                         // of the interpreter's recursion, below 1 MiB of stack
inline constexpr uint32_t kMaxValueDepth = 200;               // lists in lists
inline constexpr uint32_t kMaxValueWeight = 1u << 24;         // see Value::weight
inline constexpr int64_t kMaxRange = 100'000;                 // Jinja2's own limit on range() in its sandbox

struct Scope {
  Scope* parent = nullptr;
  uint64_t serial = 0;
  std::vector<std::pair<std::string, Value>> variables;
};

/// Arguments of a call; for filters, tests and methods the first value is what they are applied to.
struct Arguments {
  std::vector<Value> values;  // by position
  std::vector<std::pair<std::string, Value>> named;

  /// The argument at `position` or called `name`; null where there is none.
  const Value* Find(size_t position, std::string_view name) const;
  const Value& input() const { return values.front(); }
};

/// One rendering. Functions that can fail return false, or leave ok() false, once an error is recorded.
class Interpreter {
 public:
  Interpreter(const Program& program, int64_t now_unix_seconds, size_t max_output_bytes, Diagnostic* diagnostic);
  ~Interpreter();

  Status Run(Dict globals, std::string* out);

  // For the built-in functions, filters, tests and methods.
  bool ok() const { return status_.ok(); }
  /// Counts one level of recursion and one step while it lives.
  class Descent {
   public:
    explicit Descent(Interpreter* interpreter);
    ~Descent() { --interpreter_->depth_; }
    bool ok() const { return ok_; }

   private:
    Interpreter* interpreter_;
    bool ok_;
  };
  /// Records the first error, with the line of the node that is being run. Always false.
  bool Fail(const char* format, ...) __attribute__((format(printf, 2, 3)));
  bool FailWith(StatusCode code, const char* message, const std::string& text);
  /// Uses up steps and bytes of the limits.
  bool Charge(uint64_t steps, uint64_t bytes = 0);
  /// Charges a search of `pattern` in `text`, which at worst compares the pattern at every byte.
  bool ChargeSearch(std::string_view text, std::string_view pattern) {
    return Charge(1 + text.size() / 64 + (uint64_t{text.size()} * pattern.size()) / 4096);
  }
  /// False where `value` is nested too deeply or too big to be kept.
  bool Check(const Value& value);
  /// Appends str(value), charged by its weight.
  bool AppendText(const Value& value, std::string* out);
  /// Remembers a namespace that was made.
  void Adopt(const Value& name_space) { namespaces_.push_back(name_space); }
  bool Undefined(const Value& value) { return Fail("%s", value.text().c_str()); }
  int64_t now_unix_seconds() const { return now_; }

  /// Jinja's obj.name and obj[key]: an undefined value where there is none; false only where `object` is undefined.
  bool Attribute(const Value& object, const std::string& name, Value* out);
  bool Item(const Value& object, const Value& key, Value* out);
  /// The items of anything that a for loop accepts.
  bool Iterate(const Value& value, List* items);
  bool Call(const Value& callee, Arguments arguments, Value* out);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  class ScopeHolder;

  const Node& At(int index) const { return program_.nodes[static_cast<size_t>(index)]; }
  Value Lookup(const std::string& name) const;
  bool SetVariable(const std::string& name, Value value);
  bool Unpack(const std::vector<std::string>& names, const Value& value);

  bool Eval(int index, Value* out);
  bool EvalKids(const Node& node, List* values);
  bool EvalDict(const Node& node, Value* out);
  bool EvalSlice(const Node& node, Value* out);
  bool EvalArguments(const Node& node, Arguments* arguments);
  bool EvalCall(const Node& node, Value* out);
  bool EvalFilter(const Node& node, Value* out);
  bool EvalTest(const Node& node, Value* out);
  bool EvalCompare(const Node& node, Value* out);
  bool EvalSign(const Node& node, Value* out);
  bool EvalShortCircuit(const Node& node, Value* out);
  bool EvalCondition(const Node& node, Value* out);
  bool EvalBinary(const Node& node, Value* out);
  bool EvalConcat(const Node& node, Value* out);
  bool CompareOne(const std::string& op, const Value& left, const Value& right, bool* out);

  Flow Exec(int index, std::string* out);
  Flow ExecIf(const Node& node, std::string* out);
  Flow ExecFor(const Node& node, std::string* out);
  Flow ExecWith(const Node& node, std::string* out);
  bool FilterItems(const Node& node, List* items);
  void ExecOutput(const Node& node, std::string* out);
  void ExecSet(const Node& node);
  void ExecSetBlock(const Node& node);
  void ExecCallBlock(const Node& node, std::string* out);
  void ExecFilterBlock(const Node& node, std::string* out);
  Value MakeMacro(int index);
  bool CallMacro(const Macro& macro, const Arguments& arguments, Value* out);
  bool BindParameters(const Node& node, const Arguments& arguments);
  bool Append(std::string_view text, std::string* out);

  const Program& program_;
  int64_t now_;
  size_t max_output_;
  Diagnostic* diagnostic_;
  Status status_;
  Scope root_;
  Scope* scope_ = &root_;
  uint64_t next_serial_ = 1;
  uint64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
  uint32_t line_ = 0;
  Value block_text_;               // the input of a filter block's first filter
  std::vector<Value> namespaces_;  // emptied at the end, since they may contain themselves
  std::vector<Scope*> active_scopes_;
};

// Built-ins; each reports an unknown name as an error.
bool CallFunction(Interpreter& interpreter, const std::string& name, const Arguments& arguments, Value* out);
bool CallFilter(Interpreter& interpreter, const std::string& name, const Arguments& arguments, Value* out);
bool CallTest(Interpreter& interpreter, const std::string& name, const Arguments& arguments, bool* out);
/// A method of a string, list, dict or loop; `arguments` start with the first argument, not with the object.
bool CallMethod(Interpreter& interpreter, const Method& method, const Arguments& arguments, Value* out);
bool HasMethod(const Value& object, std::string_view name);
/// The names of the functions that every template sees.
std::vector<std::string> FunctionNames();

/// Python's binary operators and "text % values".
bool BinaryOperator(Interpreter& interpreter, const std::string& op, const Value& left, const Value& right, Value* out);
bool FormatPercent(Interpreter& interpreter, const std::string& format, const List& values, Value* out);
/// Python's "in".
bool Contains(Interpreter& interpreter, const Value& container, const Value& item, bool* out);

}  // namespace linnet::jinja

#endif  // LINNET_CORE_JINJA_INTERPRETER_H_
