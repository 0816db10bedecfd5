#include <span>
#include <string_view>
#include <utility>

#include "capi/handles.h"

namespace linnet::capi {
namespace {

constexpr uint32_t kEncodeFlags = LINNET_ENCODE_ADD_SPECIAL | LINNET_ENCODE_PARSE_SPECIAL | LINNET_ENCODE_TEXT_START;
constexpr uint32_t kDecodeFlags = LINNET_DECODE_KEEP_SPECIAL | LINNET_DECODE_CONTINUES;

Status CheckFlags(uint32_t flags, uint32_t known, Diagnostic* diagnostic) {
  if ((flags & ~known) == 0) return Status::Ok();
  return Fail(diagnostic, StatusCode::kInvalidArgument, "an unknown flag", "flags: expected bits of %u, found %u",
              known, flags);
}

Status CheckTokenizer(const linnet_model* model, Diagnostic* diagnostic) {
  if (model == nullptr) return Misuse(diagnostic, "model is null");
  if (model->state->tokenizer) return Status::Ok();
  return Fail(diagnostic, StatusCode::kInvalidArgument, "the model has no tokenizer",
              "model: expected a tokenizer for text, found none; only ids can be used");
}

struct TextArgument {
  const char* text;
  size_t bytes;
  uint32_t flags;
};

// The ids that begin a text: the tokenizer's prefix, or bos where the model asks for it.
void AppendTextStart(const ModelState& model, std::vector<int32_t>* ids) {
  const auto prefix = model.tokenizer->prefix_ids();
  ids->assign(prefix.begin(), prefix.end());
  const GenerationDefaults& defaults = model.file.generation();
  if (ids->empty() && defaults.add_bos && defaults.bos_id >= 0) ids->push_back(defaults.bos_id);
}

Status Encode(const linnet_model* model, const TextArgument& argument, std::vector<int32_t>* ids,
              Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(CheckTokenizer(model, diagnostic));
  LINNET_RETURN_IF_ERROR(CheckFlags(argument.flags, kEncodeFlags, diagnostic));
  if (argument.text == nullptr && argument.bytes != 0) return Misuse(diagnostic, "text is null");
  const bool add_special = (argument.flags & LINNET_ENCODE_ADD_SPECIAL) != 0;
  const bool start = (argument.flags & LINNET_ENCODE_TEXT_START) != 0;
  if (add_special && start)
    return Misuse(diagnostic, "LINNET_ENCODE_ADD_SPECIAL and LINNET_ENCODE_TEXT_START together");
  if (start) AppendTextStart(*model->state, ids);
  const EncodeOptions options{add_special, (argument.flags & LINNET_ENCODE_PARSE_SPECIAL) != 0};
  const std::string_view text =
      argument.bytes == 0 ? std::string_view() : std::string_view(argument.text, argument.bytes);
  return model->state->tokenizer->Encode(text, options, ids, diagnostic);
}

StreamOptions ToStreamOptions(uint32_t flags) {
  StreamOptions options;
  options.skip_special = (flags & LINNET_DECODE_KEEP_SPECIAL) == 0;
  options.at_start = (flags & LINNET_DECODE_CONTINUES) == 0;
  return options;
}

Status ReadChatOptions(const linnet_model* model, const linnet_chat_options* caller, ChatTemplateOptions* options,
                       Diagnostic* diagnostic) {
  if (model == nullptr) return Misuse(diagnostic, "model is null");
  const ModelState& state = *model->state;
  if (!state.chat_template) {
    if (diagnostic != nullptr) *diagnostic = state.template_reason;
    if (!state.template_status.ok()) return state.template_status;
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the model has no chat template",
                "model: expected a chat template, found none; its texts can be continued as plain text");
  }
  linnet_chat_options known;
  LINNET_RETURN_IF_ERROR(ReadOptions(caller, "linnet_chat_options", &known, diagnostic));
  options->add_generation_prompt = known.no_generation_prompt == 0;
  if (known.tools_json != nullptr) options->tools_json = known.tools_json;
  if (known.extra_context_json != nullptr) options->extra_context_json = known.extra_context_json;
  options->now_unix_seconds = known.now_unix_seconds;
  return Status::Ok();
}

Status ReadMessages(std::span<const linnet_chat_message> given, std::vector<ChatMessage>* messages,
                    Diagnostic* diagnostic) {
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].role == nullptr || given[i].content == nullptr) {
      return Fail(diagnostic, StatusCode::kInvalidArgument, "a null argument",
                  "message %zu: expected a role and a content, found a null", i);
    }
    messages->push_back({given[i].role, given[i].content});
  }
  return Status::Ok();
}

// Where the caller wants a text.
struct TextOutput {
  char* text;
  size_t capacity;
  size_t* text_bytes;
};

// Runs `make(std::string*, Diagnostic*) -> Status` and copies the text.
template <typename Make>
linnet_status GiveText(const TextOutput& output, linnet_error* error, const Make& make) {
  std::string text;
  const linnet_status status = Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (output.text_bytes == nullptr) return Misuse(diagnostic, "text_bytes is null");
    *output.text_bytes = 0;
    return make(&text, diagnostic);
  });
  if (status != LINNET_OK) return status;
  return CopyText(text, output.text, output.capacity, output.text_bytes, error);
}

// Hands out what a decoder completed.
void GiveText(const linnet_decoder& decoder, const char** text, size_t* text_bytes) {
  *text = decoder.text.c_str();
  if (text_bytes != nullptr) *text_bytes = decoder.text.size();
}

}  // namespace
}  // namespace linnet::capi

using linnet::Diagnostic;
using linnet::Status;
using linnet::capi::Guarded;
using linnet::capi::Misuse;

extern "C" {

linnet_status linnet_tokenize(const linnet_model* model, const char* text, size_t text_bytes, uint32_t flags,
                              int32_t* ids, size_t capacity, size_t* count, linnet_error* error) {
  std::vector<int32_t> made;
  const linnet_status status = Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (count == nullptr) return Misuse(diagnostic, "linnet_tokenize: count is null");
    *count = 0;
    return linnet::capi::Encode(model, {text, text_bytes, flags}, &made, diagnostic);
  });
  if (status != LINNET_OK) return status;
  *count = made.size();
  if (made.empty()) return LINNET_OK;
  if (ids == nullptr || made.size() > capacity) {
    return linnet::capi::ReportTooSmall(made.size(), ids == nullptr ? 0 : capacity, error);
  }
  std::memcpy(ids, made.data(), made.size() * sizeof(int32_t));
  return LINNET_OK;
}

linnet_status linnet_detokenize(const linnet_model* model, const int32_t* ids, size_t count, uint32_t flags, char* text,
                                size_t capacity, size_t* text_bytes, linnet_error* error) {
  return linnet::capi::GiveText(
      {text, capacity, text_bytes}, error, [&](std::string* made, Diagnostic* diagnostic) -> Status {
        LINNET_RETURN_IF_ERROR(linnet::capi::CheckTokenizer(model, diagnostic));
        LINNET_RETURN_IF_ERROR(linnet::capi::CheckFlags(flags, linnet::capi::kDecodeFlags, diagnostic));
        if (ids == nullptr && count != 0) return Misuse(diagnostic, "linnet_detokenize: ids is null");
        linnet::StreamDecoder decoder(*model->state->tokenizer, linnet::capi::ToStreamOptions(flags));
        for (size_t i = 0; i < count; ++i) decoder.Push(ids[i], made);
        decoder.Flush(made);
        return Status::Ok();
      });
}

linnet_status linnet_decoder_create(const linnet_model* model, uint32_t flags, linnet_decoder** out,
                                    linnet_error* error) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (out == nullptr) return Misuse(diagnostic, "linnet_decoder_create: out is null");
    *out = nullptr;
    LINNET_RETURN_IF_ERROR(linnet::capi::CheckTokenizer(model, diagnostic));
    LINNET_RETURN_IF_ERROR(linnet::capi::CheckFlags(flags, linnet::capi::kDecodeFlags, diagnostic));
    auto decoder = std::make_unique<linnet_decoder>();
    decoder->model = model->state;
    decoder->options = linnet::capi::ToStreamOptions(flags);
    decoder->decoder.emplace(*decoder->model->tokenizer, decoder->options);
    *out = decoder.release();
    return Status::Ok();
  });
}

void linnet_decoder_free(linnet_decoder* decoder) { delete decoder; }

linnet_status linnet_decoder_push(linnet_decoder* decoder, int32_t id, const char** text, size_t* text_bytes,
                                  linnet_error* error) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (decoder == nullptr || text == nullptr)
      return Misuse(diagnostic, "linnet_decoder_push: decoder or text is null");
    decoder->text.clear();
    decoder->decoder->Push(id, &decoder->text);
    linnet::capi::GiveText(*decoder, text, text_bytes);
    return Status::Ok();
  });
}

linnet_status linnet_decoder_flush(linnet_decoder* decoder, const char** text, size_t* text_bytes,
                                   linnet_error* error) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (decoder == nullptr || text == nullptr)
      return Misuse(diagnostic, "linnet_decoder_flush: decoder or text is null");
    decoder->text.clear();
    decoder->decoder->Flush(&decoder->text);
    decoder->decoder.emplace(*decoder->model->tokenizer, decoder->options);
    linnet::capi::GiveText(*decoder, text, text_bytes);
    return Status::Ok();
  });
}

linnet_status linnet_chat_render(const linnet_model* model, const linnet_chat_message* messages, size_t n_messages,
                                 const linnet_chat_options* options, char* text, size_t capacity, size_t* text_bytes,
                                 linnet_error* error) {
  return linnet::capi::GiveText(
      {text, capacity, text_bytes}, error, [&](std::string* made, Diagnostic* diagnostic) -> Status {
        linnet::ChatTemplateOptions known;
        LINNET_RETURN_IF_ERROR(linnet::capi::ReadChatOptions(model, options, &known, diagnostic));
        if (messages == nullptr && n_messages != 0) return Misuse(diagnostic, "linnet_chat_render: messages is null");
        std::vector<linnet::ChatMessage> conversation;
        LINNET_RETURN_IF_ERROR(linnet::capi::ReadMessages({messages, n_messages}, &conversation, diagnostic));
        return model->state->chat_template->Render(conversation, known, made, diagnostic);
      });
}

linnet_status linnet_chat_render_json(const linnet_model* model, const char* messages_json,
                                      const linnet_chat_options* options, char* text, size_t capacity,
                                      size_t* text_bytes, linnet_error* error) {
  return linnet::capi::GiveText(
      {text, capacity, text_bytes}, error, [&](std::string* made, Diagnostic* diagnostic) -> Status {
        linnet::ChatTemplateOptions known;
        LINNET_RETURN_IF_ERROR(linnet::capi::ReadChatOptions(model, options, &known, diagnostic));
        if (messages_json == nullptr) return Misuse(diagnostic, "linnet_chat_render_json: messages_json is null");
        return model->state->chat_template->RenderJson(messages_json, known, made, diagnostic);
      });
}

}  // extern "C"
