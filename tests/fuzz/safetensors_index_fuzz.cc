// The index of sharded safetensors: the bytes are model.safetensors.index.json; the shards beside it stay the same.
#include <string>

#include "formats/safetensors/safetensors_set.h"
#include "tests/formats/safetensors/safetensors_writer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/platforms/temporary_folder.h"

namespace linnet::fuzz {
namespace {

void WriteShard(const std::string& path, const std::string& tensor) {
  testing::SafetensorsWriter writer;
  writer.Add(tensor, {2}, {1.0f, 2.0f});
  testing::WriteFile(path, writer.Bytes());
}

const testing::TemporaryFolder& Folder() {
  static const testing::TemporaryFolder folder;
  static const bool written = [] {
    WriteShard(folder / "a", "x");
    WriteShard(folder / "b", "y");
    return true;
  }();
  (void)written;
  return folder;
}

void Run(Input input) {
  testing::WriteFile(Folder() / "model.safetensors.index.json", std::string(input.RestText()));
  Diagnostic diagnostic;
  const auto set = formats::SafetensorsSet::Open(Folder().path(), &diagnostic);
  if (!set.ok()) return CheckRefusal(diagnostic.text());
  for (const formats::SafetensorsTensor& tensor : set->tensors()) {
    LINNET_CHECK(set->Find(tensor.name) == &tensor);
    Touch(tensor.bytes);
  }
}

}  // namespace
}  // namespace linnet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  linnet::fuzz::Run({data, size});
  return 0;
}
