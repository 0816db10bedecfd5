// linnet chat: a conversation with a model.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/conversation.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/output.h"
#include "platforms/console.h"

namespace linnet::cli {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 22;  // a longer line is refused
constexpr uint32_t kPenaltyWindow = 256;           // tokens that the repetition penalty looks back

// Where neither the user nor the model says anything: lively, but not wild for small models.
constexpr float kTemperature = 0.6f;
constexpr float kTopP = 0.95f;

constexpr const char* kHelp =
    "  /reset   forget the conversation, keep the system prompt\n"
    "  /help    this list\n"
    "  /quit    leave (also Ctrl-D, or Ctrl-C twice)\n"
    "Ctrl-C while the model answers stops the answer.\n";

struct Options {
  RunOptions run;
  std::string system;
  SamplerArguments sampler;
  uint32_t max_tokens = 1024;
};

float Choose(float given, float model, float own) { return given >= 0.0f ? given : model >= 0.0f ? model : own; }

SamplerOptions ToSamplerOptions(const SamplerArguments& given, const GenerationDefaults& model) {
  SamplerOptions options;
  options.temperature = Choose(given.temperature, model.temperature, kTemperature);
  options.top_k = given.top_k >= 0 ? given.top_k : std::max(model.top_k, 0);
  options.top_p = Choose(given.top_p, model.top_p, kTopP);
  options.min_p = Choose(given.min_p, -1.0f, 0.0f);
  options.repetition_penalty = Choose(given.repetition_penalty, model.repetition_penalty, 1.0f);
  options.penalty_window = kPenaltyWindow;
  options.seed = given.seed;
  return options;
}

double Rate(size_t tokens, double seconds) { return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0; }

void PrintReport(const TurnReport& report, const Session& session) {
  if (report.stop == StopReason::kInterrupted) std::fputs("[stopped]\n", stderr);
  if (report.stop == StopReason::kTokenLimit) std::fputs("[stopped at --max-tokens]\n", stderr);
  if (report.stop == StopReason::kContextFull) {
    std::fputs("[the context is full: the answer ends here, the next turn drops the oldest messages]\n", stderr);
  }
  const size_t new_tokens = report.prompt_tokens - report.reused_tokens;
  std::fprintf(
      stderr, "[prompt %zu tokens, %zu of them new at %.1f/s; answer %zu tokens at %.1f/s; context %u of %u]\n",
      report.prompt_tokens, new_tokens, Rate(new_tokens, report.prefill_seconds), report.answer_tokens,
      Rate(report.answer_tokens, report.decode_seconds), session.position(), session.plan().options.context_tokens);
}

// Reads turns and commands until the user leaves.
class ChatLoop {
 public:
  ChatLoop(Conversation& conversation, const Session& session, uint32_t max_tokens)
      : conversation_(conversation),
        session_(session),
        max_tokens_(max_tokens),
        terminal_(platform::IsTerminal(platform::Stream::kInput)) {}

  Status Run(Diagnostic* diagnostic) {
    std::string line;
    while (ReadLine(&line)) {
      if (line.empty()) continue;
      if (line == "/quit") break;
      if (RunCommand(line)) continue;
      LINNET_RETURN_IF_ERROR(Answer(line, diagnostic));
      if (platform::InterruptScope::TerminateRequested()) break;
    }
    return Status::Ok();
  }

 private:
  bool ReadLine(std::string* line) {
    bool asked_to_leave = false;
    while (true) {
      if (terminal_) std::fputs("> ", stderr);
      switch (reader_.Read(kMaxLineBytes, line)) {
        case platform::LineStatus::kLine:
          if (!line->empty() && line->back() == '\r') line->pop_back();
          return true;
        case platform::LineStatus::kTooLong:
          Note("chat: the message is too long: expected a line of at most %zu bytes; it is skipped", kMaxLineBytes);
          continue;
        case platform::LineStatus::kEnd:
          if (terminal_) std::fputc('\n', stderr);
          return false;
        case platform::LineStatus::kInterrupted:
          if (platform::InterruptScope::TerminateRequested()) return false;
          if (!platform::InterruptScope::Requested()) continue;  // another signal, such as a resized window
          platform::InterruptScope::Clear();
          if (asked_to_leave || !terminal_) return false;
          asked_to_leave = true;
          std::fputs("\n[Ctrl-C again or /quit leaves]\n", stderr);
      }
    }
  }

  // False where the line is for the model. At a prompt a slash always means a command; a pipe's text may begin with
  // one.
  bool RunCommand(const std::string& line) {
    if (line == "/help") {
      std::fputs(kHelp, stderr);
    } else if (line == "/reset") {
      conversation_.Reset();
      std::fputs("[the conversation starts anew]\n", stderr);
    } else if (line[0] == '/' && terminal_) {
      std::fprintf(stderr, "[no such command: %s; /help lists them]\n", OneLine(line).c_str());
    } else {
      return false;
    }
    return true;
  }

  Status Answer(const std::string& line, Diagnostic* diagnostic) {
    platform::InterruptScope::Clear();
    Conversation::Turn turn;
    turn.text = line;
    turn.max_tokens = max_tokens_;
    turn.interrupted = [] { return platform::InterruptScope::Requested(); };
    Status output;
    turn.on_text = [&output, diagnostic](std::string_view text) {
      Print(text);
      output = FlushOutput(diagnostic);
      return output.ok();
    };
    TurnReport report;
    Diagnostic reason;
    const Status status = conversation_.Answer(turn, &report, &reason);
    LINNET_RETURN_IF_ERROR(output);
    if (status.code() == StatusCode::kContextFull) {  // the message's fault: the conversation goes on
      Note("chat: %s: %s", status.message(), reason.text());
      return Status::Ok();
    }
    if (!status.ok()) {
      if (diagnostic != nullptr) *diagnostic = reason;
      return status;
    }
    Print("\n");
    LINNET_RETURN_IF_ERROR(FlushOutput(diagnostic));
    if (report.dropped_messages != 0) {
      std::fprintf(stderr, "[the context is nearly full: the %zu oldest messages were dropped; /reset starts anew]\n",
                   report.dropped_messages);
    }
    PrintReport(report, session_);
    if (!platform::InterruptScope::TerminateRequested()) platform::InterruptScope::Clear();
    return Status::Ok();
  }

  Conversation& conversation_;
  const Session& session_;
  uint32_t max_tokens_;
  bool terminal_;
  platform::LineReader reader_;
};

Result<std::optional<ChatTemplate>> OpenChatTemplate(const formats::ModelFile& file, const Tokenizer& tokenizer,
                                                     Diagnostic* diagnostic) {
  std::optional<ChatTemplate> chat_template;
  if (file.chat_template().empty()) {
    Note("chat: this model has no chat template: your lines are continued as plain text");
    return chat_template;
  }
  LINNET_ASSIGN_OR_RETURN(chat_template,
                          ChatTemplate::Parse(file.chat_template(), tokenizer.TokenText(tokenizer.bos_id()),
                                              tokenizer.TokenText(tokenizer.eos_id()), diagnostic));
  return chat_template;
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  platform::InterruptScope interrupt;
  LINNET_ASSIGN_OR_RETURN(LoadedModel model, LoadedModel::Load(options.run, 1, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const Tokenizer tokenizer, OpenTokenizer(model.file(), options.run.model, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const std::optional<ChatTemplate> chat_template,
                          OpenChatTemplate(model.file(), tokenizer, diagnostic));
  OwnedSampler sampler;
  LINNET_RETURN_IF_ERROR(MakeSampler(ToSamplerOptions(options.sampler, model.file().generation()),
                                     model.config().vocab_size, &sampler, diagnostic));
  ConversationParts parts;
  parts.session = &model.session();
  parts.tokenizer = &tokenizer;
  parts.chat_template = chat_template ? &*chat_template : nullptr;
  parts.sampler = sampler.sampler.get();
  parts.text_prefix = TextPrefix(model.file(), tokenizer);
  parts.end_ids = model.file().generation().end_ids;
  parts.now_unix_seconds = static_cast<int64_t>(std::time(nullptr));
  Conversation conversation(std::move(parts), options.system);
  LINNET_RETURN_IF_ERROR(conversation.CheckContext(diagnostic));
  if (platform::IsTerminal(platform::Stream::kInput)) {
    std::fprintf(stderr, "%s, context of %u tokens. /help lists commands, Ctrl-C stops an answer.\n",
                 OneLine(model.file().name().empty() ? options.run.model : model.file().name()).c_str(),
                 model.session().plan().options.context_tokens);
  }
  return ChatLoop(conversation, model.session(), options.max_tokens).Run(diagnostic);
}

}  // namespace

void AddChat(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = commands.Add("chat", "Talk with a model; reads a turn a line where standard input is no terminal",
                                   "linnet chat model.linnet --system \"You answer in one sentence.\"\n"
                                   "  echo \"What is the capital of France?\" | linnet chat model.linnet --temp 0");
  AddRunOptions(command, &options->run);
  command->add_option("--system", options->system, "The system prompt")->type_name("TEXT");
  AddSamplerOptions(command, &options->sampler, "the model's own, else 0.6");
  command->add_option("--max-tokens", options->max_tokens, "Tokens of one answer at most (default: 1024)")
      ->check(CLI::Range(1u, kMaxGeneratedTokens));
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
