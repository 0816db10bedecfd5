#include "core/chat_template.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/base/utf8.h"
#include "core/jinja/interpreter.h"
#include "core/jinja/program.h"

namespace linnet {
namespace {

using Json = nlohmann::ordered_json;  // templates show the members in their order
using jinja::Dict;
using jinja::List;
using jinja::Value;

constexpr int kMaxJsonDepth = 64;
constexpr size_t kMaxJsonBytes = size_t{1} << 24;

Value ToValue(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::Int(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      return json.get<uint64_t>() <= INT64_MAX ? Value::Int(json.get<int64_t>()) : Value::Float(json.get<double>());
    case Json::value_t::number_float:
      return Value::Float(json.get<double>());
    case Json::value_t::string:
      return Value::String(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      List items;
      for (const Json& item : json) items.push_back(ToValue(item));
      return Value::MakeList(std::move(items));
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.entries.emplace_back(Value::String(key), ToValue(item));
      return Value::MakeDict(std::move(dict));
    }
    default:
      return Value();
  }
}

/// Parses JSON of the caller; what is nested more deeply than kMaxJsonDepth is refused.
Status ParseJson(const char* what, std::string_view text, bool want_array, Value* out, Diagnostic* diagnostic) {
  bool too_deep = false;
  const auto limit_depth = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxJsonDepth;
    return !too_deep;
  };
  const bool fits = text.size() <= kMaxJsonBytes;
  const Json json = fits ? Json::parse(text.begin(), text.end(), limit_depth, /*allow_exceptions=*/false) : Json();
  if (too_deep || !(want_array ? json.is_array() : json.is_object())) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "a JSON argument of the chat template is invalid",
                "%s: expected a JSON %s of at most %zu bytes and %d levels", what, want_array ? "array" : "object",
                kMaxJsonBytes, kMaxJsonDepth);
  }
  *out = ToValue(json);
  return Status::Ok();
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Program program;
  std::string bos_token, eos_token;

  Status Render(Value messages, const ChatTemplateOptions& options, std::string* out, Diagnostic* diagnostic) const;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::Parse(std::string_view text, std::string_view bos_token, std::string_view eos_token,
                                         Diagnostic* diagnostic) {
  if (text.size() > kMaxTemplateBytes || !IsValidUtf8(text)) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "the chat template is too long or no text",
                "chat template: %zu bytes, expected UTF-8 of at most %zu", text.size(), kMaxTemplateBytes);
  }
  auto impl = std::make_unique<Impl>();
  LINNET_RETURN_IF_ERROR(jinja::ParseTemplate(text, &impl->program, diagnostic));
  AppendValidUtf8(bos_token, &impl->bos_token);
  AppendValidUtf8(eos_token, &impl->eos_token);
  return ChatTemplate(std::move(impl));
}

Status ChatTemplate::Impl::Render(Value messages, const ChatTemplateOptions& options, std::string* out,
                                  Diagnostic* diagnostic) const {
  out->clear();
  Dict globals;
  const auto set = [&](const char* name, Value value) { globals.Set(Value::String(name), std::move(value)); };
  set("messages", std::move(messages));
  if (options.absent_is_none) {
    set("tools", Value());
    set("documents", Value());
  }
  set("add_generation_prompt", Value::Bool(options.add_generation_prompt));
  if (!bos_token.empty()) set("bos_token", Value::String(bos_token));
  if (!eos_token.empty()) set("eos_token", Value::String(eos_token));
  if (!options.tools_json.empty()) {
    Value tools;
    LINNET_RETURN_IF_ERROR(ParseJson("tools", options.tools_json, true, &tools, diagnostic));
    set("tools", std::move(tools));
  }
  if (!options.extra_context_json.empty()) {
    Value extra;
    LINNET_RETURN_IF_ERROR(ParseJson("extra context", options.extra_context_json, false, &extra, diagnostic));
    for (const auto& [key, value] : extra.dict().entries) globals.Set(key, value);
  }
  const Status status =
      jinja::Interpreter(program, options.now_unix_seconds, kMaxOutputBytes, diagnostic).Run(std::move(globals), out);
  if (!status.ok()) out->clear();
  return status;
}

Status ChatTemplate::Render(std::span<const ChatMessage> messages, const ChatTemplateOptions& options, std::string* out,
                            Diagnostic* diagnostic) const {
  List list;
  for (const ChatMessage& message : messages) {
    std::string role, content;
    AppendValidUtf8(message.role, &role);
    AppendValidUtf8(message.content, &content);
    Dict dict;
    dict.Set(Value::String("role"), Value::String(std::move(role)));
    dict.Set(Value::String("content"), Value::String(std::move(content)));
    list.push_back(Value::MakeDict(std::move(dict)));
  }
  return impl_->Render(Value::MakeList(std::move(list)), options, out, diagnostic);
}

Status ChatTemplate::RenderJson(std::string_view messages_json, const ChatTemplateOptions& options, std::string* out,
                                Diagnostic* diagnostic) const {
  Value messages;
  LINNET_RETURN_IF_ERROR(ParseJson("messages", messages_json, true, &messages, diagnostic));
  return impl_->Render(std::move(messages), options, out, diagnostic);
}

}  // namespace linnet
