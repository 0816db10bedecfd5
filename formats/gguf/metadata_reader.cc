#include "formats/gguf/metadata_reader.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace linnet::formats {
namespace {

// Keys that change nothing in the arithmetic of a decoder.
constexpr std::string_view kWithoutEffect[] = {
    "vocab_size",                 // the embedding's rows say it
    "rope.scaling.finetuned",     // how the scaling came about
    "pooling_type",               // for embedding models' outputs
    "tensor_data_layout",         // how the converter ordered rows; the architecture implies it
    "leading_dense_block_count",  // the layers that have a router say it
    "expert_shared_count",        // the shared expert's tensors say its width
    "expert_shared_feed_forward_length",
};

}  // namespace

const GgufValue* MetadataReader::Take(const char* suffix) {
  const GgufValue* value = files_.Find(prefix_ + suffix);
  if (value != nullptr) read_.emplace_back(suffix);
  return value;
}

Status MetadataReader::WrongType(const char* suffix, const GgufValue& value, const char* expected) const {
  return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF metadata value has another type or range than expected",
              "%s: %s%s: expected %s, found %s%s", files_.name(), prefix_.c_str(), suffix, expected,
              GgufTypeName(value.type()), value.type() == GgufType::kArray ? "" : " outside it");
}

Status MetadataReader::Unsigned(const char* suffix, uint32_t limit, uint32_t& out) {
  const GgufValue* value = Take(suffix);
  if (value == nullptr) return Status::Ok();
  const std::optional<uint64_t> number = value->AsUnsigned();
  if (!number) return WrongType(suffix, *value, "an integer that is not negative");
  if (*number > limit) {
    return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF metadata value exceeds its limit",
                "%s: %s%s: expected at most %u, found %llu", files_.name(), prefix_.c_str(), suffix, limit,
                static_cast<unsigned long long>(*number));
  }
  out = static_cast<uint32_t>(*number);
  return Status::Ok();
}

Status MetadataReader::Number(const char* suffix, double& out) {
  const GgufValue* value = Take(suffix);
  if (value == nullptr) return Status::Ok();
  const std::optional<double> number = value->AsNumber();
  if (!number || !std::isfinite(*number)) return WrongType(suffix, *value, "a finite number");
  out = *number;
  return Status::Ok();
}

Status MetadataReader::Number(const char* suffix, float& out) {
  double wide = static_cast<double>(out);
  LINNET_RETURN_IF_ERROR(Number(suffix, wide));
  out = static_cast<float>(wide);
  return Status::Ok();
}

Status MetadataReader::Bool(const char* suffix, bool& out) {
  const GgufValue* value = Take(suffix);
  if (value == nullptr) return Status::Ok();
  const std::optional<bool> flag = value->AsBool();
  if (!flag) return WrongType(suffix, *value, "a bool");
  out = *flag;
  return Status::Ok();
}

Status MetadataReader::Text(const char* suffix, std::string_view& out) {
  const GgufValue* value = Take(suffix);
  if (value == nullptr) return Status::Ok();
  const std::optional<std::string_view> text = value->AsString();
  if (!text) return WrongType(suffix, *value, "a string");
  out = *text;
  return Status::Ok();
}

Status MetadataReader::PerLayer(const char* suffix, uint32_t limit, uint32_t n_layers, std::vector<uint32_t>& out) {
  const GgufValue* value = files_.Find(prefix_ + suffix);
  if (value == nullptr) return Status::Ok();
  if (value->type() != GgufType::kArray) {
    uint32_t all = 0;
    LINNET_RETURN_IF_ERROR(Unsigned(suffix, limit, all));
    out.assign(n_layers, all);
    return Status::Ok();
  }
  static_cast<void>(Take(suffix));
  std::vector<uint64_t> numbers;
  if (value->count() != n_layers || !value->AsUnsignedArray(numbers) ||
      std::any_of(numbers.begin(), numbers.end(), [limit](uint64_t n) { return n > limit; })) {
    return WrongType(suffix, *value, "an integer within its limit, or one for each of the block_count layers");
  }
  out.clear();
  for (const uint64_t number : numbers) out.push_back(static_cast<uint32_t>(number));
  return Status::Ok();
}

Status MetadataReader::LayerPattern(const char* suffix, uint32_t n_layers, std::vector<bool>& out) {
  const GgufValue* value = Take(suffix);
  if (value == nullptr) return Status::Ok();
  if (value->type() == GgufType::kArray) {
    if (value->count() == n_layers && value->AsBoolArray(out)) return Status::Ok();
    return WrongType(suffix, *value, "a period, or a bool for each of the block_count layers");
  }
  const std::optional<uint64_t> period = value->AsUnsigned();
  if (!period || *period == 0) return WrongType(suffix, *value, "a period above 0");
  out.resize(n_layers);
  for (uint32_t i = 0; i < n_layers; ++i) out[i] = i % *period != *period - 1;
  return Status::Ok();
}

Status MetadataReader::Require(const char* suffix) const {
  if (Has(suffix)) return Status::Ok();
  return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF metadata key is missing",
              "%s: metadata key \"%s%s\" is missing", files_.name(), prefix_.c_str(), suffix);
}

Status MetadataReader::Refuse(const char* suffix, StatusCode code, const char* text) const {
  return Fail(diagnostic_, code, "a GGUF metadata value is not supported", "%s: %s%s: %s", files_.name(),
              prefix_.c_str(), suffix, text);
}

Status MetadataReader::RefuseUnread() const {
  for (const GgufEntry& entry : files_.files().front().metadata()) {
    if (!entry.key.starts_with(prefix_)) continue;
    const std::string_view suffix = entry.key.substr(prefix_.size());
    if (std::find(read_.begin(), read_.end(), suffix) != read_.end()) continue;
    if (std::find(std::begin(kWithoutEffect), std::end(kWithoutEffect), suffix) != std::end(kWithoutEffect)) continue;
    return Fail(diagnostic_, StatusCode::kUnsupported, "an unknown GGUF metadata key",
                "%s: metadata key \"%.*s\" is not supported for this architecture", files_.name(),
                static_cast<int>(entry.key.size()), entry.key.data());
  }
  return Status::Ok();
}

}  // namespace linnet::formats
