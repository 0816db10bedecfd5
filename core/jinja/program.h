// A parsed template. Internal to core.
#ifndef LINNET_CORE_JINJA_PROGRAM_H_
#define LINNET_CORE_JINJA_PROGRAM_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "core/jinja/value.h"

namespace linnet::jinja {

/// What a node is, and what its fields hold; -1 among the kids means "absent".
enum class NodeKind : uint8_t {
  // Expressions.
  kLiteral,    // value
  kName,       // text
  kList,       // kids: items
  kTuple,      // kids: items
  kDict,       // kids: key, value, key, value, ...
  kAttribute,  // kids: object; text: name
  kItem,       // kids: object, index
  kSlice,      // kids: object, start, stop, step
  kCall,       // kids: callee, arguments; names: of the arguments, "" for positional ones
  kFilter,     // kids: input (absent: the text of a filter block), arguments; names as for kCall; text: the filter
  kTest,       // kids: input, arguments; names as for kCall; text: the test
  kNot,        // kids: operand
  kNegate,     // kids: operand
  kPlus,       // kids: operand
  kAnd,        // kids: left, right
  kOr,         // kids: left, right
  kCompare,    // kids: operands; names: the operators between them
  kBinary,     // kids: left, right; text: the operator
  kConcat,     // kids: operands
  kCondition,  // kids: condition, then, else
  // Statements.
  kBlock,        // kids: statements
  kText,         // text
  kOutput,       // kids: expression
  kIf,           // kids: condition, body, condition, body, ..., and the else body where their number is odd
  kFor,          // kids: iterable, filter, body, else body; names: targets
  kSet,          // kids: expression; names: targets, or text: a namespace and names: its attribute
  kSetBlock,     // kids: body, filters; names: target
  kMacro,        // kids: body, defaults; names: parameters; text: name
  kCallBlock,    // kids: call, the macro that caller() runs
  kFilterBlock,  // kids: filters, body
  kWith,         // kids: values, body; names: targets
  kBreak,
  kContinue,
};

struct Node {
  NodeKind kind = NodeKind::kLiteral;
  uint32_t line = 0;
  uint32_t depth = 1;  // of the tree below it: bounds the recursion of whoever walks it
  std::string text;
  Value value;
  std::vector<int> kids;
  std::vector<std::string> names;
};

/// Nodes refer to each other by index, so that destroying a tree does not recurse.
struct Program {
  std::vector<Node> nodes;
  int root = -1;
};

/// Limits on a template: far above what published ones have (the longest has 20,000 bytes and 60 levels).
inline constexpr uint32_t kMaxNodeDepth = 200;
inline constexpr size_t kMaxNodes = 200'000;

/// Parses a template, valid UTF-8. Errors: kInvalidModel (a syntax error), kUnsupported (a statement that chat
/// templates do not have, such as include), both with the line.
Status ParseTemplate(std::string_view source, Program* program, Diagnostic* diagnostic);

}  // namespace linnet::jinja

#endif  // LINNET_CORE_JINJA_PROGRAM_H_
