#include "examples/cli/loaded_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "examples/cli/cpu_level.h"
#include "examples/cli/memory_report.h"
#include "examples/cli/output.h"
#include "examples/cli/packed_store.h"
#include "formats/linnet/tokenizer_section.h"
#include "platforms/clock.h"
#include "platforms/cpu.h"
#include "platforms/mapped_output.h"
#include "platforms/memory.h"

namespace linnet::cli {

// Members are destroyed last to first: the session before what it refers to.
struct LoadedModel::State {
  explicit State(formats::ModelFile opened) : file(std::move(opened)), view(file.view()) {}

  formats::ModelFile file;
  ModelView view;
  std::optional<PackedStore> packed;
  platform::AnonymousMemory memory;  // the session's
  std::optional<ops::ThreadPool> pool;
  std::optional<Session> session;
  double load_seconds = 0.0;
};

LoadedModel::LoadedModel(std::unique_ptr<State> state) : state_(std::move(state)) {}
LoadedModel::LoadedModel(LoadedModel&&) noexcept = default;
LoadedModel::~LoadedModel() = default;

const formats::ModelFile& LoadedModel::file() const { return state_->file; }
Session& LoadedModel::session() { return *state_->session; }
bool LoadedModel::packed_mapped() const { return state_->packed->mapped(); }
double LoadedModel::load_seconds() const { return state_->load_seconds; }

SessionOptions ToSessionOptions(const RunOptions& options, uint32_t logit_rows) {
  SessionOptions session;
  session.context_tokens = options.context_tokens;
  session.chunk_tokens = options.chunk_tokens;
  session.core_cache_bytes = platform::CoreCacheBytes();
  session.n_threads = options.threads;
  if (options.threads == 0 && !options.cpus.empty()) {
    session.n_threads = std::min(platform::CutToQuota(static_cast<uint32_t>(options.cpus.size())), kMaxThreads);
  } else if (options.threads == 0) {
    session.n_threads = platform::DefaultThreadCount();
  }
  session.logit_rows = logit_rows;
  session.kv = options.kv;
  return session;
}

namespace {

// Positions that the model was made for: YaRN, Llama 3 and dynamic NTK stretch a shorter training by their factor.
double ReachedContext(const ModelConfig& config) {
  double reached = config.context_length;
  for (const RopeSpec& rope : config.ropes) {
    const bool stretches = rope.scaling == RopeScaling::kDynamicNtk || rope.scaling == RopeScaling::kYarn ||
                           rope.scaling == RopeScaling::kLlama3;
    if (stretches) reached = std::max(reached, rope.factor * rope.original_context_length);
  }
  return reached;
}

void NoteLongContext(const RunOptions& options, const ModelConfig& config) {
  const double reached = ReachedContext(config);
  if (config.context_length == 0 || options.context_tokens <= reached) return;
  Note("--context %u is beyond the %.0f positions that the model was trained for: later answers may make no sense",
       options.context_tokens, reached);
}

void NoteBudget(const RunOptions& options, const Plan& plan, uint64_t other_bytes) {
  Note("--memory %s: context %u, chunk %u take %s", HumanBytes(options.memory_bytes).c_str(),
       plan.options.context_tokens, plan.options.chunk_tokens, HumanBytes(plan.memory.Total() + other_bytes).c_str());
}

// What steps read where the model file is mapped, its description and vocabulary, the packed weights, the session's
// memory.
Status LockModel(const formats::ModelFile& file, const Plan& plan, std::span<const std::byte> packed,
                 std::span<const std::byte> memory, Diagnostic* diagnostic) {
  std::vector<std::span<const std::byte>> regions = {packed, memory, file.tokenizer_bytes()};
  const auto tensors = file.view().tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!ReadWhereMapped(plan.packed, tensors, i)) continue;
    regions.push_back(tensors[i].data);
    regions.push_back(tensors[i].scales);
  }
  return platform::LockMemory(regions, diagnostic);
}

}  // namespace

Status PrepareProcess(const RunOptions& options, Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(ApplyCpuLevel(options.cpu_level, diagnostic));
  return options.cpus.empty() ? Status::Ok() : platform::BindToCpus(options.cpus, diagnostic);
}

Result<Plan> PlanRun(const formats::ModelFile& file, const RunOptions& options, uint32_t logit_rows,
                     Diagnostic* diagnostic) {
  SessionOptions session = ToSessionOptions(options, logit_rows);
  if (options.memory_bytes != 0) {
    LINNET_ASSIGN_OR_RETURN(const OtherMemory other, MeasureOtherMemory(file, diagnostic));
    session.memory_budget = options.memory_bytes;
    session.other_bytes = other.Total();
  }
  auto plan = MakePlan(file.view(), session);
  if (plan.ok()) return plan;
  if (plan.status().code() == StatusCode::kOutOfMemory && session.memory_budget != 0) {
    return Fail(diagnostic, plan.status().code(), plan.status().message(),
                "%s: --memory: expected at least %lld bytes, found %llu", options.model.c_str(),
                static_cast<long long>(plan.status().value()), static_cast<unsigned long long>(options.memory_bytes));
  }
  if (diagnostic != nullptr) diagnostic->Set("%s", options.model.c_str());
  return plan.status();
}

Result<LoadedModel> LoadedModel::Load(const RunOptions& options, uint32_t logit_rows, Diagnostic* diagnostic) {
  const uint64_t start_ns = platform::MonotonicNanoseconds();
  LINNET_RETURN_IF_ERROR(PrepareProcess(options, diagnostic));
  LINNET_ASSIGN_OR_RETURN(formats::ModelFile file, formats::ModelFile::Open(options.model, diagnostic));
  auto state = std::make_unique<State>(std::move(file));
  LINNET_ASSIGN_OR_RETURN(Plan plan, PlanRun(state->file, options, logit_rows, diagnostic));
  NoteLongContext(options, state->file.config());
  if (options.memory_bytes != 0) NoteBudget(options, plan, plan.options.other_bytes);
  std::string packed_path;
  if (!options.no_cache) {
    Diagnostic reason;
    auto path = PackedFilePath(state->view, plan.packed, &reason);
    if (path.ok()) {
      packed_path = *path;
    } else {
      Note("packed weights stay in memory this time: %s", reason.text());
    }
  }
  LINNET_ASSIGN_OR_RETURN(state->packed, OpenPackedStore(state->file, plan.packed, packed_path, diagnostic));
  LINNET_ASSIGN_OR_RETURN(state->memory, platform::AnonymousMemory::Create(plan.memory.session, diagnostic));
  LINNET_ASSIGN_OR_RETURN(state->pool, ops::ThreadPool::Create(plan.options.n_threads));
  auto session =
      Session::Create(state->view, std::move(plan), state->packed->bytes(), *state->pool, state->memory.bytes());
  if (!session.ok()) {
    if (diagnostic != nullptr) diagnostic->Set("%s", options.model.c_str());
    return session.status();
  }
  state->session.emplace(std::move(session).value());
  if (options.lock) {
    LINNET_RETURN_IF_ERROR(
        LockModel(state->file, state->session->plan(), state->packed->bytes(), state->memory.bytes(), diagnostic));
  }
  state->load_seconds = platform::SecondsSince(start_ns);
  return LoadedModel(std::move(state));
}

Status LoadedModel::CheckPrompt(std::span<const int32_t> ids, Diagnostic* diagnostic) const {
  if (ids.empty()) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the prompt is empty",
                "prompt: expected a token, found none");
  }
  const uint32_t vocab_size = config().vocab_size;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && static_cast<uint32_t>(ids[i]) < vocab_size) continue;
    return Fail(diagnostic, StatusCode::kInvalidArgument, "an id outside the vocabulary",
                "id %zu of the prompt: expected 0 to %u, found %d", i + 1, vocab_size - 1, ids[i]);
  }
  const uint32_t context = state_->session->plan().options.context_tokens;
  if (ids.size() > context) {
    return Fail(diagnostic, StatusCode::kContextFull, "the prompt is longer than the context",
                "prompt: expected at most %u tokens (--context), found %zu", context, ids.size());
  }
  return Status::Ok();
}

Result<Tokenizer> OpenTokenizer(const formats::ModelFile& file, const std::string& path, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(TokenizerView view, formats::ReadTokenizerSection(file.tokenizer_bytes(), diagnostic));
  if (view.kind == TokenizerKind::kNone) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the model has no tokenizer",
                "%s: expected a tokenizer for text, found none; ids can be given with --ids and --print-ids",
                path.c_str());
  }
  return Tokenizer::Create(std::move(view), diagnostic);
}

std::vector<int32_t> TextPrefix(const formats::ModelFile& file, const Tokenizer& tokenizer) {
  const auto prefix = tokenizer.prefix_ids();
  std::vector<int32_t> ids(prefix.begin(), prefix.end());
  const GenerationDefaults& defaults = file.generation();
  if (ids.empty() && defaults.add_bos && defaults.bos_id >= 0) ids.push_back(defaults.bos_id);
  return ids;
}

Status MakeSampler(const SamplerOptions& options, size_t vocab_size, OwnedSampler* out, Diagnostic* diagnostic) {
  const size_t bytes = Sampler::ScratchBytes(options, vocab_size);
  out->memory.resize((bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  auto sampler = Sampler::Create(options, vocab_size, std::as_writable_bytes(std::span(out->memory)));
  if (!sampler.ok()) {
    if (diagnostic != nullptr) diagnostic->Set("sampler options");
    return sampler.status();
  }
  out->sampler = std::make_unique<Sampler>(std::move(sampler).value());
  return Status::Ok();
}

Status SessionFailure(const Status& status, const Session& session, Diagnostic* diagnostic) {
  if (status.code() == StatusCode::kContextFull && diagnostic != nullptr) {
    diagnostic->Set("context: expected room for one more token, found all %u positions used (--context)",
                    session.plan().options.context_tokens);
  }
  return status;
}

}  // namespace linnet::cli
