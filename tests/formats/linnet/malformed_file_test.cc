// Files that are cut or changed: every one is refused or opened, and nothing is read outside its bytes.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "formats/linnet/describe.h"
#include "formats/linnet/metadata.h"
#include "formats/linnet/model_file.h"
#include "tests/formats/linnet/sample_file.h"
#include "tests/support/guarded.h"

namespace linnet::formats {
namespace {

using namespace linnet::testing;

// Opens; where that succeeds, touches everything that a reader may touch. Returns whether it did.
bool OpenAndUse(std::span<const std::byte> bytes) {
  Diagnostic diagnostic;
  const auto file = ModelFile::FromBytes(bytes, &diagnostic);
  if (!file.ok()) {
    CHECK_FALSE(diagnostic.empty());
    CHECK(std::string(diagnostic.text()).find('\n') == std::string::npos);
    return false;
  }
  unsigned sum = 0;
  for (const TensorView& tensor : file->view().tensors()) {
    if (!tensor.data.empty())
      sum += static_cast<unsigned>(tensor.data.front()) + static_cast<unsigned>(tensor.data.back());
    if (!tensor.scales.empty()) sum += static_cast<unsigned>(tensor.scales.back());
  }
  CHECK(sum < ~0u);
  CHECK_FALSE(DescribeModel(*file, {true}).empty());
  CHECK_FALSE(DescribeModelJson(*file).empty());
  return true;
}

FileHeader HeaderOf(std::span<const std::byte> bytes) {
  FileHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header;
}

// Which numbers a 64-bit or 32-bit field is replaced by.
uint64_t NastyValue(Random& random) {
  constexpr uint64_t kValues[] = {0,
                                  1,
                                  63,
                                  64,
                                  65535,
                                  65536,
                                  0x7fffffff,
                                  0x80000000,
                                  0xffffffff,
                                  0x100000000u,
                                  ~uint64_t{0},
                                  ~uint64_t{63},
                                  ~uint64_t{0} << 16};
  return kValues[random.Bits() % std::size(kValues)];
}

TEST_SUITE("formats") {
  TEST_CASE("ModelFile: refuses a file that is cut anywhere") {
    const AlignedBytes whole = SampleBytes();
    const size_t size = whole.span().size();
    const size_t metadata = HeaderOf(whole.span()).metadata_offset;
    std::vector<size_t> lengths;
    for (size_t n = 0; n <= 256; ++n) lengths.push_back(n);
    for (size_t n = 1000; n < metadata; n += 9973) lengths.push_back(n);
    for (size_t n = metadata - 64; n < size; n += 7) lengths.push_back(n);
    lengths.push_back(size - 1);
    for (const size_t length : lengths) {
      const AlignedBytes part(whole.span().first(length));
      CAPTURE(length);
      REQUIRE_FALSE(OpenAndUse(part.span()));
    }
  }

  TEST_CASE("ModelFile: refuses bytes behind its end") {
    const AlignedBytes whole = SampleBytes();
    std::vector<std::byte> longer(whole.span().begin(), whole.span().end());
    longer.resize(longer.size() + 64);
    const AlignedBytes bytes(longer);
    CHECK_FALSE(OpenAndUse(bytes.span()));
  }

  TEST_CASE("ModelFile: stays within its bytes whatever bit of header and metadata is flipped") {
    const AlignedBytes whole = SampleBytes();
    const FileHeader header = HeaderOf(whole.span());
    AlignedBytes bytes(whole.span());
    size_t n_opened = 0, n_tried = 0;
    const auto flip = [&](size_t offset, unsigned bit) {
      bytes.span()[offset] ^= static_cast<std::byte>(1u << bit);
      n_opened += OpenAndUse(bytes.span()) ? 1 : 0;
      ++n_tried;
      bytes.span()[offset] = whole.span()[offset];
    };
    for (size_t offset = 0; offset < sizeof(FileHeader); ++offset) flip(offset, static_cast<unsigned>(offset) % 8);
    // Seven is prime to eight, so that the bits of a byte and its neighbours differ from round to round.
    for (size_t i = 0; i < header.metadata_bytes; ++i)
      flip(header.metadata_offset + i, static_cast<unsigned>(i * 7) % 8);
    MESSAGE(n_tried, " flips, ", n_opened, " of them opened");
    CHECK(n_opened < n_tried);
  }

  TEST_CASE("ModelFile: stays within its bytes whatever numbers the metadata holds") {
    const AlignedBytes whole = SampleBytes();
    const FileHeader header = HeaderOf(whole.span());
    AlignedBytes bytes(whole.span());
    Random random(7);
    size_t n_opened = 0;
    constexpr size_t kRounds = 6000;
    for (size_t round = 0; round < kRounds; ++round) {
      const size_t n_changes = 1 + random.Bits() % 3;
      for (size_t change = 0; change < n_changes; ++change) {
        const size_t width = random.Bits() % 2 == 0 ? 8 : 4;
        const bool in_header = random.Bits() % 8 == 0;
        const size_t begin = in_header ? 12 : header.metadata_offset;
        const size_t length = in_header ? 28 : header.metadata_bytes;
        const size_t offset = begin + random.Bits() % ((length - width) / 4 + 1) * 4;
        const uint64_t value = NastyValue(random);
        std::memcpy(bytes.span().data() + offset, &value, width);
      }
      CAPTURE(round);
      n_opened += OpenAndUse(bytes.span()) ? 1 : 0;
      std::copy(whole.span().begin(), whole.span().begin() + sizeof(FileHeader), bytes.span().begin());
      std::copy(whole.span().begin() + header.metadata_offset, whole.span().end(),
                bytes.span().begin() + header.metadata_offset);
    }
    MESSAGE(kRounds, " changes, ", n_opened, " of them opened");
    CHECK(n_opened < kRounds);
  }

  TEST_CASE("ParseMetadata: refuses buffers of noise") {
    Random random(11);
    for (size_t round = 0; round < 500; ++round) {
      std::vector<std::byte> noise(random.Bits() % 600);
      for (std::byte& byte : noise) byte = static_cast<std::byte>(random.Bits());
      if (noise.size() >= 8) std::memcpy(&noise[4], "LNNT", 4);
      const AlignedBytes bytes(noise);
      CHECK_FALSE(ParseMetadata(bytes.span(), nullptr).ok());
    }
  }
}

}  // namespace
}  // namespace linnet::formats
