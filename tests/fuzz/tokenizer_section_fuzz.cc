// Tokenizer section of the model file: a text, a zero byte, and the section; encodes the text with it.
#include "tests/fuzz/aligned.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/use_tokenizer.h"

namespace linnet::fuzz {
namespace {

// Long texts find nothing that short ones do not, and quadratic patterns would take their time.
constexpr size_t kMaxTextBytes = 512;

void Run(Input input) {
  const std::string_view text = input.TakeText().substr(0, kMaxTextBytes);
  const Aligned section(input.Rest());
  static_cast<void>(UseTokenizer(section.bytes(), text));
}

}  // namespace
}  // namespace linnet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  linnet::fuzz::Run({data, size});
  return 0;
}
