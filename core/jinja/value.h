// Values of the template language: Python's, as far as chat templates see them. Internal to core.
#ifndef LINNET_CORE_JINJA_VALUE_H_
#define LINNET_CORE_JINJA_VALUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace linnet::jinja {

class Value;
using List = std::vector<Value>;
struct Dict;
struct Macro;
struct Method;
struct Loop;

enum class Kind : uint8_t {
  kUndefined,  // text: what is undefined, for the error that using it gives
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,  // a Dict whose entries can be set
  kMacro,
  kFunction,  // built in; text: its name
  kMethod,    // of a string, list, dict or loop, with the object that it belongs to
  kLoop,
};

/// Cheap to copy: everything that is not a number is shared. Strings, lists and dicts never change once they are made
/// (the sandbox of transformers forbids their changing methods), so that no value contains itself; only a namespace
/// changes, and the interpreter empties all of them at the end.
class Value {
 public:
  Value() : Value(Kind::kNone) {}
  explicit Value(Kind kind) : kind_(kind) {}
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  static Value String(std::string text);
  /// Text that is marked as safe HTML: text that is added to it with + is escaped (the filters safe and escape).
  static Value Markup(std::string text);
  static Value Undefined(std::string what);
  static Value Function(std::string name);
  static Value MakeList(List items, Kind kind = Kind::kList);
  static Value MakeDict(Dict entries, Kind kind = Kind::kDict);
  static Value Of(std::shared_ptr<Macro> macro);
  static Value Of(std::shared_ptr<Method> method);
  static Value Of(std::shared_ptr<Loop> loop);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_markup() const { return markup_; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_integer() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integer() || kind_ == Kind::kFloat; }

  // Accessors; the kind fits.
  int64_t integer() const { return integer_; }  // kInt, kBool
  double number() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(integer_); }
  const std::string& text() const;  // kString, kUndefined, kFunction
  const List& list() const;         // kList, kTuple
  const Dict& dict() const;         // kDict, kNamespace
  Dict& namespace_dict() const;     // kNamespace
  const Macro& macro() const;
  const Method& method() const;
  Loop& loop() const;

  /// Levels of lists and dicts in each other, and how much there is to write or compare (a list that holds one text a
  /// thousand times counts it a thousand times). The interpreter limits both, so that walking a value is safe.
  uint32_t depth() const { return depth_; }
  uint32_t weight() const { return weight_; }

  bool Truthy() const;
  /// The name in error messages: "str object", "None", ...
  const char* TypeName() const;

 private:
  Value(Kind kind, std::shared_ptr<void> object) : kind_(kind), object_(std::move(object)) {}
  void AddPart(const Value& part);

  Kind kind_;
  bool markup_ = false;
  uint16_t depth_ = 0;
  uint32_t weight_ = 1;
  union {
    int64_t integer_ = 0;
    double float_;
  };
  std::shared_ptr<void> object_;
};

/// Entries in the order in which they were put in. Lookup is linear: dicts of templates are small, and each lookup is
/// charged by its size.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;

  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(const Value& key, Value value);
};

struct Scope;

/// A macro, or the body of a call block.
struct Macro {
  int node = -1;
  Scope* scope = nullptr;  // where it was defined; only used while that scope is still active
  uint64_t scope_serial = 0;
};

struct Method {
  Value self;
  std::string name;
};

/// The variable `loop`.
struct Loop {
  size_t index = 0, length = 0;  // index from 0
  Value previous, next;          // undefined at the ends
  std::string changed;           // arguments of the last call of changed(), written out
  bool has_changed = false;      // there was such a call
};

/// Python's ==.
bool Equal(const Value& a, const Value& b);
/// Python's <; false with `*comparable` false where the types do not compare.
bool Less(const Value& a, const Value& b, bool* comparable);

/// Python's str() and repr().
void AppendStr(const Value& value, std::string* out);
void AppendRepr(const Value& value, std::string* out);

/// str(), with the characters of HTML escaped unless `value` is markup.
std::string EscapedStr(const Value& value);

struct JsonFormat {
  int indent = -1;  // < 0: on one line
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::string item_separator = ", ", key_separator = ": ";
};
/// Python's json.dumps. False where a value has no JSON form.
bool AppendJson(const Value& value, const JsonFormat& format, int level, std::string* out);

// Text by code points, as Python counts.
int64_t CodePointCount(std::string_view text);
/// Byte offset of code point `index`, at most text.size().
size_t OffsetOfCodePoint(std::string_view text, int64_t index);

}  // namespace linnet::jinja

#endif  // LINNET_CORE_JINJA_VALUE_H_
