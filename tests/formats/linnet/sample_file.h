// A complete small model file, as bytes at an aligned address.
#ifndef LINNET_TESTS_FORMATS_LINNET_SAMPLE_FILE_H_
#define LINNET_TESTS_FORMATS_LINNET_SAMPLE_FILE_H_

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/linnet/file_layout.h"
#include "formats/linnet/model_content.h"

namespace linnet::testing {

/// Bytes at a multiple of 64 with nothing readable behind them, so that AddressSanitizer sees every overrun.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::span<const std::byte> bytes) : size_(bytes.size()) {
    const size_t allocated = (size_ + 63) / 64 * 64;
    base_.reset(static_cast<std::byte*>(std::aligned_alloc(64, allocated == 0 ? 64 : allocated)));
    if (size_ != 0) std::memcpy(base_.get(), bytes.data(), size_);
  }
  std::span<std::byte> span() { return {base_.get(), size_}; }
  std::span<const std::byte> span() const { return {base_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> base_;
  size_t size_;
};

/// Content with every optional part: two kinds of block, LongRoPE, MLA and experts, goldens, provenance, texts.
formats::ModelContent SampleContent();
/// A mixture of all types over the tensors that content.config requires.
std::vector<formats::TensorSpec> SampleSpecs(const ModelConfig& config);
/// Byte i of a tensor's data or scales; scales are valid numbers of their type.
std::vector<std::byte> SampleData(const formats::TensorSpec& spec, uint64_t size_bytes, size_t index);
std::vector<std::byte> SampleScales(const formats::TensorSpec& spec, uint64_t size_bytes, size_t index);
/// Writes SampleContent with SampleSpecs to `path`; fails the test where that fails.
void WriteSample(const std::string& path, const formats::ModelContent& content);
/// The same as bytes.
AlignedBytes SampleBytes();

}  // namespace linnet::testing

#endif  // LINNET_TESTS_FORMATS_LINNET_SAMPLE_FILE_H_
