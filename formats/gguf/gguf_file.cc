#include "formats/gguf/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/checked.h"
#include "formats/gguf/dequantize.h"

namespace linnet::formats {

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place");

namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kDefaultAlignment = 32;
constexpr uint64_t kMinMetadataBytes = 8 + 4 + 1;            // key length, type, the smallest value
constexpr uint64_t kMinTensorInfoBytes = 8 + 4 + 8 + 4 + 8;  // name length, rank, one dim, type, offset

// Bytes of one value of a fixed size; 0 for strings, arrays and unknown types.
uint64_t FixedSize(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

bool IsKnownType(uint32_t type) { return type <= static_cast<uint32_t>(GgufType::kFloat64); }

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

std::string_view ToText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<uint64_t> LoadUnsigned(GgufType type, const std::byte* from) {
  const auto from_signed = [](int64_t value) -> std::optional<uint64_t> {
    if (value < 0) return std::nullopt;
    return static_cast<uint64_t>(value);
  };
  switch (type) {
    case GgufType::kUint8:
      return Load<uint8_t>(from);
    case GgufType::kInt8:
      return from_signed(Load<int8_t>(from));
    case GgufType::kUint16:
      return Load<uint16_t>(from);
    case GgufType::kInt16:
      return from_signed(Load<int16_t>(from));
    case GgufType::kUint32:
      return Load<uint32_t>(from);
    case GgufType::kInt32:
      return from_signed(Load<int32_t>(from));
    case GgufType::kUint64:
      return Load<uint64_t>(from);
    case GgufType::kInt64:
      return from_signed(Load<int64_t>(from));
    default:
      return std::nullopt;
  }
}

std::optional<double> LoadNumber(GgufType type, const std::byte* from) {
  switch (type) {
    case GgufType::kFloat32:
      return Load<float>(from);
    case GgufType::kFloat64:
      return Load<double>(from);
    case GgufType::kInt8:
      return Load<int8_t>(from);
    case GgufType::kInt16:
      return Load<int16_t>(from);
    case GgufType::kInt32:
      return Load<int32_t>(from);
    case GgufType::kInt64:
      return static_cast<double>(Load<int64_t>(from));
    default:
      break;
  }
  const std::optional<uint64_t> value = LoadUnsigned(type, from);
  if (!value) return std::nullopt;
  return static_cast<double>(*value);
}

}  // namespace

const char* GgufTypeName(GgufType type) {
  static constexpr const char* kNames[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                           "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return IsKnownType(static_cast<uint32_t>(type)) ? kNames[static_cast<uint32_t>(type)] : "?";
}

std::optional<uint64_t> GgufValue::AsUnsigned() const {
  if (FixedSize(type_) == 0) return std::nullopt;
  return LoadUnsigned(type_, payload_.data());
}

std::optional<double> GgufValue::AsNumber() const {
  if (FixedSize(type_) == 0 || type_ == GgufType::kBool) return std::nullopt;
  return LoadNumber(type_, payload_.data());
}

std::optional<bool> GgufValue::AsBool() const {
  if (type_ != GgufType::kBool) return std::nullopt;
  return Load<uint8_t>(payload_.data()) != 0;
}

std::optional<std::string_view> GgufValue::AsString() const {
  if (type_ != GgufType::kString) return std::nullopt;
  return ToText(payload_);
}

bool GgufValue::AsUnsignedArray(std::vector<uint64_t>& out) const {
  const uint64_t size = FixedSize(element_type_);
  if (type_ != GgufType::kArray || size == 0) return false;
  out.clear();
  out.reserve(count_);
  for (uint64_t i = 0; i < count_; ++i) {
    const std::optional<uint64_t> value = LoadUnsigned(element_type_, payload_.data() + i * size);
    if (!value) return false;
    out.push_back(*value);
  }
  return true;
}

bool GgufValue::AsNumberArray(std::vector<double>& out) const {
  const uint64_t size = FixedSize(element_type_);
  if (type_ != GgufType::kArray || size == 0 || element_type_ == GgufType::kBool) return false;
  out.clear();
  out.reserve(count_);
  for (uint64_t i = 0; i < count_; ++i) {
    const std::optional<double> value = LoadNumber(element_type_, payload_.data() + i * size);
    if (!value) return false;
    out.push_back(*value);
  }
  return true;
}

bool GgufValue::AsBoolArray(std::vector<bool>& out) const {
  if (type_ != GgufType::kArray || element_type_ != GgufType::kBool) return false;
  out.clear();
  for (uint64_t i = 0; i < count_; ++i) out.push_back(Load<uint8_t>(payload_.data() + i) != 0);
  return true;
}

bool GgufValue::AsStringArray(std::vector<std::string_view>& out) const {
  if (type_ != GgufType::kArray || element_type_ != GgufType::kString) return false;
  out.clear();
  out.reserve(count_);
  const std::byte* at = payload_.data();
  for (uint64_t i = 0; i < count_; ++i) {  // lengths were checked by the parser
    const uint64_t length = Load<uint64_t>(at);
    out.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return true;
}

uint64_t GgufTensor::rows() const {
  uint64_t rows = 1;
  for (uint32_t i = 0; i + 1 < rank; ++i) rows *= dims[i];
  return rows;
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto found = std::lower_bound(metadata_.begin(), metadata_.end(), key,
                                      [](const GgufEntry& entry, std::string_view k) { return entry.key < k; });
  return found != metadata_.end() && found->key == key ? &found->value : nullptr;
}

const GgufTensor* GgufFile::FindTensor(std::string_view tensor_name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), tensor_name,
                                      [this](uint32_t index, std::string_view n) { return tensors_[index].name < n; });
  return found != by_name_.end() && tensors_[*found].name == tensor_name ? &tensors_[*found] : nullptr;
}

/// Walks the file once, front to back; every read is checked against the bytes that are left.
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, std::string_view name, Diagnostic* diagnostic)
      : diagnostic_(diagnostic) {
    file_.bytes_ = bytes;
    file_.name_ = std::string(name);
  }

  Result<GgufFile> Run() {
    LINNET_RETURN_IF_ERROR(ReadHeader());
    LINNET_RETURN_IF_ERROR(ReadMetadata());
    LINNET_RETURN_IF_ERROR(ReadAlignment());
    LINNET_RETURN_IF_ERROR(ReadTensors());
    LINNET_RETURN_IF_ERROR(IndexTensors());
    return std::move(file_);
  }

 private:
  const char* name() const { return file_.name_.c_str(); }
  uint64_t Left() const { return file_.bytes_.size() - position_; }

  Status Truncated(const char* what, uint64_t wanted) {
    return Fail(diagnostic_, StatusCode::kInvalidModel, "the GGUF file is truncated",
                "%s: truncated: %s at offset %llu needs %llu bytes, the file has %llu more", name(), what,
                static_cast<unsigned long long>(position_), static_cast<unsigned long long>(wanted),
                static_cast<unsigned long long>(Left()));
  }

  template <typename T>
  Status Read(const char* what, T& out) {
    if (Left() < sizeof(T)) return Truncated(what, sizeof(T));
    out = Load<T>(file_.bytes_.data() + position_);
    position_ += sizeof(T);
    return Status::Ok();
  }

  Status ReadString(const char* what, uint64_t limit, std::string_view& out) {
    uint64_t length = 0;
    LINNET_RETURN_IF_ERROR(Read(what, length));
    if (length > limit) {
      return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF name is too long",
                  "%s: %s at offset %llu has %llu bytes, expected at most %llu", name(), what,
                  static_cast<unsigned long long>(position_), static_cast<unsigned long long>(length),
                  static_cast<unsigned long long>(limit));
    }
    if (Left() < length) return Truncated(what, length);
    out = ToText(file_.bytes_.subspan(position_, length));
    position_ += length;
    return Status::Ok();
  }

  Status ReadCount(const char* what, uint64_t limit, uint64_t least_bytes, uint64_t& out) {
    LINNET_RETURN_IF_ERROR(Read(what, out));
    if (out <= limit && out <= Left() / least_bytes) return Status::Ok();
    return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF count exceeds what the file can hold",
                "%s: %s is %llu, expected at most %llu (%llu bytes are left in the file)", name(), what,
                static_cast<unsigned long long>(out),
                static_cast<unsigned long long>(std::min(limit, Left() / least_bytes)),
                static_cast<unsigned long long>(Left()));
  }

  Status ReadHeader() {
    uint32_t magic = 0;
    LINNET_RETURN_IF_ERROR(Read("the magic", magic));
    if (magic != kMagic) {
      return Fail(diagnostic_, StatusCode::kInvalidModel, "not a GGUF file",
                  "%s: not a GGUF file: begins with 0x%08x, expected 0x%08x (\"GGUF\")", name(), magic, kMagic);
    }
    LINNET_RETURN_IF_ERROR(Read("the version", file_.version_));
    const uint32_t version = file_.version_;
    if ((version & 0xffffu) == 0 && version != 0) {
      return Fail(diagnostic_, StatusCode::kUnsupported, "big-endian GGUF is not supported",
                  "%s: big-endian GGUF is not supported (version field 0x%08x)", name(), version);
    }
    if (version != 2 && version != 3) {
      return Fail(diagnostic_, StatusCode::kUnsupported, "this GGUF version is not supported",
                  "%s: GGUF version %u is not supported, expected 2 or 3", name(), version);
    }
    LINNET_RETURN_IF_ERROR(Read("the tensor count", n_tensors_));
    LINNET_RETURN_IF_ERROR(ReadCount("the metadata count", kMaxGgufMetadata, kMinMetadataBytes, n_metadata_));
    if (n_tensors_ > kMaxGgufTensors || n_tensors_ > Left() / kMinTensorInfoBytes) {
      return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF count exceeds what the file can hold",
                  "%s: the tensor count is %llu, expected at most %llu", name(),
                  static_cast<unsigned long long>(n_tensors_),
                  static_cast<unsigned long long>(std::min(kMaxGgufTensors, Left() / kMinTensorInfoBytes)));
    }
    return Status::Ok();
  }

  Status UnknownType(const char* what, uint32_t type) {
    return Fail(diagnostic_, StatusCode::kInvalidModel, "unknown GGUF value type",
                "%s: metadata key \"%.*s\": %s %u is unknown, expected 0 to 12", name(), static_cast<int>(key_.size()),
                key_.data(), what, type);
  }

  // Steps over `count` elements of an array.
  Status SkipElements(GgufType type, uint64_t count, uint32_t depth) {
    if (const uint64_t size = FixedSize(type)) {
      const Result<uint64_t> bytes = CheckedMul(size, count);
      if (!bytes.ok() || *bytes > Left()) {
        return Truncated("an array", bytes.ok() ? *bytes : std::numeric_limits<uint64_t>::max());
      }
      position_ += *bytes;
      return Status::Ok();
    }
    const uint64_t least = type == GgufType::kString ? 8 : 12;  // a length; a type and a count
    if (count > Left() / least) return Truncated("an array", least);
    for (uint64_t i = 0; i < count; ++i) {
      std::string_view text;
      GgufValue nested;
      if (type == GgufType::kString) {
        LINNET_RETURN_IF_ERROR(ReadString("a string of an array", Left(), text));
      } else {
        LINNET_RETURN_IF_ERROR(ReadArray(depth + 1, nested));
      }
    }
    return Status::Ok();
  }

  Status ReadArray(uint32_t depth, GgufValue& out) {
    if (depth > kMaxGgufArrayDepth) {
      return Fail(diagnostic_, StatusCode::kInvalidModel, "GGUF arrays are nested too deeply",
                  "%s: metadata key \"%.*s\": arrays are nested more than %u deep", name(),
                  static_cast<int>(key_.size()), key_.data(), kMaxGgufArrayDepth);
    }
    uint32_t element = 0;
    uint64_t count = 0;
    LINNET_RETURN_IF_ERROR(Read("an array's element type", element));
    if (!IsKnownType(element)) return UnknownType("array element type", element);
    LINNET_RETURN_IF_ERROR(Read("an array's length", count));
    const uint64_t begin = position_;
    LINNET_RETURN_IF_ERROR(SkipElements(static_cast<GgufType>(element), count, depth));
    out = GgufValue(GgufType::kArray, static_cast<GgufType>(element), count,
                    file_.bytes_.subspan(begin, position_ - begin));
    return Status::Ok();
  }

  Status ReadValue(GgufValue& out) {
    uint32_t raw = 0;
    LINNET_RETURN_IF_ERROR(Read("a value's type", raw));
    if (!IsKnownType(raw)) return UnknownType("value type", raw);
    const GgufType type = static_cast<GgufType>(raw);
    if (type == GgufType::kArray) return ReadArray(1, out);
    if (type == GgufType::kString) {
      std::string_view text;
      LINNET_RETURN_IF_ERROR(ReadString("a string", Left(), text));
      out = GgufValue(type, type, 1, std::as_bytes(std::span(text.data(), text.size())));
      return Status::Ok();
    }
    const uint64_t size = FixedSize(type);
    if (Left() < size) return Truncated("a value", size);
    out = GgufValue(type, type, 1, file_.bytes_.subspan(position_, size));
    position_ += size;
    return Status::Ok();
  }

  Status ReadMetadata() {
    file_.metadata_.reserve(n_metadata_);
    for (uint64_t i = 0; i < n_metadata_; ++i) {
      GgufEntry entry;
      LINNET_RETURN_IF_ERROR(ReadString("a metadata key", kMaxGgufKeyBytes, key_));
      entry.key = key_;
      LINNET_RETURN_IF_ERROR(ReadValue(entry.value));
      file_.metadata_.push_back(entry);
    }
    auto& entries = file_.metadata_;
    std::sort(entries.begin(), entries.end(), [](const GgufEntry& a, const GgufEntry& b) { return a.key < b.key; });
    const auto twice = std::adjacent_find(entries.begin(), entries.end(),
                                          [](const GgufEntry& a, const GgufEntry& b) { return a.key == b.key; });
    if (twice == entries.end()) return Status::Ok();
    return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF key appears twice",
                "%s: metadata key \"%.*s\" appears twice", name(), static_cast<int>(twice->key.size()),
                twice->key.data());
  }

  Status ReadAlignment() {
    file_.alignment_ = kDefaultAlignment;
    const GgufValue* value = file_.Find("general.alignment");
    if (value == nullptr) return Status::Ok();
    const std::optional<uint64_t> alignment = value->AsUnsigned();
    if (!alignment || !IsPowerOfTwo(*alignment) || *alignment > kMaxGgufAlignment) {
      return Fail(diagnostic_, StatusCode::kInvalidModel, "bad GGUF alignment",
                  "%s: general.alignment is %lld, expected a power of two up to %u", name(),
                  alignment ? static_cast<long long>(*alignment) : -1LL, kMaxGgufAlignment);
    }
    file_.alignment_ = static_cast<uint32_t>(*alignment);
    return Status::Ok();
  }

  // The bytes that a tensor's dims and type ask for; no tensor of 2^64 bytes or more fits any file.
  Status ComputeTensorSize(const GgufTensor& tensor, uint64_t& out) {
    const int length = static_cast<int>(tensor.name.size());
    const GgmlType* type = FindGgmlType(tensor.type);
    if (type == nullptr) {
      return Fail(diagnostic_, StatusCode::kUnsupported, "unknown ggml tensor type",
                  "%s: tensor \"%.*s\" has type number %u, which is unknown", name(), length, tensor.name.data(),
                  tensor.type);
    }
    if (tensor.columns() % type->block_size != 0) {
      return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF tensor's rows are no whole blocks",
                  "%s: tensor \"%.*s\" has rows of %llu, expected a multiple of %u for %s", name(), length,
                  tensor.name.data(), static_cast<unsigned long long>(tensor.columns()), type->block_size, type->name);
    }
    Result<uint64_t> bytes = CheckedMul(tensor.columns() / type->block_size, type->block_bytes);
    for (uint32_t i = 0; bytes.ok() && i + 1 < tensor.rank; ++i) bytes = CheckedMul(*bytes, tensor.dims[i]);
    if (!bytes.ok()) {
      return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF tensor's size overflows",
                  "%s: tensor \"%.*s\": its size overflows 64 bits", name(), length, tensor.name.data());
    }
    out = *bytes;
    return Status::Ok();
  }

  // Fills all but the data; `offset` counts from the begin of the tensor data.
  Status ReadTensorInfo(GgufTensor& tensor, uint64_t& offset) {
    LINNET_RETURN_IF_ERROR(ReadString("a tensor's name", kMaxGgufTensorNameBytes, tensor.name));
    LINNET_RETURN_IF_ERROR(Read("a tensor's rank", tensor.rank));
    const int length = static_cast<int>(tensor.name.size());
    if (tensor.rank == 0 || tensor.rank > kMaxGgufRank) {
      return Fail(diagnostic_, StatusCode::kInvalidModel, "bad GGUF tensor rank",
                  "%s: tensor \"%.*s\" has %u dimensions, expected 1 to %u", name(), length, tensor.name.data(),
                  tensor.rank, kMaxGgufRank);
    }
    for (uint32_t i = tensor.rank; i-- > 0;) {  // the file has the innermost first
      LINNET_RETURN_IF_ERROR(Read("a tensor's dimension", tensor.dims[i]));
      if (tensor.dims[i] == 0) {
        return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF tensor is empty",
                    "%s: tensor \"%.*s\" has a dimension of 0", name(), length, tensor.name.data());
      }
    }
    LINNET_RETURN_IF_ERROR(Read("a tensor's type", tensor.type));
    LINNET_RETURN_IF_ERROR(Read("a tensor's offset", offset));
    if (offset % file_.alignment_ != 0) {
      return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF tensor is misaligned",
                  "%s: tensor \"%.*s\" has offset %llu, expected a multiple of %u", name(), length, tensor.name.data(),
                  static_cast<unsigned long long>(offset), file_.alignment_);
    }
    return Status::Ok();
  }

  Status ReadTensors() {
    std::vector<uint64_t> offsets;
    offsets.reserve(n_tensors_);
    file_.tensors_.reserve(n_tensors_);
    for (uint64_t i = 0; i < n_tensors_; ++i) {
      LINNET_RETURN_IF_ERROR(ReadTensorInfo(file_.tensors_.emplace_back(), offsets.emplace_back()));
    }
    // A file without tensors (a vocabulary) may end before its data would begin.
    const uint64_t begin = std::min<uint64_t>(AlignUp(position_, file_.alignment_), file_.bytes_.size());
    const std::span<const std::byte> data = file_.bytes_.subspan(begin);
    for (uint64_t i = 0; i < n_tensors_; ++i) {
      LINNET_RETURN_IF_ERROR(PlaceTensor(data, offsets[i], file_.tensors_[i]));
    }
    return Status::Ok();
  }

  Status PlaceTensor(std::span<const std::byte> data, uint64_t offset, GgufTensor& tensor) {
    uint64_t bytes = 0;
    LINNET_RETURN_IF_ERROR(ComputeTensorSize(tensor, bytes));
    if (offset > data.size() || bytes > data.size() - offset) {
      return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF tensor leaves the file",
                  "%s: truncated: tensor \"%.*s\" needs %llu bytes at offset %llu of the tensor data, which has %llu",
                  name(), static_cast<int>(tensor.name.size()), tensor.name.data(),
                  static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(offset),
                  static_cast<unsigned long long>(data.size()));
    }
    tensor.data = data.subspan(offset, bytes);
    return Status::Ok();
  }

  // Sorts the tensors by their place, so that overlaps are neighbours, and indexes them by name.
  Status IndexTensors() {
    auto& tensors = file_.tensors_;
    std::sort(tensors.begin(), tensors.end(),
              [](const GgufTensor& a, const GgufTensor& b) { return a.data.data() < b.data.data(); });
    for (size_t i = 1; i < tensors.size(); ++i) {
      const GgufTensor& before = tensors[i - 1];
      if (before.data.data() + before.data.size() <= tensors[i].data.data()) continue;
      return Fail(diagnostic_, StatusCode::kInvalidModel, "GGUF tensors overlap",
                  "%s: tensors \"%.*s\" and \"%.*s\" overlap", name(), static_cast<int>(before.name.size()),
                  before.name.data(), static_cast<int>(tensors[i].name.size()), tensors[i].name.data());
    }
    file_.by_name_.resize(tensors.size());
    for (uint32_t i = 0; i < tensors.size(); ++i) file_.by_name_[i] = i;
    std::sort(file_.by_name_.begin(), file_.by_name_.end(),
              [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
    for (size_t i = 1; i < tensors.size(); ++i) {
      const std::string_view twice = tensors[file_.by_name_[i]].name;
      if (tensors[file_.by_name_[i - 1]].name != twice) continue;
      return Fail(diagnostic_, StatusCode::kInvalidModel, "a GGUF tensor appears twice",
                  "%s: tensor \"%.*s\" appears twice", name(), static_cast<int>(twice.size()), twice.data());
    }
    return Status::Ok();
  }

  GgufFile file_;
  Diagnostic* diagnostic_;
  uint64_t position_ = 0;
  uint64_t n_tensors_ = 0;
  uint64_t n_metadata_ = 0;
  std::string_view key_;  // the metadata key that is being read, for messages
};

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes, std::string_view name, Diagnostic* diagnostic) {
  return GgufParser(bytes, name, diagnostic).Run();
}

}  // namespace linnet::formats
