// Templates as models ship them, against what Jinja2 made of them with the settings of Hugging Face transformers.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/chat_template.h"

namespace linnet {
namespace {

using Json = nlohmann::ordered_json;

const std::string kFolder = std::string(LINNET_SHARED_DIR) + "/real/chat-templates/";
constexpr int64_t kNow = 1721952000;  // 2024-07-26, the goldens' date

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string TakeText(Json& context, const char* key) {
  const std::string text = context.contains(key) ? context[key].dump() : std::string();
  context.erase(key);
  return text;
}

/// Renders a golden's template with its context; the diagnostic's text where it fails.
Status RenderGolden(const std::string& text, Json context, std::string* out, Diagnostic* diagnostic) {
  const std::string bos = context.value("bos_token", ""), eos = context.value("eos_token", "");
  auto chat_template = ChatTemplate::Parse(text, bos, eos, diagnostic);
  if (!chat_template.ok()) return chat_template.status();
  ChatTemplateOptions options;
  options.now_unix_seconds = kNow;
  options.absent_is_none = false;  // the goldens were rendered from the contexts alone
  options.add_generation_prompt = context.value("add_generation_prompt", false);
  context.erase("add_generation_prompt");
  options.tools_json = TakeText(context, "tools");
  const std::string messages = TakeText(context, "messages");
  options.extra_context_json = context.dump();
  return chat_template->RenderJson(messages, options, out, diagnostic);
}

}  // namespace

TEST_SUITE("chat template goldens") {
  TEST_CASE("every published template renders byte for byte, or fails where Jinja2 does") {
    const auto goldens_text = ReadFile(kFolder + "goldens.json");
    if (!goldens_text.has_value()) {
      MESSAGE("skipped: " << kFolder << "goldens.json is not there");
      return;
    }
    size_t checked = 0;
    for (const Json& golden : Json::parse(*goldens_text)) {
      const std::string name = golden["template"], context = golden["context"];
      CAPTURE(name);
      CAPTURE(context);
      std::string out;
      Diagnostic diagnostic;
      const Status status =
          RenderGolden(*ReadFile(kFolder + "templates/" + name),
                       Json::parse(*ReadFile(kFolder + "contexts/" + context + ".json")), &out, &diagnostic);
      const std::string found = diagnostic.text();
      CAPTURE(found);
      if (golden.contains("expected")) {
        CHECK(status.ok());
        CHECK(out == golden["expected"].get<std::string>());
      } else {
        // "Type: text": the text is what the user gets to see.
        const std::string error = golden["error"];
        CHECK(!status.ok());
        CHECK(found.find(error.substr(error.find(": ") + 2)) != std::string::npos);
        CHECK((status.code() == StatusCode::kInvalidArgument) == (error.rfind("TemplateError: ", 0) == 0));
      }
      ++checked;
    }
    CHECK(checked == 156);
  }
}

}  // namespace linnet
