// From a path and options to a session: what every command that runs a model does first.
#ifndef LINNET_EXAMPLES_CLI_LOADED_MODEL_H_
#define LINNET_EXAMPLES_CLI_LOADED_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "core/plan.h"
#include "core/sampler.h"
#include "core/session.h"
#include "core/tokenizer.h"
#include "examples/cli/args.h"
#include "formats/linnet/model_file.h"

namespace linnet::cli {

/// Errors: kInvalidArgument where the model has no tokenizer.
Result<Tokenizer> OpenTokenizer(const formats::ModelFile& file, const std::string& path, Diagnostic* diagnostic);

/// The session's options for `options`; `logit_rows` as SessionOptions has it.
SessionOptions ToSessionOptions(const RunOptions& options, uint32_t logit_rows);

/// Masks the CPU's kernels down and binds this process to CPUs, as the options say. Comes first in a command, before
/// any kernel runs or thread starts. Errors: kInvalidArgument.
Status PrepareProcess(const RunOptions& options, Diagnostic* diagnostic);

/// The plan that a run with these options has. Errors: those of linnet::MakePlan, in words; for a memory budget that is
/// too small with what the smallest possible run needs.
Result<Plan> PlanRun(const formats::ModelFile& file, const RunOptions& options, uint32_t logit_rows,
                     Diagnostic* diagnostic);

/// Maps, checks, plans, opens or makes the packed weights, starts the threads, creates the session. Move-only.
class LoadedModel {
 public:
  static Result<LoadedModel> Load(const RunOptions& options, uint32_t logit_rows, Diagnostic* diagnostic);

  LoadedModel(LoadedModel&&) noexcept;
  ~LoadedModel();

  const formats::ModelFile& file() const;
  const ModelConfig& config() const { return file().config(); }
  Session& session();
  /// True where packed weights are a mapped file.
  bool packed_mapped() const;
  double load_seconds() const;

  /// Errors: kInvalidArgument naming the first id outside the vocabulary, or the prompt that is longer than the
  /// context.
  Status CheckPrompt(std::span<const int32_t> ids, Diagnostic* diagnostic) const;

 private:
  struct State;
  explicit LoadedModel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Ids that begin a text of this model: the tokenizer's prefix, or bos where the model asks for it.
std::vector<int32_t> TextPrefix(const formats::ModelFile& file, const Tokenizer& tokenizer);

/// A sampler with its memory.
struct OwnedSampler {
  std::vector<uint64_t> memory;
  std::unique_ptr<Sampler> sampler;
};
/// Errors: kInvalidArgument (an option that the sampler refuses).
Status MakeSampler(const SamplerOptions& options, size_t vocab_size, OwnedSampler* out, Diagnostic* diagnostic);

/// A session's failure as a line: adds the counts to kContextFull.
Status SessionFailure(const Status& status, const Session& session, Diagnostic* diagnostic);

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_LOADED_MODEL_H_
