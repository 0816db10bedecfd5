#include "formats/gguf/gguf_file.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/base/file_mapping.h"
#include "tests/support/gguf_writer.h"

TEST_SUITE_BEGIN("formats/gguf");

namespace linnet::formats {
namespace {

using test::GgufWriter;
using Bytes = GgufWriter::Bytes;

// Expects a refusal with this code whose line contains `part`.
void CheckRefused(const Bytes& bytes, StatusCode code, const std::string& part) {
  Diagnostic diagnostic;
  const Result<GgufFile> file = GgufFile::Parse(bytes, "test.gguf", &diagnostic);
  REQUIRE_FALSE(file.ok());
  const std::string text = diagnostic.text();
  CAPTURE(text);
  CHECK(file.status().code() == code);
  CHECK(text.find(part) != std::string::npos);
  CHECK(text.find("test.gguf") == 0);
}

GgufFile ParseOrFail(const Bytes& bytes) {
  Diagnostic diagnostic;
  Result<GgufFile> file = GgufFile::Parse(bytes, "test.gguf", &diagnostic);
  INFO(std::string(diagnostic.text()));
  REQUIRE(file.ok());
  return std::move(file).value();
}

// A file with a value of every type and two tensors.
GgufWriter MakeSample() {
  GgufWriter writer;
  writer.Scalar("u8", GgufType::kUint8, uint8_t{200});
  writer.Scalar("i8", GgufType::kInt8, int8_t{-5});
  writer.Scalar("u16", GgufType::kUint16, uint16_t{60000});
  writer.Scalar("i16", GgufType::kInt16, int16_t{-300});
  writer.Set("u32", uint32_t{4000000000});
  writer.Set("i32", int32_t{-70000});
  writer.Set("u64", uint64_t{1} << 40);
  writer.Scalar("i64", GgufType::kInt64, int64_t{-1} << 40);
  writer.Set("f32", 0.5f);
  writer.Set("f64", 0.25);
  writer.Set("bool", true);
  writer.Set("text", "a\tb");
  const std::vector<std::string> strings = {"", "one", "two"};
  writer.Set("strings", strings);
  const std::vector<float> floats = {1.0f, -2.0f};
  writer.Set("floats", floats);
  const std::vector<int32_t> ints = {3, 4, 5};
  writer.Set("ints", ints);
  writer.Set("bools", std::vector<bool>{true, false, true});
  const std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {7};
  writer.AddF32("a", {2, 3}, a);
  writer.AddF32("b", {1}, b);
  return writer;
}

TEST_CASE("GgufFile: reads every value type") {
  const Bytes bytes = MakeSample().Finish();
  const GgufFile file = ParseOrFail(bytes);
  CHECK(file.metadata().size() == 16);
  CHECK(file.Find("u8")->AsUnsigned() == 200);
  CHECK_FALSE(file.Find("i8")->AsUnsigned().has_value());
  CHECK(file.Find("i8")->AsNumber() == -5.0);
  CHECK(file.Find("u16")->AsUnsigned() == 60000);
  CHECK(file.Find("i16")->AsNumber() == -300.0);
  CHECK(file.Find("u32")->AsUnsigned() == 4000000000u);
  CHECK(file.Find("i32")->AsNumber() == -70000.0);
  CHECK(file.Find("u64")->AsUnsigned() == uint64_t{1} << 40);
  CHECK(file.Find("i64")->AsNumber() == -0x1p40);
  CHECK(file.Find("f32")->AsNumber() == 0.5);
  CHECK(file.Find("f64")->AsNumber() == 0.25);
  CHECK_FALSE(file.Find("f64")->AsUnsigned().has_value());
  CHECK(file.Find("bool")->AsBool() == true);
  CHECK_FALSE(file.Find("bool")->AsNumber().has_value());
  CHECK(file.Find("text")->AsString() == "a\tb");
  CHECK(file.Find("absent") == nullptr);
}

TEST_CASE("GgufFile: reads arrays, and only as what they are") {
  const Bytes bytes = MakeSample().Finish();
  const GgufFile file = ParseOrFail(bytes);
  std::vector<std::string_view> strings;
  REQUIRE(file.Find("strings")->AsStringArray(strings));
  CHECK(strings == std::vector<std::string_view>{"", "one", "two"});
  std::vector<double> numbers;
  REQUIRE(file.Find("floats")->AsNumberArray(numbers));
  CHECK(numbers == std::vector<double>{1.0, -2.0});
  std::vector<uint64_t> unsigned_numbers;
  REQUIRE(file.Find("ints")->AsUnsignedArray(unsigned_numbers));
  CHECK(unsigned_numbers == std::vector<uint64_t>{3, 4, 5});
  CHECK_FALSE(file.Find("floats")->AsUnsignedArray(unsigned_numbers));
  std::vector<bool> bools;
  REQUIRE(file.Find("bools")->AsBoolArray(bools));
  CHECK(bools == std::vector<bool>{true, false, true});
  CHECK_FALSE(file.Find("strings")->AsNumberArray(numbers));
  CHECK_FALSE(file.Find("bools")->AsNumberArray(numbers));
  CHECK_FALSE(file.Find("u8")->AsStringArray(strings));
  CHECK_FALSE(file.Find("strings")->AsString().has_value());
}

TEST_CASE("GgufFile: reads arrays of arrays up to the limit") {
  const auto nested = [](uint32_t depth) {
    Bytes value;
    for (uint32_t i = 1; i < depth; ++i) GgufWriter::ArrayHeader(value, GgufType::kArray, 1);
    GgufWriter::ArrayHeader(value, GgufType::kUint8, 2);
    value.push_back(std::byte{1});
    value.push_back(std::byte{2});
    GgufWriter writer;
    writer.SetRaw("nested", 9, value);
    return writer.Finish();
  };
  const Bytes at_limit = nested(kMaxGgufArrayDepth);
  CHECK(ParseOrFail(at_limit).Find("nested")->element_type() == GgufType::kArray);
  CheckRefused(nested(kMaxGgufArrayDepth + 1), StatusCode::kInvalidModel, "nested more than 4 deep");
  CheckRefused(nested(20000), StatusCode::kInvalidModel, "nested");
}

TEST_CASE("GgufFile: finds tensors with their dims, outermost first") {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer = MakeSample();
    writer.version = version;
    const Bytes bytes = writer.Finish();
    const GgufFile file = ParseOrFail(bytes);
    CHECK(file.version() == version);
    REQUIRE(file.tensors().size() == 2);
    const GgufTensor* a = file.FindTensor("a");
    REQUIRE(a != nullptr);
    CHECK(a->rank == 2);
    CHECK(a->rows() == 2);
    CHECK(a->columns() == 3);
    CHECK(a->row_bytes() == 12);
    float last = 0;
    std::memcpy(&last, a->data.data() + 20, 4);
    CHECK(last == 6.0f);
    CHECK(file.FindTensor("b")->rows() == 1);
    CHECK(file.FindTensor("c") == nullptr);
  }
}

TEST_CASE("GgufFile: a file cut at any byte is refused") {
  const Bytes bytes = MakeSample().Finish();
  for (size_t length = 0; length < bytes.size(); ++length) {
    CAPTURE(length);
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));  // its own end, for sanitizers
    Diagnostic diagnostic;
    const Result<GgufFile> file = GgufFile::Parse(cut, "test.gguf", &diagnostic);
    REQUIRE_FALSE(file.ok());
    CHECK(file.status().code() == StatusCode::kInvalidModel);
    CHECK_FALSE(diagnostic.empty());
  }
}

TEST_CASE("GgufFile: a file with any byte changed parses or is refused") {
  const Bytes bytes = MakeSample().Finish();
  size_t refused = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      Bytes changed = bytes;
      changed[at] ^= static_cast<std::byte>(flip);
      Diagnostic diagnostic;
      const Result<GgufFile> file = GgufFile::Parse(changed, "test.gguf", &diagnostic);
      if (file.ok()) continue;
      ++refused;
      CHECK_FALSE(diagnostic.empty());
    }
  }
  CHECK(refused > bytes.size() / 4);  // most of the small file is structure
}

TEST_CASE("GgufFile: refuses other magics, versions and byte orders by name") {
  Bytes bytes = MakeSample().Finish();
  bytes[0] = std::byte{'X'};
  CheckRefused(bytes, StatusCode::kInvalidModel, "not a GGUF file");
  GgufWriter writer = MakeSample();
  writer.version = 1;
  CheckRefused(writer.Finish(), StatusCode::kUnsupported, "version 1 is not supported, expected 2 or 3");
  writer.version = 4;
  CheckRefused(writer.Finish(), StatusCode::kUnsupported, "version 4");
  writer.version = 3u << 24;
  CheckRefused(writer.Finish(), StatusCode::kUnsupported, "big-endian");
}

// The sample's header with other counts.
Bytes WithCounts(uint64_t n_tensors, uint64_t n_metadata) {
  Bytes bytes = MakeSample().Finish();
  std::memcpy(bytes.data() + 8, &n_tensors, 8);
  std::memcpy(bytes.data() + 16, &n_metadata, 8);
  return bytes;
}

TEST_CASE("GgufFile: refuses counts that the file cannot hold before allocating for them") {
  CheckRefused(WithCounts(2, std::numeric_limits<uint64_t>::max()), StatusCode::kInvalidModel, "metadata count");
  CheckRefused(WithCounts(std::numeric_limits<uint64_t>::max(), 16), StatusCode::kInvalidModel, "tensor count");
  CheckRefused(WithCounts(1u << 20, 16), StatusCode::kInvalidModel, "tensor count");
  for (const GgufType element : {GgufType::kUint64, GgufType::kString, GgufType::kArray}) {
    Bytes value;
    GgufWriter::ArrayHeader(value, element, std::numeric_limits<uint64_t>::max() / 4);
    GgufWriter writer;
    writer.SetRaw("array", 9, value);
    CheckRefused(writer.Finish(), StatusCode::kInvalidModel, "truncated");
  }
}

TEST_CASE("GgufFile: refuses unknown value types") {
  GgufWriter writer;
  writer.SetRaw("key", 13, {});
  writer.Set("filler", "to have bytes left");
  CheckRefused(writer.Finish(), StatusCode::kInvalidModel, "metadata key \"key\": value type 13 is unknown");
  Bytes value;
  GgufWriter::ArrayHeader(value, static_cast<GgufType>(99), 1);
  GgufWriter in_array;
  in_array.SetRaw("key", 9, value);
  CheckRefused(in_array.Finish(), StatusCode::kInvalidModel, "array element type 99");
}

TEST_CASE("GgufFile: refuses keys and tensors that appear twice") {
  GgufWriter keys = MakeSample();
  keys.Set("u8", uint32_t{1});
  CheckRefused(keys.Finish(), StatusCode::kInvalidModel, "metadata key \"u8\" appears twice");
  GgufWriter tensors = MakeSample();
  const std::vector<float> values = {1};
  tensors.AddF32("b", {1}, values);
  CheckRefused(tensors.Finish(), StatusCode::kInvalidModel, "tensor \"b\" appears twice");
}

TEST_CASE("GgufFile: refuses tensors that overlap, leave the file or are misaligned") {
  GgufWriter overlap = MakeSample();
  overlap.AddTensorInfo("c", {4}, kGgmlF32, 0);
  CheckRefused(overlap.Finish(), StatusCode::kInvalidModel, "overlap");
  GgufWriter outside = MakeSample();
  outside.AddTensorInfo("c", {4}, kGgmlF32, 1u << 20);
  CheckRefused(outside.Finish(), StatusCode::kInvalidModel, "tensor \"c\" needs 16 bytes");
  GgufWriter far = MakeSample();
  far.AddTensorInfo("c", {4}, kGgmlF32, ~uint64_t{31});
  CheckRefused(far.Finish(), StatusCode::kInvalidModel, "tensor \"c\"");
  GgufWriter odd = MakeSample();
  odd.AddTensorInfo("c", {4}, kGgmlF32, 33);
  CheckRefused(odd.Finish(), StatusCode::kInvalidModel, "offset 33, expected a multiple of 32");
}

TEST_CASE("GgufFile: refuses bad ranks, dims and types of tensors") {
  const auto with = [](std::vector<uint64_t> dims, uint32_t type) {
    GgufWriter writer = MakeSample();
    writer.AddTensorInfo("c", std::move(dims), type, 64);
    return writer.Finish();
  };
  CheckRefused(with({}, kGgmlF32), StatusCode::kInvalidModel, "0 dimensions");
  CheckRefused(with({1, 1, 1, 1, 1}, kGgmlF32), StatusCode::kInvalidModel, "5 dimensions");
  CheckRefused(with({2, 0}, kGgmlF32), StatusCode::kInvalidModel, "dimension of 0");
  CheckRefused(with({33}, kGgmlQ4_0), StatusCode::kInvalidModel, "expected a multiple of 32 for Q4_0");
  CheckRefused(with({32}, 4), StatusCode::kUnsupported, "type number 4");
  CheckRefused(with({uint64_t{1} << 32, uint64_t{1} << 32}, kGgmlF32), StatusCode::kInvalidModel, "overflows 64 bits");
  CheckRefused(with({uint64_t{1} << 62}, kGgmlF64), StatusCode::kInvalidModel, "overflows 64 bits");
}

TEST_CASE("GgufFile: honours general.alignment and refuses what is none") {
  GgufWriter wide;
  wide.alignment = 256;
  wide.Set("general.alignment", uint32_t{256});
  const std::vector<float> values = {5};
  wide.AddF32("a", {1}, values);
  wide.AddF32("b", {1}, values);
  const Bytes bytes = wide.Finish();
  const GgufFile file = ParseOrFail(bytes);
  CHECK(file.alignment() == 256);
  CHECK(file.FindTensor("b")->data.data() - file.FindTensor("a")->data.data() == 256);
  for (const uint32_t bad : {0u, 48u, kMaxGgufAlignment * 2}) {
    GgufWriter writer;
    writer.Set("general.alignment", bad);
    CheckRefused(writer.Finish(), StatusCode::kInvalidModel, "general.alignment");
  }
  GgufWriter text;
  text.Set("general.alignment", "32");
  CheckRefused(text.Finish(), StatusCode::kInvalidModel, "general.alignment");
}

TEST_CASE("GgufFile: reads the shared vocabularies and models") {
  struct Sample {
    const char* path;
    size_t tensors, tokens;
  };
  const Sample samples[] = {{"/real/tokenizers/ggml-vocab-gpt-2.gguf", 0, 50257},
                            {"/real/tokenizers/ggml-vocab-llama-spm.gguf", 0, 32000},
                            {"/real/stories260k/gguf/stories260K-f32.gguf", 47, 512},
                            {"/real/stories260k/gguf/stories260K-Q4_K_M.gguf", 47, 512}};
  for (const Sample& sample : samples) {
    const std::string path = std::string(LINNET_SHARED_DIR) + sample.path;
    CAPTURE(path);
    Diagnostic diagnostic;
    const Result<FileMapping> mapping = FileMapping::Open(path, &diagnostic);
    if (!mapping.ok()) {
      MESSAGE("skipped: shared data is absent: " << path);
      continue;
    }
    const Result<GgufFile> file = GgufFile::Parse(mapping->bytes(), path, &diagnostic);
    INFO(std::string(diagnostic.text()));
    REQUIRE(file.ok());
    CHECK(file->tensors().size() == sample.tensors);
    std::vector<std::string_view> tokens;
    REQUIRE(file->Find("tokenizer.ggml.tokens") != nullptr);
    CHECK(file->Find("tokenizer.ggml.tokens")->AsStringArray(tokens));
    CHECK(tokens.size() == sample.tokens);
  }
}

}  // namespace
}  // namespace linnet::formats

TEST_SUITE_END();
