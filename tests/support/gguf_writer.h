// Makes small GGUF files for tests: metadata, tensors, and the bytes of both.
#ifndef LINNET_TESTS_SUPPORT_GGUF_WRITER_H_
#define LINNET_TESTS_SUPPORT_GGUF_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/gguf/dequantize.h"
#include "formats/gguf/gguf_file.h"

namespace linnet::test {

/// Appends in call order, so that a test knows where everything stands. Dims are outermost first.
class GgufWriter {
 public:
  using Bytes = std::vector<std::byte>;

  uint32_t version = 3;
  uint32_t alignment = 32;  // of the data; the key general.alignment is the test's to set

  void Set(std::string_view key, uint32_t value) { Scalar(key, formats::GgufType::kUint32, value); }
  void Set(std::string_view key, int32_t value) { Scalar(key, formats::GgufType::kInt32, value); }
  void Set(std::string_view key, uint64_t value) { Scalar(key, formats::GgufType::kUint64, value); }
  void Set(std::string_view key, float value) { Scalar(key, formats::GgufType::kFloat32, value); }
  void Set(std::string_view key, double value) { Scalar(key, formats::GgufType::kFloat64, value); }
  void Set(std::string_view key, bool value) { Scalar(key, formats::GgufType::kBool, static_cast<uint8_t>(value)); }
  void Set(std::string_view key, const char* value) { Set(key, std::string_view(value)); }
  void Set(std::string_view key, std::string_view value) {
    Begin(key, formats::GgufType::kString);
    Text(metadata_, value);
  }
  void Set(std::string_view key, std::span<const std::string> values) {
    Begin(key, formats::GgufType::kArray);
    ArrayHeader(metadata_, formats::GgufType::kString, values.size());
    for (const std::string& value : values) Text(metadata_, value);
  }
  void Set(std::string_view key, std::span<const float> values) { Array(key, formats::GgufType::kFloat32, values); }
  void Set(std::string_view key, std::span<const int32_t> values) { Array(key, formats::GgufType::kInt32, values); }
  void Set(std::string_view key, const std::vector<bool>& values) {
    std::vector<uint8_t> bytes(values.begin(), values.end());
    Array(key, formats::GgufType::kBool, std::span<const uint8_t>(bytes));
  }
  /// Any value as its type number and bytes, well formed or not.
  void SetRaw(std::string_view key, uint32_t type, std::span<const std::byte> value) {
    Begin(key, static_cast<formats::GgufType>(type));
    metadata_.insert(metadata_.end(), value.begin(), value.end());
  }
  template <typename T>
  void Scalar(std::string_view key, formats::GgufType type, T value) {
    Begin(key, type);
    Append(metadata_, value);
  }

  /// A tensor at the next aligned place of the data.
  void AddTensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, std::span<const std::byte> data) {
    Pad(data_);
    AddTensorInfo(name, std::move(dims), type, data_.size());
    data_.insert(data_.end(), data.begin(), data.end());
  }
  void AddF32(std::string_view name, std::vector<uint64_t> dims, std::span<const float> values) {
    AddTensor(name, std::move(dims), formats::kGgmlF32, std::as_bytes(values));
  }
  /// Only the description of a tensor, well formed or not.
  void AddTensorInfo(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    Text(infos_, name);
    Append(infos_, static_cast<uint32_t>(dims.size()));
    for (size_t i = dims.size(); i-- > 0;) Append(infos_, dims[i]);
    Append(infos_, type);
    Append(infos_, offset);
    ++n_tensors_;
  }

  Bytes Finish() const {
    Bytes out;
    Append(out, uint32_t{0x46554747});
    Append(out, version);
    Append(out, n_tensors_);
    Append(out, n_metadata_);
    out.insert(out.end(), metadata_.begin(), metadata_.end());
    out.insert(out.end(), infos_.begin(), infos_.end());
    if (n_tensors_ > 0) Pad(out);
    out.insert(out.end(), data_.begin(), data_.end());
    return out;
  }

  template <typename T>
  static void Append(Bytes& out, T value) {
    const size_t at = out.size();
    out.resize(at + sizeof(T));
    std::memcpy(out.data() + at, &value, sizeof(T));
  }
  static void Text(Bytes& out, std::string_view text) {
    Append(out, static_cast<uint64_t>(text.size()));
    for (const char c : text) out.push_back(static_cast<std::byte>(c));
  }
  static void ArrayHeader(Bytes& out, formats::GgufType element, uint64_t count) {
    Append(out, static_cast<uint32_t>(element));
    Append(out, count);
  }

 private:
  void Begin(std::string_view key, formats::GgufType type) {
    Text(metadata_, key);
    Append(metadata_, static_cast<uint32_t>(type));
    ++n_metadata_;
  }
  template <typename T>
  void Array(std::string_view key, formats::GgufType element, std::span<const T> values) {
    Begin(key, formats::GgufType::kArray);
    ArrayHeader(metadata_, element, values.size());
    for (const T value : values) Append(metadata_, value);
  }
  void Pad(Bytes& out) const { out.resize((out.size() + alignment - 1) / alignment * alignment); }

  Bytes metadata_, infos_, data_;
  uint64_t n_tensors_ = 0, n_metadata_ = 0;
};

}  // namespace linnet::test

#endif  // LINNET_TESTS_SUPPORT_GGUF_WRITER_H_
