#include "formats/huggingface/config_reader.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace linnet::formats {
namespace {

constexpr uint32_t kMaxWhole = 1u << 31;  // above every limit of ModelConfig, which names the field
constexpr size_t kMaxShownBytes = 80;     // of a value in a message

const nlohmann::json& EmptyObject() {
  static const nlohmann::json empty = nlohmann::json::object();
  return empty;
}

}  // namespace

std::string ShortText(const nlohmann::json& value) {
  // Invalid UTF-8 is replaced: dump() would throw otherwise. Nesting was bounded when the text was parsed.
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMaxShownBytes) text = text.substr(0, kMaxShownBytes) + "...";
  return text;
}

void ConfigErrors::Add(StatusCode code, const char* message, const std::string& key, const std::string& what) {
  if (!status_.ok()) return;
  status_ = Fail(diagnostic_, code, message, "config.json: %s %s", key.c_str(), what.c_str());
}

ConfigReader::ConfigReader(const nlohmann::json& object, std::string path, ConfigErrors* errors)
    : object_(object.is_object() ? &object : &EmptyObject()), path_(std::move(path)), errors_(errors) {}

bool ConfigReader::Has(const char* key) const {
  const auto it = object_->find(key);
  return it != object_->end() && !it->is_null();
}

bool ConfigReader::IsNull(const char* key) const {
  const auto it = object_->find(key);
  return it != object_->end() && it->is_null();
}

const nlohmann::json* ConfigReader::Take(const char* key) {
  read_.insert(key);
  const auto it = object_->find(key);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

void ConfigReader::WrongType(const char* key, const char* expected) {
  Invalid(key, std::string("expected ") + expected + ", found " + ShortText((*object_)[key]));
}

void ConfigReader::Invalid(const char* key, const std::string& what) {
  errors_->Add(StatusCode::kInvalidModel, "a key of config.json has an invalid value", path_ + key + ":", what);
}

void ConfigReader::Refuse(const char* key, const char* known) {
  const auto it = object_->find(key);
  const std::string value = it == object_->end() ? "(absent)" : ShortText(*it);
  errors_->Add(StatusCode::kUnsupported, "config.json asks for something that is not supported", path_ + key,
               value + " is not supported" + (*known != '\0' ? std::string(" (known: ") + known + ")" : ""));
}

uint32_t ConfigReader::Whole(const char* key, uint32_t low, uint32_t fallback) {
  const nlohmann::json* value = Take(key);
  if (value == nullptr) return fallback;
  if (value->is_number_unsigned()) {
    const uint64_t number = *value->get_ptr<const nlohmann::json::number_unsigned_t*>();
    if (number >= low && number <= kMaxWhole) return static_cast<uint32_t>(number);
  }
  WrongType(key, low > 0 ? "a whole number from 1 to 2^31" : "a whole number from 0 to 2^31");
  return low > 0 ? 1 : fallback;
}

uint32_t ConfigReader::Size(const char* key, uint32_t fallback) { return Whole(key, 0, fallback); }
uint32_t ConfigReader::Positive(const char* key, uint32_t fallback) { return Whole(key, 1, fallback); }

double ConfigReader::Number(const char* key, double fallback) {
  const nlohmann::json* value = Take(key);
  if (value == nullptr) return fallback;
  if (value->is_number()) {
    const double number = value->get<double>();
    if (std::isfinite(number)) return number;
  }
  WrongType(key, "a number");
  return fallback;
}

bool ConfigReader::Flag(const char* key, bool fallback) {
  const nlohmann::json* value = Take(key);
  if (value == nullptr) return fallback;
  if (const bool* flag = value->get_ptr<const bool*>()) return *flag;
  WrongType(key, "true or false");
  return fallback;
}

std::string ConfigReader::Text(const char* key, const char* fallback) {
  const nlohmann::json* value = Take(key);
  if (value == nullptr) return fallback;
  if (const std::string* text = value->get_ptr<const std::string*>()) return *text;
  WrongType(key, "a text");
  return fallback;
}

std::vector<uint32_t> ConfigReader::Sizes(const char* key, size_t max_count) {
  const nlohmann::json* value = Take(key);
  std::vector<uint32_t> sizes;
  if (value == nullptr) return sizes;
  bool fits = value->is_array() && value->size() <= max_count;
  if (fits) {
    for (const nlohmann::json& entry : *value) {
      fits = fits && entry.is_number_unsigned() && entry.get<uint64_t>() <= kMaxWhole;
      sizes.push_back(fits ? entry.get<uint32_t>() : 0);
    }
  }
  if (!fits) WrongType(key, "a list of whole numbers");
  return sizes;
}

std::vector<float> ConfigReader::Numbers(const char* key, size_t max_count) {
  const nlohmann::json* value = Take(key);
  std::vector<float> numbers;
  if (value == nullptr) return numbers;
  bool fits = value->is_array() && value->size() <= max_count;
  if (fits) {
    for (const nlohmann::json& entry : *value) {
      fits = fits && entry.is_number();
      numbers.push_back(fits ? entry.get<float>() : 0.0f);
    }
  }
  if (!fits) WrongType(key, "a list of numbers");
  return numbers;
}

std::vector<std::string> ConfigReader::Texts(const char* key, size_t max_count) {
  const nlohmann::json* value = Take(key);
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  bool fits = value->is_array() && value->size() <= max_count;
  if (fits) {
    for (const nlohmann::json& entry : *value) {
      const std::string* text = entry.get_ptr<const std::string*>();
      fits = fits && text != nullptr;
      texts.push_back(text != nullptr ? *text : "");
    }
  }
  if (!fits) WrongType(key, "a list of texts");
  return texts;
}

ConfigReader ConfigReader::Child(const char* key) {
  const nlohmann::json* value = Take(key);
  if (value != nullptr && !value->is_object()) WrongType(key, "an object");
  return {value != nullptr ? *value : EmptyObject(), path_ + key + ".", errors_};
}

const char* ConfigReader::Either(std::initializer_list<const char*> keys) {
  const char* chosen = nullptr;
  for (const char* key : keys) {
    read_.insert(key);
    if (!Has(key)) continue;
    if (chosen == nullptr) {
      chosen = key;
    } else if ((*object_)[key] != (*object_)[chosen]) {
      Invalid(key, ShortText((*object_)[key]) + " contradicts " + chosen + " " + ShortText((*object_)[chosen]));
    }
  }
  return chosen != nullptr ? chosen : *(keys.end() - 1);
}

void ConfigReader::Expect(const char* key, std::initializer_list<const char*> allowed) {
  const nlohmann::json* value = Take(key);
  if (value == nullptr) return;
  const std::string text = ShortText(*value);
  const bool known = std::any_of(allowed.begin(), allowed.end(), [&text](const char* one) { return text == one; });
  if (!known) Refuse(key, allowed.size() > 0 ? *allowed.begin() : "null");
}

void ConfigReader::Ignore(std::span<const char* const> keys) { read_.insert(keys.begin(), keys.end()); }

void ConfigReader::Finish() {
  for (const auto& [key, value] : object_->items()) {
    if (value.is_null() || read_.contains(key)) continue;
    errors_->Add(StatusCode::kUnsupported, "config.json has a key that is not known", path_ + key,
                 ShortText(value) + " is not known for this family");
    return;
  }
}

}  // namespace linnet::formats
