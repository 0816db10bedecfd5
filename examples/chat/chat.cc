// The smallest complete use of Linnet: a conversation on this device, through public headers only.
//   chat MODEL.linnet [SYSTEM PROMPT]
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "core/base/file_mapping.h"
#include "core/chat_template.h"
#include "core/packed_weights.h"
#include "core/plan.h"
#include "core/sampler.h"
#include "core/session.h"
#include "core/tokenizer.h"
#include "formats/linnet/model_file.h"
#include "formats/linnet/tokenizer_section.h"
#include "ops/thread_pool.h"
#include "platforms/console.h"
#include "platforms/cpu.h"
#include "platforms/mapped_output.h"

namespace {

using namespace linnet;

// What a conversation needs besides the session.
struct Chat {
  const Tokenizer& tokenizer;
  const ChatTemplate& chat_template;
  const std::vector<int32_t>& end_ids;
  Sampler& sampler;
  Session& session;
  std::vector<ChatMessage> messages;
  std::vector<int32_t> cached;  // ids that the session's KV cache holds
};

// Weights packed for this CPU, mapped from a file beside the model; made at the first start.
Result<FileMapping> OpenPacked(const ModelView& model, const PackedLayout& layout, const std::string& path,
                               Diagnostic* diagnostic) {
  auto mapping = FileMapping::Open(path, diagnostic);
  if (mapping.ok() && OpenPackedWeights(model, layout, mapping->bytes()).ok()) return mapping;
  LINNET_ASSIGN_OR_RETURN(auto output, platform::MappedOutput::Create(path, layout.total_bytes, diagnostic));
  LINNET_RETURN_IF_ERROR(PackWeights(model, layout, output.bytes(), {}));
  LINNET_RETURN_IF_ERROR(output.Commit(diagnostic));
  return FileMapping::Open(path, diagnostic);
}

// The conversation as ids: the template writes it out, the tokenizer reads it. The oldest exchange is dropped until it
// fits.
Status MakePrompt(Chat& chat, std::vector<int32_t>* ids, Diagnostic* diagnostic) {
  const size_t room = chat.session.plan().options.context_tokens * 3 / 4;  // the rest is for the answer
  const size_t first = chat.messages[0].role == "system" ? 1 : 0;
  while (true) {
    std::string text;
    ids->clear();
    LINNET_RETURN_IF_ERROR(chat.chat_template.Render(chat.messages, {}, &text, diagnostic));
    LINNET_RETURN_IF_ERROR(chat.tokenizer.Encode(text, {.parse_special = true}, ids, diagnostic));
    if (ids->size() <= room) return Status::Ok();
    if (chat.messages.size() < first + 3) return {StatusCode::kContextFull, "the message is longer than the context"};
    const auto oldest = chat.messages.begin() + static_cast<ptrdiff_t>(first);
    chat.messages.erase(oldest, oldest + 2);
  }
}

// Runs only what the KV cache does not hold yet.
Status Prefill(Chat& chat, const std::vector<int32_t>& ids) {
  size_t common = 0;
  while (common < chat.cached.size() && common + 1 < ids.size() && chat.cached[common] == ids[common]) ++common;
  if (!chat.session.Rewind(static_cast<uint32_t>(common)).ok()) {  // a window layer has moved on
    LINNET_RETURN_IF_ERROR(chat.session.Rewind(0));
    common = 0;
  }
  LINNET_RETURN_IF_ERROR(chat.session.Prefill(std::span(ids).subspan(common)));
  chat.cached = ids;
  return Status::Ok();
}

Status Answer(Chat& chat, const std::string& line, Diagnostic* diagnostic) {
  chat.messages.push_back({"user", line});
  std::vector<int32_t> ids;
  LINNET_RETURN_IF_ERROR(MakePrompt(chat, &ids, diagnostic));
  LINNET_RETURN_IF_ERROR(Prefill(chat, ids));
  StreamDecoder decoder(chat.tokenizer, {});
  std::string answer, piece;
  while (true) {
    LINNET_ASSIGN_OR_RETURN(const int32_t id, chat.sampler.Sample(chat.session.logits()));
    if (std::find(chat.end_ids.begin(), chat.end_ids.end(), id) != chat.end_ids.end()) break;
    piece.clear();
    decoder.Push(id, &piece);
    std::cout << piece << std::flush;
    answer += piece;
    if (chat.session.remaining() == 0) break;
    LINNET_RETURN_IF_ERROR(chat.session.Decode(id));
    chat.cached.push_back(id);
  }
  std::cout << std::endl;
  chat.messages.push_back({"assistant", answer});
  return Status::Ok();
}

Status Run(const std::string& path, const std::string& system, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const auto file, formats::ModelFile::Open(path, diagnostic));
  LINNET_ASSIGN_OR_RETURN(auto view, formats::ReadTokenizerSection(file.tokenizer_bytes(), diagnostic));
  LINNET_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Create(std::move(view), diagnostic));
  LINNET_ASSIGN_OR_RETURN(const auto chat_template,
                          ChatTemplate::Parse(file.chat_template(), tokenizer.TokenText(tokenizer.bos_id()),
                                              tokenizer.TokenText(tokenizer.eos_id()), diagnostic));
  SessionOptions options;
  options.n_threads = platform::DefaultThreadCount();
  const ModelView model = file.view();
  LINNET_ASSIGN_OR_RETURN(Plan plan, MakePlan(model, options));
  LINNET_ASSIGN_OR_RETURN(const auto packed, OpenPacked(model, plan.packed, path + ".packed", diagnostic));
  LINNET_ASSIGN_OR_RETURN(auto pool, ops::ThreadPool::Create(options.n_threads));
  LINNET_ASSIGN_OR_RETURN(auto session, Session::Create(model, std::move(plan), packed.bytes(), pool));

  const size_t vocab_size = model.config().vocab_size;
  const SamplerOptions sampling;  // greedy
  std::vector<uint64_t> scratch(Sampler::ScratchBytes(sampling, vocab_size) / sizeof(uint64_t) + 1);
  LINNET_ASSIGN_OR_RETURN(auto sampler,
                          Sampler::Create(sampling, vocab_size, std::as_writable_bytes(std::span(scratch))));

  Chat chat{tokenizer, chat_template, file.generation().end_ids, sampler, session, {}, {}};
  if (!system.empty()) chat.messages.push_back({"system", system});
  for (std::string line; std::cerr << "> " << std::flush, std::getline(std::cin, line);) {
    const Status status = Answer(chat, line, diagnostic);
    if (status.ok()) continue;
    if (status.code() != StatusCode::kContextFull) return status;
    std::cerr << "chat: " << status.message() << '\n';
    chat.messages.pop_back();
  }
  return Status::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  linnet::platform::OccupyStandardStreams();
  const bool help = argc == 2 && std::string(argv[1]) == "--help";
  if (help || (argc != 2 && argc != 3)) {
    std::fprintf(help ? stdout : stderr, "usage: %s MODEL.linnet [SYSTEM PROMPT]\n", argv[0]);
    return help ? 0 : 2;
  }
  linnet::Diagnostic diagnostic;
  const linnet::Status status = Run(argv[1], argc == 3 ? argv[2] : "", &diagnostic);
  if (!status.ok()) std::fprintf(stderr, "chat: %s: %s\n", status.message(), diagnostic.text());
  return status.ok() ? 0 : 1;
}
