// Reads a config.json key by key and refuses what nobody read.
#ifndef LINNET_FORMATS_HUGGINGFACE_CONFIG_READER_H_
#define LINNET_FORMATS_HUGGINGFACE_CONFIG_READER_H_

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::formats {

/// The first failure of a config's readers; later ones are dropped, so that a mapping can be written as plain
/// assignments and checked once at its end.
class ConfigErrors {
 public:
  explicit ConfigErrors(Diagnostic* diagnostic) : diagnostic_(diagnostic) {}
  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  /// Records a failure about `key` (a path such as rope_scaling.type).
  void Add(StatusCode code, const char* message, const std::string& key, const std::string& what);

 private:
  Diagnostic* diagnostic_;
  Status status_;
};

/// One JSON object of the config. Every getter marks its key as read; null counts as absent, and an absent key gives
/// the default. After a failure (a wrong type, a number out of range) getters return their default. Does not own the
/// object.
class ConfigReader {
 public:
  /// `path` is the prefix of key names in messages: "" or "rope_scaling.".
  ConfigReader(const nlohmann::json& object, std::string path, ConfigErrors* errors);

  bool Has(const char* key) const;     // present and not null; does not count as reading it
  bool IsNull(const char* key) const;  // present and null

  uint32_t Size(const char* key, uint32_t fallback);      // a whole number from 0 to 2^31
  uint32_t Positive(const char* key, uint32_t fallback);  // the same, from 1; 1 after a failure
  double Number(const char* key, double fallback);        // finite
  bool Flag(const char* key, bool fallback);
  std::string Text(const char* key, const char* fallback);
  std::vector<uint32_t> Sizes(const char* key, size_t max_count);     // empty where absent
  std::vector<float> Numbers(const char* key, size_t max_count);      // empty where absent
  std::vector<std::string> Texts(const char* key, size_t max_count);  // empty where absent
  /// The object under `key`; an empty one where absent.
  ConfigReader Child(const char* key);

  /// The first of `keys` that is present, or the last of them: for keys that families spell in several ways. A second
  /// spelling that is present too must say the same.
  const char* Either(std::initializer_list<const char*> keys);

  /// `key`, where present, must be one of the allowed values as JSON text ("null" always is): the arithmetic knows no
  /// other. Errors: kUnsupported naming key and value.
  void Expect(const char* key, std::initializer_list<const char*> allowed);
  /// Keys without effect on the arithmetic of inference.
  void Ignore(std::span<const char* const> keys);
  void Ignore(std::initializer_list<const char*> keys) { Ignore(std::span(keys.begin(), keys.size())); }

  /// kUnsupported naming `key`, its value, and what is known.
  void Refuse(const char* key, const char* known);
  /// kInvalidModel about `key`.
  void Invalid(const char* key, const std::string& what);
  /// Refuses the first key that nobody read and that is not null.
  void Finish();

  ConfigErrors& errors() { return *errors_; }
  bool ok() const { return errors_->ok(); }

 private:
  const nlohmann::json* Take(const char* key);
  void WrongType(const char* key, const char* expected);
  uint32_t Whole(const char* key, uint32_t low, uint32_t fallback);

  const nlohmann::json* object_;
  std::string path_;
  ConfigErrors* errors_;
  std::set<std::string, std::less<>> read_;
};

/// Marks the keys that say nothing about what a model computes: provenance, training, generation.
void IgnoreKeysWithoutEffect(ConfigReader& reader);

/// A value as one short line for messages.
std::string ShortText(const nlohmann::json& value);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_HUGGINGFACE_CONFIG_READER_H_
