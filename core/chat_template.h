// Public header. Conversations -> prompts, by the model's own Jinja template.
#ifndef LINNET_CORE_CHAT_TEMPLATE_H_
#define LINNET_CORE_CHAT_TEMPLATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", ...
  std::string content;
};

struct ChatTemplateOptions {
  bool add_generation_prompt = true;
  std::string tools_json;          // a JSON array of tools; empty: none
  std::string extra_context_json;  // a JSON object whose members become variables of the template; empty: none
  bool absent_is_none =
      true;  // tools and documents that are not given are None, as transformers has it; else undefined
  int64_t now_unix_seconds = 0;  // what strftime_now shows, in UTC
};

/// A parsed template. Read-only after Parse; may be used from several threads. Move-only.
/// Semantics are those of Hugging Face transformers' apply_chat_template: Jinja2's immutable sandbox with trim_blocks,
/// lstrip_blocks and loop controls, tojson without escaping, raise_exception, strftime_now.
/// Templates come from strangers: size, nesting, steps and bytes are limited, and every failure is a Status.
class ChatTemplate {
 public:
  static constexpr size_t kMaxTemplateBytes = size_t{1} << 18;
  static constexpr size_t kMaxOutputBytes = size_t{1} << 24;

  /// `bos_token` and `eos_token` are what the template sees under these names; empty: undefined.
  /// Errors: kInvalidModel with the line in the template, kUnsupported for statements that chat templates do not have.
  static Result<ChatTemplate> Parse(std::string_view text, std::string_view bos_token, std::string_view eos_token,
                                    Diagnostic* diagnostic);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Replaces `out` by the prompt. Errors: kInvalidArgument (a message or JSON text that the template refuses, with the
  /// text of its raise_exception), kInvalidModel (the template fails or exceeds a limit).
  Status Render(std::span<const ChatMessage> messages, const ChatTemplateOptions& options, std::string* out,
                Diagnostic* diagnostic) const;
  /// The same for messages as JSON (tool calls, content parts): an array of objects.
  Status RenderJson(std::string_view messages_json, const ChatTemplateOptions& options, std::string* out,
                    Diagnostic* diagnostic) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace linnet

#endif  // LINNET_CORE_CHAT_TEMPLATE_H_
