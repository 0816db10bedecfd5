// Chat template: its text, a zero byte, and messages as JSON (none: a fixed conversation alone).
#include <string>
#include <vector>

#include "core/chat_template.h"
#include "tests/fuzz/fuzz.h"

namespace linnet::fuzz {
namespace {

// The interpreter's own limits end a rendering after seconds under a sanitizer; a small input shows as much.
constexpr size_t kMaxTemplateBytes = 4096;

void CheckRendered(const Status& status, const std::string& out, const Diagnostic& diagnostic) {
  if (!status.ok()) return CheckRefusal(diagnostic.text());
  LINNET_CHECK(out.size() <= ChatTemplate::kMaxOutputBytes);
}

void Run(Input input) {
  const std::string_view text = input.TakeText();
  if (text.size() > kMaxTemplateBytes) return;
  Diagnostic diagnostic;
  const auto chat = ChatTemplate::Parse(text, "<s>", "</s>", &diagnostic);
  if (!chat.ok()) return CheckRefusal(diagnostic.text());
  const std::vector<ChatMessage> messages = {{"system", "Be brief."}, {"user", " Hi <b>\xc3\xa4 "}, {"assistant", ""}};
  ChatTemplateOptions options;
  options.tools_json = R"([{"type":"function","function":{"name":"f","parameters":{"a":[1,2.5,null,true]}}}])";
  std::string out;
  CheckRendered(chat->Render(messages, options, &out, &diagnostic), out, diagnostic);
  if (input.empty()) return;
  diagnostic.Clear();
  CheckRendered(chat->RenderJson(input.RestText(), options, &out, &diagnostic), out, diagnostic);
}

}  // namespace
}  // namespace linnet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  linnet::fuzz::Run({data, size});
  return 0;
}
