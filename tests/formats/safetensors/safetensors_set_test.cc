#include "formats/safetensors/safetensors_set.h"

#include <doctest/doctest.h>

#include "tests/formats/safetensors/safetensors_writer.h"
#include "tests/platforms/temporary_folder.h"

namespace linnet::formats {
namespace {

using linnet::testing::SafetensorsWriter;
using linnet::testing::TemporaryFolder;
using linnet::testing::WriteFile;

constexpr char kIndex[] = "model.safetensors.index.json";

std::string FileWith(const std::string& name) {
  SafetensorsWriter writer;
  writer.Add(name, {2}, {1, 2});
  return writer.Bytes();
}

std::string Refusal(const TemporaryFolder& folder, StatusCode code) {
  Diagnostic diagnostic;
  const auto set = SafetensorsSet::Open(folder.path(), &diagnostic);
  CHECK_FALSE(set.ok());
  if (!set.ok()) CHECK(set.status().code() == code);
  return diagnostic.text();
}

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_SUITE("safetensors") {
  TEST_CASE("SafetensorsSet: a single file is found by its name") {
    TemporaryFolder folder;
    WriteFile(folder / "model.safetensors", FileWith("a"));
    const auto set = SafetensorsSet::Open(folder.path(), nullptr);
    REQUIRE(set.ok());
    CHECK(set->files().size() == 1);
    REQUIRE(set->Find("a") != nullptr);
    CHECK(set->Find("b") == nullptr);
    set->Release(*set->Find("a"));
    float out[2] = {};
    ReadAsF32(*set->Find("a"), {0, 2, 1, 1}, out);
    CHECK(out[1] == 2.0f);  // released pages are read again
  }

  TEST_CASE("SafetensorsSet: shards are found through the index") {
    TemporaryFolder folder;
    WriteFile(folder / "one.safetensors", FileWith("a"));
    WriteFile(folder / "two.safetensors", FileWith("b"));
    WriteFile(folder / kIndex, R"({"metadata":{"total_size":16,"more":[{"x":1}]},)"
                               R"("weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
    auto set = SafetensorsSet::Open(folder.path(), nullptr);
    REQUIRE(set.ok());
    CHECK(set->files().size() == 3);  // and the index
    const SafetensorsSet moved = std::move(set).value();
    CHECK(moved.Find("a") != nullptr);
    CHECK(moved.Find("b") != nullptr);
  }

  TEST_CASE("SafetensorsSet: a directory without weights is refused") {
    TemporaryFolder folder;
    const std::string text = Refusal(folder, StatusCode::kIoError);
    CHECK(Contains(text, "model.safetensors"));
    CHECK(Contains(text, folder.path()));
  }

  TEST_CASE("SafetensorsSet: an index never reaches outside its directory") {
    TemporaryFolder folder;
    WriteFile(folder / "secret.safetensors", FileWith("a"));
    const std::string names[] = {"../secret.safetensors",  "/etc/passwd",       "sub/one.safetensors",   "..", ".", "",
                                 "sub\\\\one.safetensors", "c:one.safetensors", "one\\u0000.safetensors"};
    for (const std::string& name : names) {
      CAPTURE(name);
      WriteFile(folder / kIndex, "{\"weight_map\":{\"a\":\"" + name + "\"}}");
      CHECK(Contains(Refusal(folder, StatusCode::kInvalidModel), "directory"));
    }
  }

  TEST_CASE("SafetensorsSet: a missing shard is one line that names it") {
    TemporaryFolder folder;
    WriteFile(folder / kIndex, R"({"weight_map":{"a":"gone.safetensors"}})");
    const std::string text = Refusal(folder, StatusCode::kIoError);
    CHECK(Contains(text, "gone.safetensors"));
    CHECK(Contains(text, kIndex));
  }

  TEST_CASE("SafetensorsSet: a truncated shard is one line that names it") {
    TemporaryFolder folder;
    const std::string file = FileWith("a");
    WriteFile(folder / "one.safetensors", file.substr(0, file.size() - 1));
    WriteFile(folder / kIndex, R"({"weight_map":{"a":"one.safetensors"}})");
    const std::string text = Refusal(folder, StatusCode::kInvalidModel);
    CHECK(Contains(text, "one.safetensors"));
    CHECK(Contains(text, "truncated"));
  }

  TEST_CASE("SafetensorsSet: a tensor that its shard lacks is refused by name") {
    TemporaryFolder folder;
    WriteFile(folder / "one.safetensors", FileWith("a"));
    WriteFile(folder / kIndex, R"({"weight_map":{"a":"one.safetensors","lost":"one.safetensors"}})");
    CHECK(Contains(Refusal(folder, StatusCode::kInvalidModel), "lost"));
  }

  TEST_CASE("SafetensorsSet: a tensor in two shards is refused by name") {
    TemporaryFolder folder;
    SafetensorsWriter both;
    both.Add("a", {1}, {1});
    both.Add("b", {1}, {1});
    WriteFile(folder / "one.safetensors", FileWith("a"));
    WriteFile(folder / "two.safetensors", both.Bytes());
    WriteFile(folder / kIndex, R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
    CHECK(Contains(Refusal(folder, StatusCode::kInvalidModel), "tensor a"));
  }

  TEST_CASE("SafetensorsSet: malformed indexes are refused") {
    TemporaryFolder folder;
    const std::string texts[] = {"",
                                 "[]",
                                 "\"a\"",
                                 "{",
                                 R"({"weight_map":[]})",
                                 R"({"weight_map":["x"]})",
                                 R"({"weight_map":{"a":1}})",
                                 R"({"weight_map":{"a":{"b":"c"}}})",
                                 R"({"metadata":{}})",
                                 R"({"weight_map":{"a":"x","a":"x"}})",
                                 std::string(100000, '[')};
    for (const std::string& text : texts) {
      CAPTURE(text.substr(0, 40));
      WriteFile(folder / kIndex, text);
      CHECK(Contains(Refusal(folder, StatusCode::kInvalidModel), kIndex));
    }
  }
}

}  // namespace
}  // namespace linnet::formats
