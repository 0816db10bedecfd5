// The tokenizer's files of a Hugging Face folder, zero bytes between them, and last a text to encode.
#include <string>

#include "formats/huggingface/tokenizer_json.h"
#include "formats/linnet/tokenizer_section.h"
#include "tests/fuzz/aligned.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/use_tokenizer.h"

namespace linnet::fuzz {
namespace {

constexpr size_t kMaxTextBytes = 512;

formats::HuggingFaceFiles TakeFiles(Input& input) {
  formats::HuggingFaceFiles files;
  for (auto* file : {&files.tokenizer_json, &files.tokenizer_config_json, &files.special_tokens_map_json,
                     &files.generation_config_json, &files.config_json}) {
    const std::string_view text = input.TakeText();
    if (!text.empty()) *file = text;
  }
  return files;
}

void Run(Input input) {
  const formats::HuggingFaceFiles files = TakeFiles(input);
  TokenizerSpec spec;
  std::string chat_template;
  GenerationDefaults generation;
  Diagnostic diagnostic;
  const Status status = formats::ReadHuggingFaceTokenizer(files, &spec, &chat_template, &generation, &diagnostic);
  if (!status.ok()) return CheckRefusal(diagnostic.text());
  const auto section = formats::WriteTokenizerSection(spec, &diagnostic);
  if (!section.ok()) return CheckRefusal(diagnostic.text());
  const Aligned bytes(*section);
  // What the writer accepts, the reader accepts.
  LINNET_CHECK(UseTokenizer(bytes.bytes(), input.RestText().substr(0, kMaxTextBytes)));
}

}  // namespace
}  // namespace linnet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  linnet::fuzz::Run({data, size});
  return 0;
}
