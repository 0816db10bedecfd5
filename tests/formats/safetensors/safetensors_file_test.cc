#include "formats/safetensors/safetensors_file.h"

#include <doctest/doctest.h>

#include "tests/formats/safetensors/safetensors_writer.h"

namespace linnet::formats {
namespace {

using linnet::testing::SafetensorsBytes;
using linnet::testing::SafetensorsWriter;

std::span<const std::byte> BytesOf(const std::string& file) {
  return {reinterpret_cast<const std::byte*>(file.data()), file.size()};
}

/// The failure of parsing `file`, which must fail with one line that holds every one of `parts`.
void CheckRefused(const std::string& file, StatusCode code, const std::vector<std::string>& parts) {
  Diagnostic diagnostic;
  const auto result = ParseSafetensors(BytesOf(file), "x.safetensors", &diagnostic);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == code);
  const std::string text = diagnostic.text();
  CAPTURE(text);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text.find("x.safetensors") != std::string::npos);
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
}

std::string OneTensor(const std::string& entry, size_t data_bytes = 16) {
  return SafetensorsBytes("{\"w\":" + entry + "}", std::string(data_bytes, '\1'));
}

TEST_SUITE("safetensors") {
  TEST_CASE("ParseSafetensors: a good file gives names, types, shapes and bytes") {
    SafetensorsWriter writer;
    writer.Add("a", {2, 3}, {1, 2, 3, 4, 5, 6});
    writer.AddBytes("b", "BF16", {2}, std::string("\x80\x3f\x00\xc0", 4));  // 1, -2
    writer.AddBytes("empty", "F32", {0, 4}, "");
    writer.AddBytes("scalar", "I64", {}, std::string(8, '\0'));
    const std::string file = writer.Bytes();
    const auto tensors = ParseSafetensors(BytesOf(file), "x", nullptr);
    REQUIRE(tensors.ok());
    REQUIRE(tensors->size() == 4);
    CHECK((*tensors)[0].name == "a");
    CHECK((*tensors)[0].shape == std::vector<uint64_t>{2, 3});
    CHECK((*tensors)[1].type == SafetensorsType::kBF16);
    CHECK((*tensors)[3].shape.empty());
    float out[6] = {};
    ReadAsF32((*tensors)[0], {1, 2, 3, 1}, out);  // elements 1 and 4
    CHECK(out[0] == 2.0f);
    CHECK(out[1] == 5.0f);
    ReadAsF32((*tensors)[1], {0, 2, 1, 2}, out);
    CHECK(out[0] == 1.0f);
    CHECK(out[2] == -2.0f);
  }

  TEST_CASE("ParseSafetensors: metadata is skipped") {
    const std::string file =
        SafetensorsBytes(R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                         std::string(4, '\0'));
    const auto tensors = ParseSafetensors(BytesOf(file), "x", nullptr);
    REQUIRE(tensors.ok());
    CHECK(tensors->size() == 1);
  }

  TEST_CASE("ReadAsF32: f16 widens exactly") {
    SafetensorsWriter writer;
    writer.AddBytes("h", "F16", {3}, std::string("\x00\x3c\x01\x00\xff\x7b", 6));  // 1, 2^-24, 65504
    const std::string file = writer.Bytes();
    const auto tensors = ParseSafetensors(BytesOf(file), "x", nullptr);
    REQUIRE(tensors.ok());
    float out[3] = {};
    ReadAsF32((*tensors)[0], {0, 3, 1, 1}, out);
    CHECK(out[0] == 1.0f);
    CHECK(out[1] == 0x1p-24f);
    CHECK(out[2] == 65504.0f);
  }

  TEST_CASE("ParseSafetensors: files without a header are refused") {
    CheckRefused("", StatusCode::kInvalidModel, {"found 0 bytes"});
    CheckRefused("1234567", StatusCode::kInvalidModel, {"found 7 bytes"});
    CheckRefused("not a safetensors file at all", StatusCode::kInvalidModel, {"header"});
    CheckRefused(std::string("\x10\0\0\0\0\0\0\0{}", 10), StatusCode::kInvalidModel, {"truncated", "16"});
  }

  TEST_CASE("ParseSafetensors: malformed headers are refused with the place") {
    const auto refused = [](const std::string& header, const std::string& part) {
      CAPTURE(header);
      CheckRefused(SafetensorsBytes(header, std::string(16, '\0')), StatusCode::kInvalidModel, {part});
    };
    refused("", "malformed");
    refused("{", "malformed");
    refused("[]", "malformed");
    refused("{} {}", "malformed");
    refused(R"({"w":1})", "number");
    refused(R"({"w":{}})", "tensor w");
    refused(R"({"w":{"dtype":"F32","shape":[4]}})", "data_offsets");
    refused(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16,16]}})", "data_offsets");
    refused(R"({"w":{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "dtype");
    refused(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"more":1}})", "more");
    refused(R"({"w":{"dtype":"F32","shape":[[4]],"data_offsets":[0,16]}})", "tensor w");
    refused(R"({"w":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", "negative");
    refused(R"({"w":{"dtype":"F32","shape":[4.5],"data_offsets":[0,16]}})", "whole");
    refused(R"({"w":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,16]}})", "whole");
    refused(R"({"w":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,4],"data_offsets":[0,16]}})", "too many");
    refused(R"({"w":{"dtype":{"a":1},"shape":[4],"data_offsets":[0,16]}})", "object");
    refused(std::string(100000, '['), "array");
    refused(
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
        "twice");
  }

  TEST_CASE("ParseSafetensors: a tensor outside the data is refused") {
    CheckRefused(OneTensor(R"({"dtype":"F32","shape":[5],"data_offsets":[0,20]})"), StatusCode::kInvalidModel,
                 {"truncated", "tensor w", "20", "16"});
    CheckRefused(OneTensor(R"({"dtype":"F32","shape":[1],"data_offsets":[8,4]})"), StatusCode::kInvalidModel,
                 {"tensor w"});
    CheckRefused(OneTensor(R"({"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615]})"),
                 StatusCode::kInvalidModel, {"tensor w"});
  }

  TEST_CASE("ParseSafetensors: a shape that does not fit its bytes is refused") {
    CheckRefused(OneTensor(R"({"dtype":"F32","shape":[5],"data_offsets":[0,16]})"), StatusCode::kInvalidModel,
                 {"tensor w", "20", "16"});
    CheckRefused(OneTensor(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]})"),
                 StatusCode::kInvalidModel, {"tensor w"});  // the product overflows
  }

  TEST_CASE("ParseSafetensors: an unknown dtype is refused by name") {
    CheckRefused(OneTensor(R"({"dtype":"Q77","shape":[4],"data_offsets":[0,16]})"), StatusCode::kUnsupported,
                 {"tensor w", "Q77"});
  }

  TEST_CASE("ParseSafetensors: overlapping tensors are refused") {
    CheckRefused(SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                  R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                                  std::string(16, '\0')),
                 StatusCode::kInvalidModel, {"overlap", "a", "b"});
  }

  TEST_CASE("ParseSafetensors: every cut of a good file is refused or equal") {
    SafetensorsWriter writer;
    writer.Add("a", {2, 3}, {1, 2, 3, 4, 5, 6});
    const std::string file = writer.Bytes();
    for (size_t size = 0; size < file.size(); ++size) {
      CAPTURE(size);
      CHECK_FALSE(ParseSafetensors(BytesOf(file).first(size), "x", nullptr).ok());
    }
  }

  TEST_CASE("ParseSafetensors: every changed byte of the header is refused or stays inside the file") {
    SafetensorsWriter writer;
    writer.Add("a", {2, 3}, {1, 2, 3, 4, 5, 6});
    writer.Add("b", {1}, {7});
    const std::string file = writer.Bytes();
    for (size_t at = 0; at + 28 < file.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string changed = file;
        changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
        const auto tensors = ParseSafetensors(BytesOf(changed), "x", nullptr);
        if (!tensors.ok()) continue;
        for (const SafetensorsTensor& tensor : *tensors) {
          const auto* begin = BytesOf(changed).data();
          CHECK(tensor.bytes.data() >= begin);
          CHECK(tensor.bytes.data() + tensor.bytes.size() <= begin + changed.size());
        }
      }
    }
  }
}

}  // namespace
}  // namespace linnet::formats
