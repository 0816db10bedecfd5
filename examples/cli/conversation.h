// A conversation over a session: history, template, what of it fits the context, and reuse of the KV cache.
#ifndef LINNET_EXAMPLES_CLI_CONVERSATION_H_
#define LINNET_EXAMPLES_CLI_CONVERSATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "core/chat_template.h"
#include "core/sampler.h"
#include "core/session.h"
#include "core/tokenizer.h"

namespace linnet::cli {

enum class StopReason : uint8_t { kEnd, kTokenLimit, kContextFull, kInterrupted };

/// What one turn did.
struct TurnReport {
  StopReason stop = StopReason::kEnd;
  size_t dropped_messages = 0;  // oldest ones, left out so that the conversation fits; the system message stays
  size_t prompt_tokens = 0;     // of the whole conversation
  size_t reused_tokens = 0;     // of them already in the KV cache
  size_t answer_tokens = 0;
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;  // of answer_tokens - 1 decode steps
};

struct ConversationParts {
  Session* session = nullptr;
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;  // null: lines are continued as plain text
  Sampler* sampler = nullptr;
  std::vector<int32_t> text_prefix;  // ids that begin a plain text
  std::vector<int32_t> end_ids;
  int64_t now_unix_seconds = 0;  // fixed at the start, so that a date in the prompt does not change it
};

class Conversation {
 public:
  /// The parts outlive the Conversation. `system`: empty for none.
  Conversation(ConversationParts parts, std::string system);

  struct Turn {
    std::string_view text;  // the user's
    uint32_t max_tokens = 0;
    std::function<bool(std::string_view)> on_text;  // a piece of the answer in whole code points; false: stop
    std::function<bool()> interrupted;
  };
  /// Answers. Where the conversation no longer fits, the oldest messages are dropped until a quarter of the context is
  /// free for the answer. Errors: kContextFull where system and message alone leave no room (the message is then
  /// forgotten), kInvalidModel, kUnsupported (the template), kIoError (on_text asked to stop).
  Status Answer(const Turn& turn, TurnReport* report, Diagnostic* diagnostic);

  /// Errors: kContextFull where not even the shortest message and an answer of one token fit the context.
  Status CheckContext(Diagnostic* diagnostic);

  /// Forgets all messages but the system's.
  void Reset();
  size_t message_count() const { return messages_.size(); }

 private:
  Status RenderIds(std::vector<int32_t>* ids, Diagnostic* diagnostic) const;
  Status FitToContext(std::vector<int32_t>* ids, TurnReport* report, Diagnostic* diagnostic);
  void DropOldest();
  Status PrefillNew(const Turn& turn, const std::vector<int32_t>& ids, TurnReport* report);
  Status Generate(const Turn& turn, TurnReport* report, std::string* answer, Diagnostic* diagnostic);
  bool IsEnd(int32_t id) const;

  ConversationParts parts_;
  std::vector<ChatMessage> messages_;  // the system's first, where there is one
  size_t system_messages_ = 0;         // 0 or 1
  std::vector<int32_t> cached_;        // ids in the session, position by position
};

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_CONVERSATION_H_
