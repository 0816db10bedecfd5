// safetensors: the bytes are one file.
#include <vector>

#include "formats/safetensors/safetensors_file.h"
#include "tests/fuzz/fuzz.h"

namespace linnet::fuzz {
namespace {

constexpr uint64_t kMaxRead = 4096;

void Read(const formats::SafetensorsTensor& tensor) {
  Touch(tensor.bytes);
  if (!formats::IsReadableAsF32(tensor.type)) return;
  const uint64_t elements = tensor.bytes.size() / formats::SafetensorsTypeBytes(tensor.type);
  formats::ElementRun run;
  run.count = std::min(elements, kMaxRead);
  run.first = elements - run.count;
  std::vector<float> values(run.count);
  formats::ReadAsF32(tensor, run, values.data());
}

void Run(Input input) {
  const std::span<const std::byte> file = input.Rest();
  Diagnostic diagnostic;
  const auto tensors = formats::ParseSafetensors(file, "fuzz.safetensors", &diagnostic);
  if (!tensors.ok()) return CheckRefusal(diagnostic.text());
  for (const formats::SafetensorsTensor& tensor : *tensors) Read(tensor);
}

}  // namespace
}  // namespace linnet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  linnet::fuzz::Run({data, size});
  return 0;
}
