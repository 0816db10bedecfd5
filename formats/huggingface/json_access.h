// Typed access to JSON values that nobody has checked. Internal to formats.
#ifndef LINNET_FORMATS_HUGGINGFACE_JSON_ACCESS_H_
#define LINNET_FORMATS_HUGGINGFACE_JSON_ACCESS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::formats {

/// Reads members of objects of one file and reports wrong types with the file's name and the member's path. An absent
/// member, or one that is null, leaves the default in `out`.
class JsonAccess {
 public:
  using Json = nlohmann::json;

  JsonAccess(const char* file, Diagnostic* diagnostic) : file_(file), diagnostic_(diagnostic) {}

  /// The member, or null where `object` is no object, has no such member, or has null there.
  static const Json* Find(const Json& object, const char* key) {
    if (!object.is_object()) return nullptr;
    const auto it = object.find(key);
    return it == object.end() || it->is_null() ? nullptr : &*it;
  }

  Status ReadBool(const Json& object, const char* key, bool* out) const {
    const Json* value = Find(object, key);
    if (value == nullptr) return Status::Ok();
    const auto* flag = value->get_ptr<const Json::boolean_t*>();
    if (flag == nullptr) return WrongType(key, "true or false");
    *out = *flag;
    return Status::Ok();
  }

  Status ReadString(const Json& object, const char* key, std::string* out) const {
    const Json* value = Find(object, key);
    if (value == nullptr) return Status::Ok();
    const auto* text = value->get_ptr<const Json::string_t*>();
    if (text == nullptr) return WrongType(key, "a string");
    *out = *text;
    return Status::Ok();
  }

  /// An integer in [low, high].
  Status ReadInteger(const Json& object, const char* key, int64_t low, int64_t high, int64_t* out) const {
    const Json* value = Find(object, key);
    if (value == nullptr) return Status::Ok();
    if (!IntegerOf(*value, out) || *out < low || *out > high) return WrongType(key, "an integer in range");
    return Status::Ok();
  }

  Status ReadFloat(const Json& object, const char* key, float* out) const {
    const Json* value = Find(object, key);
    if (value == nullptr) return Status::Ok();
    if (!value->is_number()) return WrongType(key, "a number");
    *out = value->get<float>();
    return Status::Ok();
  }

  /// False where `value` is no integer of 63 bits.
  static bool IntegerOf(const Json& value, int64_t* out) {
    if (const auto* number = value.get_ptr<const Json::number_unsigned_t*>()) {
      if (*number > INT64_MAX) return false;
      *out = static_cast<int64_t>(*number);
      return true;
    }
    const auto* number = value.get_ptr<const Json::number_integer_t*>();
    if (number != nullptr) *out = *number;
    return number != nullptr;
  }

  Status WrongType(const char* key, const char* expected) const {
    return Fail(diagnostic_, StatusCode::kInvalidModel, "a value in a JSON file has the wrong type",
                "%s: \"%s\": expected %s, found something else", file_, key, expected);
  }
  Status Unsupported(const char* where, const char* what, const std::string& found) const {
    return Fail(diagnostic_, StatusCode::kUnsupported, "a part of the tokenizer is not supported",
                "%s: %s %s \"%.200s\" is not supported", file_, where, what, found.c_str());
  }
  Status Invalid(const char* where, const std::string& why) const {
    return Fail(diagnostic_, StatusCode::kInvalidModel, "a tokenizer file is invalid", "%s: %s: %.300s", file_, where,
                why.c_str());
  }

 private:
  const char* file_;
  Diagnostic* diagnostic_;
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_JSON_ACCESS_H_
