// Writes small safetensors files for tests: whole ones, and ones whose header says something else.
#ifndef LINNET_TESTS_FORMATS_SAFETENSORS_SAFETENSORS_WRITER_H_
#define LINNET_TESTS_FORMATS_SAFETENSORS_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace linnet::testing {

/// A file with any header text and any data bytes.
inline std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  return file + header + data;
}

/// Tensors of one f32 file.
class SafetensorsWriter {
 public:
  void Add(const std::string& name, const std::vector<uint64_t>& shape, const std::vector<float>& values) {
    AddBytes(name, "F32", shape,
             std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  }
  void AddBytes(const std::string& name, const std::string& type, const std::vector<uint64_t>& shape,
                const std::string& bytes) {
    std::string dims;
    for (uint64_t dim : shape) {
      if (!dims.empty()) dims += ',';
      dims += std::to_string(dim);
    }
    const std::string begin = std::to_string(data_.size()), end = std::to_string(data_.size() + bytes.size());
    if (!header_.empty()) header_ += ',';
    header_ += '"' + name + "\":{\"dtype\":\"" + type + "\",\"shape\":[" + dims + "],\"data_offsets\":[" + begin;
    header_ += ',' + end + "]}";
    data_ += bytes;
  }
  std::string Bytes() const { return SafetensorsBytes("{" + header_ + "}", data_); }

 private:
  std::string header_, data_;
};

}  // namespace linnet::testing

#endif  // LINNET_TESTS_FORMATS_SAFETENSORS_SAFETENSORS_WRITER_H_
