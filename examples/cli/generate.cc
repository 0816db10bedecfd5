// linnet generate: continues a prompt.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/output.h"
#include "platforms/clock.h"

namespace linnet::cli {
namespace {

struct Options {
  RunOptions run;
  std::string prompt;
  bool has_prompt = false;
  std::vector<int32_t> ids;
  uint32_t max_tokens = 64;
  SamplerArguments sampler;
  bool ignore_eos = false;
  bool print_ids = false;
};

SamplerOptions ToSamplerOptions(const SamplerArguments& arguments) {
  SamplerOptions options;  // greedy, nothing cut
  if (arguments.temperature >= 0.0f) options.temperature = arguments.temperature;
  if (arguments.top_k >= 0) options.top_k = arguments.top_k;
  if (arguments.top_p >= 0.0f) options.top_p = arguments.top_p;
  if (arguments.min_p >= 0.0f) options.min_p = arguments.min_p;
  if (arguments.repetition_penalty >= 0.0f) options.repetition_penalty = arguments.repetition_penalty;
  options.seed = arguments.seed;
  return options;
}

// Prints each id as it comes: as text in whole code points, or as a number.
class TokenPrinter {
 public:
  // tokenizer null: numbers. The answer starts a text where the prompt holds none, as after a lone <s>.
  TokenPrinter(const Tokenizer* tokenizer, std::span<const int32_t> prompt) {
    if (tokenizer == nullptr) return;
    const auto is_special = [tokenizer](int32_t id) { return tokenizer->IsSpecial(id); };
    const bool at_start = std::all_of(prompt.begin(), prompt.end(), is_special);
    decoder_ = std::make_unique<StreamDecoder>(*tokenizer, StreamOptions{true, at_start});
  }

  Status Push(int32_t id, Diagnostic* diagnostic) {
    if (decoder_ == nullptr) {
      PrintFormat("%s%d", first_ ? "" : ",", id);
    } else {
      text_.clear();
      decoder_->Push(id, &text_);
      Print(text_);
    }
    first_ = false;
    return FlushOutput(diagnostic);  // stops early where nobody reads
  }
  Status End(Diagnostic* diagnostic) {
    text_.clear();
    if (decoder_ != nullptr) decoder_->Flush(&text_);
    Print(text_ + "\n");
    return FlushOutput(diagnostic);
  }

 private:
  std::unique_ptr<StreamDecoder> decoder_;
  std::string text_;
  bool first_ = true;
};

bool ShowPrefill(void* context, uint32_t done, uint32_t total) {
  static_cast<Progress*>(context)->Update(done, total,
                                          std::to_string(done) + " of " + std::to_string(total) + " tokens");
  return true;
}

Status Generate(const Options& options, LoadedModel& model, std::span<const int32_t> prompt, TokenPrinter& printer,
                Diagnostic* diagnostic) {
  Session& session = model.session();
  OwnedSampler sampler;
  LINNET_RETURN_IF_ERROR(
      MakeSampler(ToSamplerOptions(options.sampler), model.config().vocab_size, &sampler, diagnostic));
  {
    Progress progress("prompt");
    const Status status = session.Prefill(prompt, {ShowPrefill, &progress});
    if (!status.ok()) return SessionFailure(status, session, diagnostic);
  }
  sampler.sampler->Accept(prompt);
  const std::vector<int32_t>& end_ids = model.file().generation().end_ids;
  for (uint32_t i = 0; i < options.max_tokens; ++i) {
    auto id = sampler.sampler->Sample(session.logits());
    if (!id.ok()) return Fail(diagnostic, id.status().code(), id.status().message(), "token %u of the answer", i + 1);
    if (!options.ignore_eos && std::find(end_ids.begin(), end_ids.end(), *id) != end_ids.end()) break;
    LINNET_RETURN_IF_ERROR(printer.Push(*id, diagnostic));
    sampler.sampler->Accept(*id);
    if (i + 1 == options.max_tokens) break;
    if (session.remaining() == 0) {
      Note("generate: the context's end is reached after %u of %u tokens (--context %u)", i + 1, options.max_tokens,
           session.position());
      break;
    }
    const Status status = session.Decode(*id);
    if (!status.ok()) return SessionFailure(status, session, diagnostic);
  }
  return printer.End(diagnostic);
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(LoadedModel model, LoadedModel::Load(options.run, 1, diagnostic));
  if (!options.has_prompt) LINNET_RETURN_IF_ERROR(model.CheckPrompt(options.ids, diagnostic));
  std::unique_ptr<Tokenizer> tokenizer;
  if (options.has_prompt || !options.print_ids) {
    LINNET_ASSIGN_OR_RETURN(Tokenizer opened, OpenTokenizer(model.file(), options.run.model, diagnostic));
    tokenizer = std::make_unique<Tokenizer>(std::move(opened));
  }
  std::vector<int32_t> prompt = options.ids;
  if (options.has_prompt) {
    prompt = TextPrefix(model.file(), *tokenizer);
    LINNET_RETURN_IF_ERROR(tokenizer->Encode(options.prompt, {false, true}, &prompt, diagnostic));
  }
  LINNET_RETURN_IF_ERROR(model.CheckPrompt(prompt, diagnostic));
  TokenPrinter printer(options.print_ids ? nullptr : tokenizer.get(), prompt);
  return Generate(options, model, prompt, printer, diagnostic);
}

}  // namespace

void AddGenerate(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      commands.Add("generate", "Continue a prompt", "linnet generate model.linnet --prompt \"Once upon a time\" -n 64");
  AddRunOptions(command, &options->run);
  CLI::Option_group* source = command->add_option_group("prompt", "One of them");
  source->add_option("--prompt", options->prompt, "Text; special tokens in it are recognized")->type_name("TEXT");
  AddIdsOption(source, "--ids", &options->ids, "Token ids, used as they are");
  source->require_option(1);
  command->add_option("-n,--tokens", options->max_tokens, "Tokens to generate at most (default: 64)")
      ->check(CLI::Range(1u, kMaxGeneratedTokens));
  AddSamplerOptions(command, &options->sampler, "0");
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on where the model ends its answer");
  command->add_flag("--print-ids", options->print_ids, "Print the generated ids with commas between them, no text");
  commands.OnRun(command, [options, source](Diagnostic* diagnostic) {
    options->has_prompt = source->get_option("--prompt")->count() > 0;
    return Run(*options, diagnostic);
  });
}

}  // namespace linnet::cli
