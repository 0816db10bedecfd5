// linnet logits: the logits of every position of a prompt.
#include <memory>
#include <vector>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/npy.h"
#include "examples/cli/output.h"

namespace linnet::cli {
namespace {

constexpr uint32_t kLogitRows = 16;  // positions per product with the head: enough to reuse its weights

struct Options {
  RunOptions run;
  std::vector<int32_t> ids;
  std::string output;
};

// Takes logits from the session, block after block.
struct Sink {
  NpyWriter writer;
  Progress progress{"logits"};
  size_t vocab_size = 0;
  Status status;
  Diagnostic* diagnostic = nullptr;

  static void Take(void* context, uint32_t, const float* logits, uint32_t n_rows) {
    Sink& sink = *static_cast<Sink*>(context);
    if (sink.status.ok()) sink.status = sink.writer.Append({logits, n_rows * sink.vocab_size}, sink.diagnostic);
  }
  static bool Report(void* context, uint32_t done, uint32_t total) {
    Sink& sink = *static_cast<Sink*>(context);
    sink.progress.Update(done, total, std::to_string(done) + " of " + std::to_string(total) + " tokens");
    return sink.status.ok();  // no use to go on after a failed write
  }
};

Status Run(const Options& options, Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(CheckOutputIsNot(options.run.model, options.output, diagnostic));
  LINNET_ASSIGN_OR_RETURN(LoadedModel model, LoadedModel::Load(options.run, kLogitRows, diagnostic));
  LINNET_RETURN_IF_ERROR(model.CheckPrompt(options.ids, diagnostic));
  const uint32_t vocab_size = model.config().vocab_size;
  LINNET_ASSIGN_OR_RETURN(NpyWriter writer,
                          NpyWriter::Create(options.output, options.ids.size(), vocab_size, diagnostic));
  Sink sink;
  sink.writer = std::move(writer);
  sink.vocab_size = vocab_size;
  sink.diagnostic = diagnostic;
  const Status status = model.session().Prefill(options.ids, {Sink::Report, &sink}, {Sink::Take, &sink, 0});
  LINNET_RETURN_IF_ERROR(sink.status);
  if (!status.ok()) return SessionFailure(status, model.session(), diagnostic);
  return sink.writer.Finish(diagnostic);
}

}  // namespace

void AddLogits(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      commands.Add("logits", "Write the logits of every position as an .npy file [tokens, vocab] of f32",
                   "linnet logits model.linnet --ids 1,2,3 -o logits.npy");
  AddRunOptions(command, &options->run);
  AddIdsOption(command, "--ids", &options->ids, "Token ids of the prompt, used as they are")->required();
  command->add_option("-o,--output", options->output, "The .npy file to write")->required()->type_name("FILE");
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
