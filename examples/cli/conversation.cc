#include "examples/cli/conversation.h"

#include <algorithm>
#include <utility>

#include "platforms/clock.h"

namespace linnet::cli {

Conversation::Conversation(ConversationParts parts, std::string system) : parts_(std::move(parts)) {
  if (system.empty()) return;
  messages_.push_back({"system", std::move(system)});
  system_messages_ = 1;
}

void Conversation::Reset() { messages_.resize(system_messages_); }

bool Conversation::IsEnd(int32_t id) const {
  return std::find(parts_.end_ids.begin(), parts_.end_ids.end(), id) != parts_.end_ids.end();
}

// The whole conversation as ids, ready for the assistant's answer.
Status Conversation::RenderIds(std::vector<int32_t>* ids, Diagnostic* diagnostic) const {
  ids->clear();
  if (parts_.chat_template != nullptr) {
    ChatTemplateOptions options;
    options.now_unix_seconds = parts_.now_unix_seconds;
    std::string text;
    LINNET_RETURN_IF_ERROR(parts_.chat_template->Render(messages_, options, &text, diagnostic));
    return parts_.tokenizer->Encode(text, {false, true}, ids, diagnostic);
  }
  std::string text;
  for (const ChatMessage& message : messages_) text += message.content;
  *ids = parts_.text_prefix;
  return parts_.tokenizer->Encode(text, {false, false}, ids, diagnostic);
}

// Drops the oldest message, and answers that would then stand without their question.
void Conversation::DropOldest() {
  const auto first = messages_.begin() + static_cast<ptrdiff_t>(system_messages_);
  auto last = first + 1;
  while (last != messages_.end() && last->role == "assistant") ++last;
  messages_.erase(first, last);
}

Status Conversation::FitToContext(std::vector<int32_t>* ids, TurnReport* report, Diagnostic* diagnostic) {
  const size_t context = parts_.session->plan().options.context_tokens;
  const size_t comfortable = context - context / 4;
  const size_t before = messages_.size();
  LINNET_RETURN_IF_ERROR(RenderIds(ids, diagnostic));
  while (ids->size() > comfortable && messages_.size() > system_messages_ + 1) {
    DropOldest();
    LINNET_RETURN_IF_ERROR(RenderIds(ids, diagnostic));
  }
  report->dropped_messages = before - messages_.size();
  if (!ids->empty() && ids->size() < context) return Status::Ok();
  return Fail(diagnostic, StatusCode::kContextFull, "the message does not fit",
              "message: expected 1 to %zu tokens with the system prompt (--context), found %zu", context - 1,
              ids->size());
}

Status Conversation::CheckContext(Diagnostic* diagnostic) {
  messages_.push_back({"user", "a"});
  std::vector<int32_t> ids;
  const Status status = RenderIds(&ids, nullptr);
  messages_.pop_back();
  const size_t context = parts_.session->plan().options.context_tokens;
  // A template that refuses this message may take the user's.
  if (!status.ok() || ids.size() < context) return Status::Ok();
  return Fail(diagnostic, StatusCode::kContextFull, "the context is too small for a conversation",
              "--context: expected at least %zu tokens for the system prompt, one message and its answer, found %zu",
              ids.size() + 1, context);
}

// Keeps what the KV cache and the new conversation have in common, and appends the rest.
Status Conversation::PrefillNew(const Turn& turn, const std::vector<int32_t>& ids, TurnReport* report) {
  Session& session = *parts_.session;
  size_t common = 0;
  const size_t limit = std::min(cached_.size(), ids.size() - 1);  // the last id runs again: its logits are needed
  while (common < limit && cached_[common] == ids[common]) ++common;
  if (common < session.position() && !session.Rewind(static_cast<uint32_t>(common)).ok()) {
    // A window layer no longer holds what came before that position.
    LINNET_RETURN_IF_ERROR(session.Rewind(0));
    common = 0;
  }
  const uint64_t start = platform::MonotonicNanoseconds();
  const auto keep_going = [](void* context, uint32_t, uint32_t) {
    const auto& interrupted = static_cast<const Turn*>(context)->interrupted;
    return !interrupted || !interrupted();
  };
  const auto rest = std::span(ids).subspan(common);
  const Status status = session.Prefill(rest, {keep_going, const_cast<Turn*>(&turn)});
  cached_.assign(ids.begin(), ids.begin() + session.position());
  if (status.ok()) parts_.sampler->Accept(rest);
  report->prompt_tokens = ids.size();
  report->reused_tokens = common;
  report->prefill_seconds = platform::SecondsSince(start);
  return status;
}

Status Conversation::Generate(const Turn& turn, TurnReport* report, std::string* answer, Diagnostic* diagnostic) {
  Session& session = *parts_.session;
  StreamDecoder decoder(*parts_.tokenizer, {true, parts_.chat_template != nullptr});
  const auto emit = [&](std::string& piece) {
    answer->append(piece);
    const bool go_on = piece.empty() || turn.on_text(piece);
    piece.clear();
    return go_on;
  };
  std::string piece;
  const uint64_t start = platform::MonotonicNanoseconds();
  report->stop = StopReason::kTokenLimit;
  while (report->answer_tokens < turn.max_tokens) {
    auto id = parts_.sampler->Sample(session.logits());
    if (!id.ok()) return id.status();
    if (IsEnd(*id)) {
      report->stop = StopReason::kEnd;
      break;
    }
    ++report->answer_tokens;
    parts_.sampler->Accept(*id);
    decoder.Push(*id, &piece);
    if (!emit(piece)) return Fail(diagnostic, StatusCode::kIoError, "cannot write", "standard output");
    if (session.remaining() == 0) {
      report->stop = StopReason::kContextFull;
      break;
    }
    if (turn.interrupted && turn.interrupted()) {
      report->stop = StopReason::kInterrupted;
      break;
    }
    LINNET_RETURN_IF_ERROR(session.Decode(*id));
    cached_.push_back(*id);
  }
  report->decode_seconds = platform::SecondsSince(start);
  decoder.Flush(&piece);
  emit(piece);
  return Status::Ok();
}

Status Conversation::Answer(const Turn& turn, TurnReport* report, Diagnostic* diagnostic) {
  *report = {};
  const std::vector<ChatMessage> before = messages_;
  messages_.push_back({"user", std::string(turn.text)});
  std::vector<int32_t> ids;
  Status status = FitToContext(&ids, report, diagnostic);
  if (status.ok()) status = PrefillNew(turn, ids, report);
  if (!status.ok()) {
    messages_ = before;
    if (status.code() != StatusCode::kCancelled) return status;
    report->stop = StopReason::kInterrupted;
    return Status::Ok();
  }
  std::string answer;
  status = Generate(turn, report, &answer, diagnostic);
  messages_.push_back({"assistant", std::move(answer)});
  return status;
}

}  // namespace linnet::cli
