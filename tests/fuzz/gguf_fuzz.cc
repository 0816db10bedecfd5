// GGUF: the bytes are one file. Where it is accepted, rows of every tensor are read.
#include <vector>

#include "core/base/checked.h"
#include "formats/gguf/checkpoint.h"
#include "formats/linnet/tokenizer_section.h"
#include "tests/fuzz/fuzz.h"

namespace linnet::fuzz {
namespace {

// A description is accepted only where the file holds its weights, so that a row of it is bounded by the input.
void ReadRows(const formats::Checkpoint& checkpoint, const TensorRequirement& tensor) {
  const uint64_t rows = tensor.rank == 1 ? 1 : tensor.dims[tensor.rank - 2];
  const uint64_t columns = tensor.dims[tensor.rank - 1];
  const uint64_t groups = tensor.rank == 3 ? tensor.dims[0] : 1;
  std::vector<float> out(columns);
  Diagnostic diagnostic;
  for (const uint64_t row : {uint64_t{0}, rows / 2, rows - 1}) {
    const Status status = checkpoint.ReadRows(tensor, groups - 1, row, 1, out, &diagnostic);
    if (!status.ok()) CheckRefusal(diagnostic.text());
  }
  LINNET_CHECK(!checkpoint.ReadRows(tensor, 0, rows, 1, out, &diagnostic).ok());
}

void Run(Input input) {
  Diagnostic diagnostic;
  const auto checkpoint = formats::OpenGgufCheckpointFromBytes(input.Rest(), "fuzz.gguf", &diagnostic);
  if (!checkpoint.ok()) return CheckRefusal(diagnostic.text());
  const formats::CheckpointInfo& info = (*checkpoint)->info();
  for (const TensorRequirement& tensor : RequiredTensors(info.config)) ReadRows(**checkpoint, tensor);
  const auto section = formats::WriteTokenizerSection(info.tokenizer, &diagnostic);
  if (!section.ok()) CheckRefusal(diagnostic.text());
}

}  // namespace
}  // namespace linnet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  linnet::fuzz::Run({data, size});
  return 0;
}
