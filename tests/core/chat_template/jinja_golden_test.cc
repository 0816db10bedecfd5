// The template language against Jinja2: tests/golden/make_jinja_goldens.py made the cases.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "core/chat_template.h"

namespace linnet {
namespace {

using Json = nlohmann::ordered_json;

Json ReadGolden() {
  std::ifstream file(std::string(LINNET_GOLDEN_DIR) + "/jinja/cases.json", std::ios::binary);
  return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace

TEST_SUITE("jinja goldens") {
  TEST_CASE("expressions, statements and white space are Jinja2's") {
    const Json golden = ReadGolden();
    const std::string context = golden["context"].dump();
    REQUIRE(golden["cases"].size() > 130);
    for (const Json& example : golden["cases"]) {
      const std::string text = example["template"];
      CAPTURE(text);
      Diagnostic diagnostic;
      std::string out;
      Status status;
      const auto chat_template = ChatTemplate::Parse(text, "", "", &diagnostic);
      if (chat_template.ok()) {
        ChatTemplateOptions options;
        options.extra_context_json = context;
        options.now_unix_seconds = 1721952000;
        status = chat_template->RenderJson("[]", options, &out, &diagnostic);
      } else {
        status = chat_template.status();
      }
      const std::string found = diagnostic.text();
      CAPTURE(found);
      CHECK(status.ok() == example.contains("expected"));
      if (example.contains("expected")) CHECK(out == example["expected"].get<std::string>());
    }
  }
}

}  // namespace linnet
