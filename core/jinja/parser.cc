#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <utility>

#include "core/base/parse_double.h"
#include "core/jinja/lexer.h"
#include "core/jinja/program.h"

namespace linnet::jinja {
namespace {

// Levels of parentheses and blocks: every level costs a dozen stack frames of the parser.
constexpr int kMaxNesting = 50;

/// Recursive descent over the token list. Functions return the index of a node, or -1 once an error was recorded.
class Parser {
 public:
  Parser(std::vector<Token> tokens, Program* program, Diagnostic* diagnostic)
      : tokens_(std::move(tokens)), program_(program), diagnostic_(diagnostic) {}

  Status Run() {
    program_->root = Block({});
    return status_;
  }

 private:
  // Tokens.
  const Token& Now() const { return tokens_[at_]; }
  const Token& Next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool IsOperator(std::string_view text) const { return Now().kind == TokenKind::kOperator && Now().text == text; }
  bool IsName(std::string_view text) const { return Now().kind == TokenKind::kName && Now().text == text; }
  void Step() { at_ = std::min(at_ + 1, tokens_.size() - 1); }
  bool TakeOperator(std::string_view text) {
    if (!IsOperator(text)) return false;
    Step();
    return true;
  }
  bool TakeName(std::string_view text) {
    if (!IsName(text)) return false;
    Step();
    return true;
  }

  // Errors.
  bool failed() const { return !status_.ok(); }
  int Refuse(const char* expected) {
    if (failed()) return -1;
    const char* found = Now().kind == TokenKind::kEnd           ? "the end"
                        : Now().kind == TokenKind::kBlockEnd    ? "%}"
                        : Now().kind == TokenKind::kVariableEnd ? "}}"
                                                                : Now().text.c_str();
    status_ = Fail(diagnostic_, StatusCode::kInvalidModel, "the chat template does not parse",
                   "chat template, line %u: expected %s, found \"%.60s\"", Now().line, expected, found);
    return -1;
  }
  int Unsupported(const std::string& what) {
    if (failed()) return -1;
    status_ = Fail(diagnostic_, StatusCode::kUnsupported, "the chat template uses an unsupported statement",
                   "chat template, line %u: \"%.60s\" is not supported", Now().line, what.c_str());
    return -1;
  }
  bool ExpectOperator(const char* text) { return TakeOperator(text) || Refuse(text) >= 0; }
  bool ExpectBlockEnd() {
    if (Now().kind != TokenKind::kBlockEnd) return Refuse("%}") >= 0;
    Step();
    return true;
  }
  std::string ExpectName() {
    std::string name = Now().text;
    if (Now().kind != TokenKind::kName) {
      Refuse("a name");
      return {};
    }
    Step();
    return name;
  }

  // Nodes.
  int Add(Node node, uint32_t line) {
    if (failed()) return -1;
    for (const int kid : node.kids) {
      if (kid >= 0) node.depth = std::max(node.depth, program_->nodes[static_cast<size_t>(kid)].depth + 1);
    }
    if (node.depth > kMaxNodeDepth || program_->nodes.size() >= kMaxNodes)
      return Refuse("a smaller or less nested template");
    node.line = line;
    program_->nodes.push_back(std::move(node));
    return static_cast<int>(program_->nodes.size() - 1);
  }
  int Add(NodeKind kind, std::vector<int> kids, uint32_t line, std::string text = {},
          std::vector<std::string> names = {}) {
    Node node;
    node.kind = kind;
    node.kids = std::move(kids);
    node.text = std::move(text);
    node.names = std::move(names);
    return Add(std::move(node), line);
  }
  int AddLiteral(Value value, uint32_t line) {
    Node node;
    node.value = std::move(value);
    return Add(std::move(node), line);
  }
  const Node& At(int index) const { return program_->nodes[static_cast<size_t>(index)]; }

  /// Counts levels; `ok` is false where there are too many.
  struct Nesting {
    explicit Nesting(Parser* owner) : parser(owner), ok(++owner->nesting_ <= kMaxNesting) {
      if (!ok) parser->Refuse("less nesting");
    }
    ~Nesting() { --parser->nesting_; }
    Parser* parser;
    bool ok;
  };

  // Statements. Blocks end in front of a tag that one of `ends` names; without `ends`, at the end of the template.
  int Block(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(this);
    const uint32_t line = Now().line;
    std::vector<int> kids;
    while (nesting.ok && !failed()) {
      const Token& token = Now();
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() != 0) Refuse(std::string(*(ends.end() - 1)).c_str());
        break;
      }
      if (token.kind == TokenKind::kText) {
        kids.push_back(Add(NodeKind::kText, {}, token.line, token.text));
        Step();
      } else if (token.kind == TokenKind::kVariableBegin) {
        Step();
        const int expression = Tuple();
        if (Now().kind != TokenKind::kVariableEnd) Refuse("}}");
        kids.push_back(Add(NodeKind::kOutput, {expression}, token.line));
        Step();
      } else {  // {%
        if (std::find(ends.begin(), ends.end(), Next().text) != ends.end() && Next().kind == TokenKind::kName) break;
        Step();
        kids.push_back(Statement());
      }
    }
    return Add(NodeKind::kBlock, std::move(kids), line);
  }

  /// Steps over "{% NAME" and returns the name; the block in front of it has ended there.
  std::string EndTag() {
    Step();
    return ExpectName();
  }
  /// "{% endX %}"
  bool ExpectEndTag() { return !failed() && !EndTag().empty() && ExpectBlockEnd(); }

  int Statement() {
    const uint32_t line = Now().line;
    const std::string name = ExpectName();
    if (name == "if") return If(line);
    if (name == "for") return For(line);
    if (name == "set") return Set(line);
    if (name == "macro") return Macro(line);
    if (name == "call") return CallBlock(line);
    if (name == "filter") return FilterBlock(line);
    if (name == "with") return With(line);
    if (name == "generation") {  // marks the assistant's text for training; means nothing here
      if (!ExpectBlockEnd()) return -1;
      const int body = Block({"endgeneration"});
      return ExpectEndTag() ? body : -1;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return Refuse("a loop around break and continue");
      if (!ExpectBlockEnd()) return -1;
      return Add(name == "break" ? NodeKind::kBreak : NodeKind::kContinue, {}, line);
    }
    return Unsupported(name);
  }

  int If(uint32_t line) {
    std::vector<int> kids;
    std::string tag = "elif";
    while (tag == "elif" && !failed()) {
      kids.push_back(Tuple());
      if (!ExpectBlockEnd()) return -1;
      kids.push_back(Block({"elif", "else", "endif"}));
      if (failed()) return -1;
      tag = EndTag();
    }
    if (tag == "else") {
      if (!ExpectBlockEnd()) return -1;
      kids.push_back(Block({"endif"}));
      if (failed()) return -1;
      EndTag();
    }
    if (!ExpectBlockEnd()) return -1;
    return Add(NodeKind::kIf, std::move(kids), line);
  }

  /// "a, b" or "(a, b)"
  std::vector<std::string> Targets() {
    std::vector<std::string> names;
    const bool parentheses = TakeOperator("(");
    do {
      if (!names.empty() && Now().kind != TokenKind::kName) break;  // a trailing comma
      names.push_back(ExpectName());
    } while (!failed() && TakeOperator(","));
    if (parentheses) ExpectOperator(")");
    return names;
  }

  int For(uint32_t line) {
    std::vector<std::string> targets = Targets();
    if (!TakeName("in")) return Refuse("in");
    const int iterable = Tuple(/*with_condition=*/false);
    const int filter = TakeName("if") ? Expression() : -1;
    if (IsName("recursive")) return Unsupported("recursive");
    if (!ExpectBlockEnd()) return -1;
    ++loops_;
    const int body = Block({"else", "endfor"});
    --loops_;
    if (failed()) return -1;
    int other = -1;
    if (EndTag() == "else") {
      if (!ExpectBlockEnd()) return -1;
      other = Block({"endfor"});
      if (failed()) return -1;
      EndTag();
    }
    if (!ExpectBlockEnd()) return -1;
    return Add(NodeKind::kFor, {iterable, filter, body, other}, line, {}, std::move(targets));
  }

  int Set(uint32_t line) {
    if (Now().kind == TokenKind::kName && Next().kind == TokenKind::kOperator && Next().text == ".") {
      const std::string space = ExpectName();
      Step();
      std::vector<std::string> names{ExpectName()};
      if (!ExpectOperator("=")) return -1;
      const int value = Tuple();
      if (!ExpectBlockEnd()) return -1;
      return Add(NodeKind::kSet, {value}, line, space, std::move(names));
    }
    std::vector<std::string> targets = Targets();
    if (TakeOperator("=")) {
      const int value = Tuple();
      if (!ExpectBlockEnd()) return -1;
      return Add(NodeKind::kSet, {value}, line, {}, std::move(targets));
    }
    int filters = -1;
    while (!failed() && IsOperator("|")) filters = Filter(filters);
    if (targets.size() != 1 || !ExpectBlockEnd()) return Refuse("one name");
    const int body = Block({"endset"});
    if (!ExpectEndTag()) return -1;
    return Add(NodeKind::kSetBlock, {body, filters}, line, {}, std::move(targets));
  }

  /// "(a, b=default)"; appends the defaults (or -1) to `kids`.
  std::vector<std::string> Parameters(std::vector<int>* kids) {
    std::vector<std::string> names;
    if (!ExpectOperator("(")) return names;
    while (!failed() && !TakeOperator(")")) {
      if (!names.empty() && !ExpectOperator(",")) break;
      if (TakeOperator(")")) break;
      names.push_back(ExpectName());
      kids->push_back(TakeOperator("=") ? Expression() : -1);
    }
    return names;
  }

  /// The body of a macro; loops outside of it are not its own.
  int MacroBody(std::initializer_list<std::string_view> ends) {
    const int loops = std::exchange(loops_, 0);
    const int body = Block(ends);
    loops_ = loops;
    return body;
  }

  int Macro(uint32_t line) {
    std::string name = ExpectName();
    std::vector<int> kids{-1};
    std::vector<std::string> names = Parameters(&kids);
    if (failed() || !ExpectBlockEnd()) return -1;
    kids[0] = MacroBody({"endmacro"});
    if (!ExpectEndTag()) return -1;
    return Add(NodeKind::kMacro, std::move(kids), line, std::move(name), std::move(names));
  }

  int CallBlock(uint32_t line) {
    std::vector<int> kids{-1};
    std::vector<std::string> names;
    if (IsOperator("(")) names = Parameters(&kids);
    const int call = Expression();
    if (failed()) return -1;
    if (At(call).kind != NodeKind::kCall) return Refuse("a call");
    if (!ExpectBlockEnd()) return -1;
    kids[0] = MacroBody({"endcall"});
    if (!ExpectEndTag()) return -1;
    const int caller = Add(NodeKind::kMacro, std::move(kids), line, "caller", std::move(names));
    return Add(NodeKind::kCallBlock, {call, caller}, line);
  }

  int FilterBlock(uint32_t line) {
    int filters = FilterName(-1);
    while (!failed() && IsOperator("|")) filters = Filter(filters);
    if (!ExpectBlockEnd()) return -1;
    const int body = Block({"endfilter"});
    if (!ExpectEndTag()) return -1;
    return Add(NodeKind::kFilterBlock, {filters, body}, line);
  }

  int With(uint32_t line) {
    std::vector<int> kids;
    std::vector<std::string> names;
    while (!failed() && Now().kind != TokenKind::kBlockEnd) {
      if (!names.empty() && !ExpectOperator(",")) return -1;
      names.push_back(ExpectName());
      if (!ExpectOperator("=")) return -1;
      kids.push_back(Expression());
    }
    if (!ExpectBlockEnd()) return -1;
    kids.push_back(Block({"endwith"}));
    if (!ExpectEndTag()) return -1;
    return Add(NodeKind::kWith, std::move(kids), line, {}, std::move(names));
  }

  // Expressions, from the weakest binding to the strongest.

  /// An expression, or several with commas between them: a tuple.
  int Tuple(bool with_condition = true) {
    const uint32_t line = Now().line;
    const auto one = [&] { return with_condition ? Expression() : Or(); };
    const int first = one();
    if (failed() || !IsOperator(",")) return first;
    std::vector<int> kids{first};
    while (!failed() && TakeOperator(",")) {
      if (Now().kind == TokenKind::kBlockEnd || Now().kind == TokenKind::kVariableEnd || IsOperator(")")) break;
      kids.push_back(one());
    }
    return Add(NodeKind::kTuple, std::move(kids), line);
  }

  int Expression() {
    const Nesting nesting(this);
    if (!nesting.ok) return -1;
    const uint32_t line = Now().line;
    int value = Or();
    while (!failed() && TakeName("if")) {
      const int condition = Or();
      const int other = TakeName("else") ? Expression() : -1;
      value = Add(NodeKind::kCondition, {condition, value, other}, line);
    }
    return value;
  }

  int Or() {
    const uint32_t line = Now().line;
    int left = And();
    while (!failed() && TakeName("or")) {
      const int right = And();
      left = Add(NodeKind::kOr, {left, right}, line);
    }
    return left;
  }

  int And() {
    const uint32_t line = Now().line;
    int left = Not();
    while (!failed() && TakeName("and")) {
      const int right = Not();
      left = Add(NodeKind::kAnd, {left, right}, line);
    }
    return left;
  }

  int Not() {
    const uint32_t line = Now().line;
    int count = 0;
    while (TakeName("not")) ++count;
    int operand = Compare();
    for (int i = 0; i < count && !failed(); ++i) operand = Add(NodeKind::kNot, {operand}, line);
    return operand;
  }

  std::string ComparisonOperator() {
    for (const char* op : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (TakeOperator(op)) return op;
    }
    if (TakeName("in")) return "in";
    if (IsName("not") && Next().kind == TokenKind::kName && Next().text == "in") {
      Step();
      Step();
      return "not in";
    }
    return {};
  }

  int Compare() {
    const uint32_t line = Now().line;
    std::vector<int> kids{Sum()};
    std::vector<std::string> names;
    for (std::string op = ComparisonOperator(); !op.empty() && !failed(); op = ComparisonOperator()) {
      names.push_back(op);
      kids.push_back(Sum());
    }
    if (names.empty()) return kids[0];
    return Add(NodeKind::kCompare, std::move(kids), line, {}, std::move(names));
  }

  /// Left-associative operators of one level.
  template <typename Operand>
  int Binary(std::initializer_list<const char*> operators, const Operand& operand) {
    const uint32_t line = Now().line;
    int left = operand();
    for (bool found = true; found && !failed();) {
      found = false;
      for (const char* op : operators) {
        if (!TakeOperator(op)) continue;
        const int right = operand();
        left = Add(NodeKind::kBinary, {left, right}, line, op);
        found = true;
        break;
      }
    }
    return left;
  }

  int Sum() {
    return Binary({"+", "-"}, [this] { return Concat(); });
  }
  int Concat() {
    const uint32_t line = Now().line;
    std::vector<int> kids{Product()};
    while (!failed() && TakeOperator("~")) kids.push_back(Product());
    return kids.size() == 1 ? kids[0] : Add(NodeKind::kConcat, std::move(kids), line);
  }
  int Product() {
    return Binary({"*", "//", "/", "%"}, [this] { return Power(); });
  }
  int Power() {
    return Binary({"**"}, [this] { return Unary(/*with_filters=*/true); });
  }

  int Unary(bool with_filters) {
    const Nesting nesting(this);
    if (!nesting.ok) return -1;
    const uint32_t line = Now().line;
    int value = -1;
    if (IsOperator("-") || IsOperator("+")) {
      const NodeKind kind = IsOperator("-") ? NodeKind::kNegate : NodeKind::kPlus;
      Step();
      value = Add(kind, {Unary(false)}, line);
    } else {
      value = Primary();
    }
    value = Postfix(value);
    return with_filters ? FiltersAndTests(value) : value;
  }

  int Primary() {
    const Token& token = Now();
    const uint32_t line = token.line;
    switch (token.kind) {
      case TokenKind::kName:
        return NameOrConstant();
      case TokenKind::kString: {
        std::string text;
        for (; Now().kind == TokenKind::kString; Step()) text += Now().text;  // neighbours join
        return AddLiteral(Value::String(std::move(text)), line);
      }
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return Number();
      default:
        break;
    }
    if (TakeOperator("(")) {
      if (TakeOperator(")")) return Add(NodeKind::kTuple, {}, line);
      const int value = Tuple();
      return ExpectOperator(")") ? value : -1;
    }
    if (TakeOperator("[")) return Add(NodeKind::kList, Items("]"), line);
    if (TakeOperator("{")) return DictLiteral(line);
    return Refuse("an expression");
  }

  int NameOrConstant() {
    const uint32_t line = Now().line;
    const std::string name = ExpectName();
    if (name == "true" || name == "True") return AddLiteral(Value::Bool(true), line);
    if (name == "false" || name == "False") return AddLiteral(Value::Bool(false), line);
    if (name == "none" || name == "None") return AddLiteral(Value(), line);
    return Add(NodeKind::kName, {}, line, name);
  }

  int Number() {
    const Token token = Now();
    Step();
    const char* begin = token.text.data();
    const char* end = begin + token.text.size();
    if (token.kind == TokenKind::kInteger) {
      int64_t value = 0;
      if (std::from_chars(begin, end, value).ec != std::errc()) return Refuse("an integer of 64 bits");
      return AddLiteral(Value::Int(value), token.line);
    }
    double value = 0.0;
    if (!ParseDouble(token.text, &value)) return Refuse("a number in range");
    return AddLiteral(Value::Float(value), token.line);
  }

  std::vector<int> Items(const char* close) {
    std::vector<int> kids;
    while (!failed() && !TakeOperator(close)) {
      if (!kids.empty() && !ExpectOperator(",")) break;
      if (TakeOperator(close)) break;
      kids.push_back(Expression());
    }
    return kids;
  }

  int DictLiteral(uint32_t line) {
    std::vector<int> kids;
    while (!failed() && !TakeOperator("}")) {
      if (!kids.empty() && !ExpectOperator(",")) break;
      if (TakeOperator("}")) break;
      kids.push_back(Expression());
      if (!ExpectOperator(":")) break;
      kids.push_back(Expression());
    }
    return Add(NodeKind::kDict, std::move(kids), line);
  }

  /// ".name", "[index]", "(arguments)", any number of them.
  int Postfix(int value) {
    while (!failed()) {
      const uint32_t line = Now().line;
      if (TakeOperator(".")) {
        if (Now().kind == TokenKind::kInteger) {
          value = Add(NodeKind::kItem, {value, Number()}, line);
        } else {
          value = Add(NodeKind::kAttribute, {value}, line, ExpectName());
        }
      } else if (TakeOperator("[")) {
        value = Subscript(value, line);
      } else if (IsOperator("(")) {
        value = Call(value);
      } else {
        break;
      }
    }
    return value;
  }

  int Subscript(int object, uint32_t line) {
    int parts[3] = {-1, -1, -1};
    int colons = 0;
    while (!failed() && !IsOperator("]")) {
      if (TakeOperator(":")) {
        if (++colons > 2) return Refuse("at most two colons");
      } else {
        parts[colons] = Tuple();
        if (!IsOperator(":") && !IsOperator("]")) return Refuse("]");
      }
    }
    if (!ExpectOperator("]")) return -1;
    if (colons > 0) return Add(NodeKind::kSlice, {object, parts[0], parts[1], parts[2]}, line);
    if (parts[0] < 0) return Refuse("an index");
    return Add(NodeKind::kItem, {object, parts[0]}, line);
  }

  /// "(a, name=b)"; appends to kids and names.
  bool Arguments(std::vector<int>* kids, std::vector<std::string>* names) {
    if (!ExpectOperator("(")) return false;
    bool first = true;
    while (!failed() && !TakeOperator(")")) {
      if (!first && !ExpectOperator(",")) return false;
      if (TakeOperator(")")) break;
      first = false;
      if (IsOperator("*") || IsOperator("**")) return Unsupported("* in arguments") >= 0;
      std::string name;
      if (Now().kind == TokenKind::kName && Next().kind == TokenKind::kOperator && Next().text == "=") {
        name = ExpectName();
        Step();
      }
      kids->push_back(Expression());
      names->push_back(std::move(name));
    }
    return !failed();
  }

  int Call(int callee) {
    const uint32_t line = Now().line;
    std::vector<int> kids{callee};
    std::vector<std::string> names;
    if (!Arguments(&kids, &names)) return -1;
    return Add(NodeKind::kCall, std::move(kids), line, {}, std::move(names));
  }

  int Filter(int input) { return TakeOperator("|") ? FilterName(input) : Refuse("|"); }
  int FilterName(int input) {
    const uint32_t line = Now().line;
    std::string name = ExpectName();
    while (!failed() && TakeOperator(".")) name += "." + ExpectName();
    std::vector<int> kids{input};
    std::vector<std::string> names;
    if (IsOperator("(") && !Arguments(&kids, &names)) return -1;
    return Add(NodeKind::kFilter, std::move(kids), line, std::move(name), std::move(names));
  }

  int Test(int input) {
    const uint32_t line = Now().line;
    const bool negated = TakeName("not");
    std::string name = ExpectName();
    std::vector<int> kids{input};
    std::vector<std::string> names;
    if (IsOperator("(")) {
      if (!Arguments(&kids, &names)) return -1;
    } else if (StartsArgumentOfTest()) {
      kids.push_back(Postfix(Primary()));
      names.emplace_back();
    }
    const int test = Add(NodeKind::kTest, std::move(kids), line, std::move(name), std::move(names));
    return negated ? Add(NodeKind::kNot, {test}, line) : test;
  }
  /// "is divisibleby 3": one argument without parentheses.
  bool StartsArgumentOfTest() const {
    if (IsName("else") || IsName("or") || IsName("and") || IsName("is") || IsName("if") || IsName("in") ||
        IsName("not"))
      return false;
    const TokenKind kind = Now().kind;
    return kind == TokenKind::kName || kind == TokenKind::kString || kind == TokenKind::kInteger ||
           kind == TokenKind::kFloat || IsOperator("[") || IsOperator("{");
  }

  int FiltersAndTests(int value) {
    while (!failed()) {
      if (IsOperator("|")) {
        value = Filter(value);
      } else if (TakeName("is")) {
        value = Test(value);
      } else if (IsOperator("(")) {
        value = Call(value);
      } else {
        break;
      }
    }
    return value;
  }

  std::vector<Token> tokens_;
  Program* program_;
  Diagnostic* diagnostic_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  // around the current statement, inside of its macro
  Status status_;
};

}  // namespace

Status ParseTemplate(std::string_view source, Program* program, Diagnostic* diagnostic) {
  *program = {};
  std::vector<Token> tokens;
  LINNET_RETURN_IF_ERROR(Tokenize(source, &tokens, diagnostic));
  return Parser(std::move(tokens), program, diagnostic).Run();
}

}  // namespace linnet::jinja
