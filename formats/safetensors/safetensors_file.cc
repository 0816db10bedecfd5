#include "formats/safetensors/safetensors_file.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "core/base/checked.h"
#include "core/base/float16.h"

namespace linnet::formats {
namespace {

struct TypeInfo {
  SafetensorsType type;
  const char* name;
  size_t bytes;
};

constexpr TypeInfo kTypes[] = {
    {SafetensorsType::kBool, "BOOL", 1},      {SafetensorsType::kU8, "U8", 1},
    {SafetensorsType::kI8, "I8", 1},          {SafetensorsType::kF8E5M2, "F8_E5M2", 1},
    {SafetensorsType::kF8E4M3, "F8_E4M3", 1}, {SafetensorsType::kI16, "I16", 2},
    {SafetensorsType::kU16, "U16", 2},        {SafetensorsType::kF16, "F16", 2},
    {SafetensorsType::kBF16, "BF16", 2},      {SafetensorsType::kI32, "I32", 4},
    {SafetensorsType::kU32, "U32", 4},        {SafetensorsType::kF32, "F32", 4},
    {SafetensorsType::kF64, "F64", 8},        {SafetensorsType::kI64, "I64", 8},
    {SafetensorsType::kU64, "U64", 8},
};

constexpr const TypeInfo& InfoOf(SafetensorsType type) { return kTypes[static_cast<size_t>(type)]; }
static_assert(InfoOf(SafetensorsType::kU64).type == SafetensorsType::kU64, "kTypes has the enumerators' order");

std::optional<SafetensorsType> TypeByName(std::string_view name) {
  for (const TypeInfo& info : kTypes) {
    if (name == info.name) return info.type;
  }
  return std::nullopt;
}

/// A tensor as the header gives it; what is absent stays empty.
struct HeaderEntry {
  std::string name;
  std::string type;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
  bool has_type = false, has_shape = false, has_offsets = false;
};

/// Receives the header's JSON piece by piece: no document is built, nesting is bounded by the three levels that the
/// format has, and a name that occurs twice is seen (a document would silently keep one of them).
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<HeaderEntry>& entries() { return entries_; }
  const std::string& error() const { return error_; }

  bool start_object(size_t) override {
    if (level_ == Level::kOutside) return Enter(Level::kTop);
    if (level_ == Level::kTop) return Enter(is_metadata_ ? Level::kMetadata : Level::kTensor);
    return Reject("an object where none is expected");
  }
  bool end_object() override {
    if (level_ == Level::kTop) return Enter(Level::kDone);
    if (level_ == Level::kTensor && !CheckEntry(entries_.back())) return false;
    return Enter(Level::kTop);
  }
  bool start_array(size_t) override {
    if (level_ != Level::kTensor || (field_ != "shape" && field_ != "data_offsets")) {
      return Reject("an array where none is expected");
    }
    return Enter(Level::kArray);
  }
  bool end_array() override { return Enter(Level::kTensor); }
  bool key(string_t& key) override {
    if (level_ == Level::kTop) return StartEntry(key);
    if (level_ == Level::kTensor) return StartField(key);
    return true;  // of the metadata
  }
  bool string(string_t& value) override {
    if (level_ == Level::kMetadata) return true;
    if (level_ != Level::kTensor || field_ != "dtype") return Reject("a string where none is expected");
    entries_.back().type = value;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::kArray) return Reject("a number where none is expected");
    std::vector<uint64_t>& numbers = field_ == "shape" ? entries_.back().shape : entries_.back().offsets;
    if (numbers.size() >= kMaxSafetensorsRank) return Reject("too many numbers in one list");
    numbers.push_back(value);
    return true;
  }
  bool null() override { return Reject("null where none is expected"); }
  bool boolean(bool) override { return Reject("true or false where none is expected"); }
  bool number_integer(number_integer_t) override { return Reject("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return Reject("a number that is not whole"); }
  bool binary(binary_t&) override { return Reject("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    return Reject("no valid JSON at byte " + std::to_string(position));
  }

 private:
  enum class Level : uint8_t { kOutside, kTop, kTensor, kArray, kMetadata, kDone };

  bool Enter(Level level) {
    level_ = level;
    return true;
  }
  bool Reject(std::string error) {
    if (error_.empty())
      error_ = (entries_.empty() ? "" : "at tensor " + entries_.back().name + ": ") + std::move(error);
    return false;
  }
  bool StartEntry(const std::string& name) {
    is_metadata_ = name == "__metadata__";
    if (!names_.insert(name).second) return Reject("the name " + name + " occurs twice");
    if (is_metadata_) return true;
    if (entries_.size() >= kMaxSafetensorsTensors) return Reject("too many tensors");
    if (name.size() > kMaxSafetensorsNameBytes) return Reject("a name is too long");
    entries_.emplace_back().name = name;
    return true;
  }
  bool StartField(const std::string& name) {
    HeaderEntry& entry = entries_.back();
    bool* const seen = name == "dtype"          ? &entry.has_type
                       : name == "shape"        ? &entry.has_shape
                       : name == "data_offsets" ? &entry.has_offsets
                                                : nullptr;
    if (seen == nullptr || *seen) return Reject("the key " + name + " is unknown or occurs twice");
    *seen = true;
    field_ = name;
    return true;
  }
  bool CheckEntry(const HeaderEntry& entry) {
    if (entry.has_type && entry.has_shape && entry.has_offsets && entry.offsets.size() == 2) return true;
    return Reject("expected dtype, shape and data_offsets with two numbers");
  }

  Level level_ = Level::kOutside;
  bool is_metadata_ = false;
  std::string field_;
  std::vector<HeaderEntry> entries_;
  std::unordered_set<std::string> names_;
  std::string error_;
};

struct FileParts {
  std::string_view name;  // for messages
  std::span<const std::byte> header, data;
};

Result<FileParts> SplitFile(std::span<const std::byte> file, std::string_view name, Diagnostic* diagnostic) {
  const int name_size = static_cast<int>(name.size());
  uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes)) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a safetensors file is too short",
                "%.*s: expected a safetensors file, found %zu bytes", name_size, name.data(), file.size());
  }
  // The format is little-endian, as every target of Linnet is.
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const uint64_t rest = file.size() - sizeof(header_bytes);
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "no safetensors header",
                "%.*s: expected a safetensors header of at most %llu bytes, found a length of %llu", name_size,
                name.data(), static_cast<unsigned long long>(kMaxSafetensorsHeaderBytes),
                static_cast<unsigned long long>(header_bytes));
  }
  if (header_bytes > rest) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a safetensors file is truncated",
                "%.*s: truncated: the header has %llu bytes, the file only %llu after its length", name_size,
                name.data(), static_cast<unsigned long long>(header_bytes), static_cast<unsigned long long>(rest));
  }
  const auto body = file.subspan(sizeof(header_bytes));
  return FileParts{name, body.first(header_bytes), body.subspan(header_bytes)};
}

Result<uint64_t> TensorByteCount(SafetensorsType type, std::span<const uint64_t> shape) {
  uint64_t bytes = SafetensorsTypeBytes(type);
  for (uint64_t dim : shape) {
    LINNET_ASSIGN_OR_RETURN(bytes, CheckedMul(bytes, dim));
  }
  return bytes;
}

Result<SafetensorsTensor> MakeTensor(HeaderEntry& entry, const FileParts& parts, Diagnostic* diagnostic) {
  const int file_size = static_cast<int>(parts.name.size());
  const char* const file = parts.name.data();
  const std::optional<SafetensorsType> type = TypeByName(entry.type);
  if (!type.has_value()) {
    return Fail(diagnostic, StatusCode::kUnsupported, "an unknown element type",
                "%.*s: tensor %s: dtype \"%s\" is not supported", file_size, file, entry.name.c_str(),
                entry.type.c_str());
  }
  const uint64_t begin = entry.offsets[0], end = entry.offsets[1];
  if (begin > end || end > parts.data.size()) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a tensor lies outside its file",
                "%.*s: truncated or malformed: tensor %s has bytes %llu to %llu, the file has %zu of data", file_size,
                file, entry.name.c_str(), static_cast<unsigned long long>(begin), static_cast<unsigned long long>(end),
                parts.data.size());
  }
  const Result<uint64_t> bytes = TensorByteCount(*type, entry.shape);
  if (!bytes.ok() || *bytes != end - begin) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a tensor's shape does not fit its bytes",
                "%.*s: tensor %s: its shape and dtype ask for %lld bytes, its offsets give %llu", file_size, file,
                entry.name.c_str(), bytes.ok() ? static_cast<long long>(*bytes) : -1LL,
                static_cast<unsigned long long>(end - begin));
  }
  SafetensorsTensor tensor;
  tensor.name = std::move(entry.name);
  tensor.type = *type;
  tensor.shape = std::move(entry.shape);
  tensor.bytes = parts.data.subspan(begin, end - begin);
  return tensor;
}

Status CheckNoOverlap(std::span<const SafetensorsTensor> tensors, std::string_view file_name, Diagnostic* diagnostic) {
  std::vector<const SafetensorsTensor*> by_place;
  by_place.reserve(tensors.size());
  for (const SafetensorsTensor& tensor : tensors) {
    if (!tensor.bytes.empty()) by_place.push_back(&tensor);
  }
  std::sort(by_place.begin(), by_place.end(),
            [](const auto* a, const auto* b) { return a->bytes.data() < b->bytes.data(); });
  for (size_t i = 1; i < by_place.size(); ++i) {
    const auto before = by_place[i - 1]->bytes;
    if (before.data() + before.size() <= by_place[i]->bytes.data()) continue;
    return Fail(diagnostic, StatusCode::kInvalidModel, "two tensors overlap", "%.*s: tensors %s and %s overlap",
                static_cast<int>(file_name.size()), file_name.data(), by_place[i - 1]->name.c_str(),
                by_place[i]->name.c_str());
  }
  return Status::Ok();
}

template <typename Stored, typename Widen>
void ReadRun(const std::byte* bytes, const ElementRun& run, float* out, Widen widen) {
  const std::byte* source = bytes + run.first * sizeof(Stored);
  for (uint64_t i = 0; i < run.count; ++i) {
    Stored stored;
    std::memcpy(&stored, source + i * run.step * sizeof(Stored), sizeof(Stored));
    out[i * run.out_step] = widen(stored);
  }
}

}  // namespace

const char* SafetensorsTypeName(SafetensorsType type) { return InfoOf(type).name; }
size_t SafetensorsTypeBytes(SafetensorsType type) { return InfoOf(type).bytes; }

Result<std::vector<SafetensorsTensor>> ParseSafetensors(std::span<const std::byte> file, std::string_view file_name,
                                                        Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const FileParts parts, SplitFile(file, file_name, diagnostic));
  HeaderHandler handler;
  const char* const text = reinterpret_cast<const char*>(parts.header.data());
  if (!nlohmann::json::sax_parse(text, text + parts.header.size(), &handler)) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a malformed safetensors header",
                "%.*s: malformed safetensors header: %s", static_cast<int>(file_name.size()), file_name.data(),
                handler.error().empty() ? "no valid JSON" : handler.error().c_str());
  }
  std::vector<SafetensorsTensor> tensors;
  tensors.reserve(handler.entries().size());
  for (HeaderEntry& entry : handler.entries()) {
    LINNET_ASSIGN_OR_RETURN(SafetensorsTensor tensor, MakeTensor(entry, parts, diagnostic));
    tensors.push_back(std::move(tensor));
  }
  LINNET_RETURN_IF_ERROR(CheckNoOverlap(tensors, file_name, diagnostic));
  return tensors;
}

bool IsReadableAsF32(SafetensorsType type) {
  return type == SafetensorsType::kF32 || type == SafetensorsType::kF16 || type == SafetensorsType::kBF16;
}

void ReadAsF32(const SafetensorsTensor& tensor, const ElementRun& run, float* out) {
  LINNET_DCHECK(run.count == 0 || (run.first + (run.count - 1) * run.step + 1) * SafetensorsTypeBytes(tensor.type) <=
                                      tensor.bytes.size());
  const std::byte* const bytes = tensor.bytes.data();
  if (tensor.type == SafetensorsType::kF32) {
    if (run.step == 1 && run.out_step == 1) {
      std::memcpy(out, bytes + run.first * sizeof(float), run.count * sizeof(float));
    } else {
      ReadRun<float>(bytes, run, out, [](float value) { return value; });
    }
  } else if (tensor.type == SafetensorsType::kF16) {
    ReadRun<uint16_t>(bytes, run, out, F32FromF16);
  } else {
    LINNET_CHECK(tensor.type == SafetensorsType::kBF16);
    ReadRun<uint16_t>(bytes, run, out, F32FromBF16);
  }
}

}  // namespace linnet::formats
