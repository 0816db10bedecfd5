// config.json: the bytes are its text.
#include "core/base/model_view.h"
#include "formats/huggingface/config.h"
#include "tests/fuzz/fuzz.h"

namespace linnet::fuzz {
namespace {

void Run(Input input) {
  Diagnostic diagnostic;
  const auto config = formats::ReadHuggingFaceConfig(input.RestText(), &diagnostic);
  if (!config.ok()) return CheckRefusal(diagnostic.text());
  LINNET_CHECK(ValidateModelConfig(*config).ok());
  LINNET_CHECK(!RequiredTensors(*config).empty());
}

}  // namespace
}  // namespace linnet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  linnet::fuzz::Run({data, size});
  return 0;
}
