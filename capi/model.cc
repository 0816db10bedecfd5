#include <algorithm>
#include <cstring>
#include <utility>

#include "capi/handles.h"
#include "core/plan.h"
#include "formats/linnet/tokenizer_section.h"
#include "platforms/cpu.h"

namespace linnet::capi {
namespace {

using Opened = std::unique_ptr<linnet_model>;

// A model is of use without its template: what is wrong with it is told to who renders it.
void OpenTemplate(ModelState* state) {
  if (state->file.chat_template().empty()) return;
  const Tokenizer& tokenizer = *state->tokenizer;
  Diagnostic reason;
  auto parsed = ChatTemplate::Parse(state->file.chat_template(), tokenizer.TokenText(tokenizer.bos_id()),
                                    tokenizer.TokenText(tokenizer.eos_id()), &reason);
  if (parsed.ok()) {
    state->chat_template = std::move(parsed).value();
    return;
  }
  state->template_status = parsed.status();
  state->template_reason = reason;
  Diagnostic line;
  line.Set("the chat template cannot be used: %s: %s", parsed.status().message(), reason.text());
  state->Log(LINNET_LOG_WARNING, line.text());
}

Status OpenTexts(ModelState* state, Diagnostic* diagnostic) {
  state->name = std::string(state->file.name());
  state->license = std::string(state->file.license());
  LINNET_ASSIGN_OR_RETURN(TokenizerView view, formats::ReadTokenizerSection(state->file.tokenizer_bytes(), diagnostic));
  if (view.kind == TokenizerKind::kNone) return Status::Ok();
  LINNET_ASSIGN_OR_RETURN(state->tokenizer, Tokenizer::Create(std::move(view), diagnostic));
  OpenTemplate(state);
  return Status::Ok();
}

Result<Opened> MakeModel(formats::ModelFile file, platform::AnonymousMemory copy, const linnet_model_options& options,
                         Diagnostic* diagnostic) {
  auto state = std::make_shared<ModelState>(std::move(file), std::move(copy));
  state->log = options.log;
  state->log_context = options.log_context;
  LINNET_RETURN_IF_ERROR(OpenTexts(state.get(), diagnostic));
  auto model = std::make_unique<linnet_model>();
  model->state = std::move(state);
  return model;
}

Result<Opened> OpenPath(const char* path, const linnet_model_options& options, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(formats::ModelFile file, formats::ModelFile::Open(std::string(path), diagnostic));
  return MakeModel(std::move(file), {}, options, diagnostic);
}

struct FileRange {
  int descriptor;
  uint64_t offset, length;
};

// A model at an address that the kernels cannot use, as an asset of an APK may lie: the only way is another place.
Result<Opened> OpenCopy(const FileMapping& mapping, const linnet_model_options& options, Diagnostic* diagnostic) {
  const auto source = mapping.bytes();
  LINNET_ASSIGN_OR_RETURN(auto copy, platform::AnonymousMemory::Create(source.size(), diagnostic));
  if (!source.empty()) std::memcpy(copy.bytes().data(), source.data(), source.size());
  mapping.DropPages(0, source.size());
  LINNET_ASSIGN_OR_RETURN(formats::ModelFile file, formats::ModelFile::FromBytes(copy.bytes(), diagnostic));
  return MakeModel(std::move(file), std::move(copy), options, diagnostic);
}

Result<Opened> OpenDescriptor(const FileRange& range, const linnet_model_options& options, Diagnostic* diagnostic) {
  if (range.length == FileMapping::kToEnd) {  // a signed "unknown", as some systems have it
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the range is not inside the file",
                "length: expected that of the model, or 0 for all up to the file's end, found -1");
  }
  const uint64_t length = range.length != 0 ? range.length : FileMapping::kToEnd;
  LINNET_ASSIGN_OR_RETURN(FileMapping mapping,
                          FileMapping::FromDescriptor(range.descriptor, range.offset, length, diagnostic));
  if (range.offset % formats::kTensorAlignment == 0) {
    LINNET_ASSIGN_OR_RETURN(formats::ModelFile file, formats::ModelFile::Open(std::move(mapping), diagnostic));
    return MakeModel(std::move(file), {}, options, diagnostic);
  }
  if (options.log != nullptr) {
    Diagnostic line;
    line.Set("the model is copied into memory (%llu bytes): its offset %llu is no multiple of %llu",
             static_cast<unsigned long long>(mapping.bytes().size()), static_cast<unsigned long long>(range.offset),
             static_cast<unsigned long long>(formats::kTensorAlignment));
    options.log(options.log_context, LINNET_LOG_WARNING, line.text());
  }
  return OpenCopy(mapping, options, diagnostic);
}

Status Deliver(Result<Opened> opened, linnet_model** out) {
  if (!opened.ok()) return opened.status();
  *out = std::move(opened).value().release();
  return Status::Ok();
}

bool KvFrom(int32_t kv, SessionOptions::Kv* out) {
  switch (kv) {
    case LINNET_KV_AUTO:
      *out = SessionOptions::Kv::kAuto;
      return true;
    case LINNET_KV_F32:
      *out = SessionOptions::Kv::kF32;
      return true;
    case LINNET_KV_F16:
      *out = SessionOptions::Kv::kF16;
      return true;
    case LINNET_KV_INT8:
      *out = SessionOptions::Kv::kInt8;
      return true;
  }
  return false;
}

int32_t KvNumber(ops::KvType type) {
  switch (type) {
    case ops::KvType::kF32:
      return LINNET_KV_F32;
    case ops::KvType::kF16:
      return LINNET_KV_F16;
    case ops::KvType::kInt8:
      return LINNET_KV_INT8;
  }
  return LINNET_KV_AUTO;
}

// Of a sampler with everything switched on.
uint64_t SamplerBytes(const ModelState& model) {
  SamplerOptions options;
  options.repetition_penalty = 1.1f;  // any but 1 takes memory for the tokens seen
  return Sampler::ScratchBytes(options, model.file.config().vocab_size);
}

// What a session's plan does not know of. The copy of a file holds its metadata.
uint64_t OtherBytes(const ModelState& model) {
  const uint64_t file = model.copy.bytes().empty() ? model.file.metadata_bytes() : model.copy.bytes().size();
  return file + SamplerBytes(model) + (model.tokenizer ? model.tokenizer->memory_bytes() : 0);
}

linnet_plan PlanReport(const ModelState& model, const Plan& plan) {
  linnet_plan report = {};
  report.context_tokens = plan.options.context_tokens;
  report.chunk_tokens = plan.options.chunk_tokens;
  report.n_threads = plan.options.n_threads;
  report.kv_type = KvNumber(plan.kv_type);
  report.packed_weights = plan.memory.packed_weights;
  report.tokenizer = model.tokenizer ? model.tokenizer->memory_bytes() : 0;
  report.copied_model = model.copy.bytes().size();
  report.mapped_weights = plan.memory.mapped_weights;
  report.metadata = model.file.metadata_bytes();
  report.kv_cache = plan.memory.kv_cache;
  report.activations = plan.memory.activations;
  report.scratch = plan.memory.scratch;
  report.logits = plan.memory.logits;
  report.operators = plan.memory.operators;
  report.tables = plan.memory.tables;
  report.thread_stacks = plan.memory.thread_stacks;
  report.sampler = SamplerBytes(model);
  report.total = plan.memory.packed_weights + plan.memory.Anonymous() + OtherBytes(model) +
                 (report.copied_model != 0 ? 0 : plan.memory.mapped_weights);
  return report;
}

void WarnPacked(void* context, const char* reason) {
  Diagnostic line;
  line.Set("packed weights stay in memory this time: %s", reason);
  static_cast<const ModelState*>(context)->Log(LINNET_LOG_WARNING, line.text());
}

// Empty, after a warning, where the folder cannot be made.
std::string CachePath(const ModelState& model, const PackedLayout& layout, const char* folder) {
  Diagnostic reason;
  auto path = PackedFilePath(folder, model.view, layout, &reason);
  if (path.ok()) return std::move(path).value();
  WarnPacked(const_cast<ModelState*>(&model), reason.text());
  return "";
}

// The caller's progress function as core calls it.
struct LoadProgress {
  linnet_load_options options;
  static bool Update(void* context, uint64_t done, uint64_t total) {
    const auto& options = static_cast<const LoadProgress*>(context)->options;
    return options.progress == nullptr || options.progress(options.progress_context, done, total) != 0;
  }
};

// Holds a model for its one loading thread. The next one waits.
class LoadLock {
 public:
  explicit LoadLock(ModelState* model) : model_(model), lock_(model->packed_mutex) {
    model->loading.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  ~LoadLock() { model_->loading.store(std::thread::id(), std::memory_order_relaxed); }

 private:
  ModelState* model_;
  std::lock_guard<std::mutex> lock_;
};

Status Load(ModelState* model, const linnet_load_options* caller, Diagnostic* diagnostic) {
  LoadProgress progress;
  LINNET_RETURN_IF_ERROR(ReadOptions(caller, "linnet_load_options", &progress.options, diagnostic));
  const char* folder = progress.options.cache_folder;
  if (folder != nullptr && folder[0] == '\0') {
    return Misuse(diagnostic, "linnet_model_load: cache_folder is empty; expected a path, or NULL for none");
  }
  if (model->loading.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    return Misuse(diagnostic, "linnet_model_load: called from a callback of the same model's linnet_model_load");
  }
  const LoadLock lock(model);
  if (model->packed) return Status::Ok();
  LINNET_ASSIGN_OR_RETURN(const PackedLayout layout, ComputePackedLayout(model->view));
  PackedStoreHooks hooks;
  hooks.progress = {LoadProgress::Update, &progress};
  hooks.warn = WarnPacked;
  hooks.warn_context = model;
  std::string path;
  if (folder != nullptr) path = CachePath(*model, layout, folder);
  LINNET_ASSIGN_OR_RETURN(model->packed, PackedStore::Open(model->file, layout, path, hooks, diagnostic));
  model->loaded.store(true, std::memory_order_release);
  return Status::Ok();
}

// A failure of MakePlan with what it cannot say in a static message.
void ExplainPlan(const Status& status, const ModelConfig& config, const SessionOptions& options,
                 Diagnostic* diagnostic) {
  if (status.code() == StatusCode::kOutOfMemory) {
    diagnostic->Set("memory_budget: expected at least %lld bytes, found %llu", static_cast<long long>(status.value()),
                    static_cast<unsigned long long>(options.memory_budget));
  } else if (status.code() == StatusCode::kInvalidArgument && status.value() == options.context_tokens) {
    const bool learned = config.positions == EmbeddingPositions::kLearned;
    const uint32_t limit = learned ? config.position_rows - config.position_offset : kMaxContext;
    diagnostic->Set("context_tokens: expected at most %u, found %u", std::min(limit, kMaxContext),
                    options.context_tokens);
  }
}

}  // namespace

Result<Plan> PlanFor(const ModelState& model, const linnet_session_options* options, Diagnostic* diagnostic) {
  linnet_session_options known;
  LINNET_RETURN_IF_ERROR(ReadOptions(options, "linnet_session_options", &known, diagnostic));
  SessionOptions session;
  session.context_tokens = known.context_tokens;
  session.chunk_tokens = known.chunk_tokens;
  session.n_threads = known.n_threads != 0 ? known.n_threads : platform::DefaultThreadCount();
  if (session.n_threads > ops::ThreadPool::kMaxThreads) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "too many threads",
                "n_threads: expected at most %zu, found %u", ops::ThreadPool::kMaxThreads, session.n_threads);
  }
  if (!KvFrom(known.kv_type, &session.kv)) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "no such type of KV cache",
                "kv_type: expected LINNET_KV_AUTO to LINNET_KV_INT8 (0 to 3), found %d", known.kv_type);
  }
  session.memory_budget = known.memory_budget;
  session.other_bytes = OtherBytes(model);
  auto plan = MakePlan(model.view, session);
  if (!plan.ok() && diagnostic != nullptr) ExplainPlan(plan.status(), model.file.config(), session, diagnostic);
  return plan;
}

}  // namespace linnet::capi

using linnet::Diagnostic;
using linnet::Status;
using linnet::capi::Guarded;
using linnet::capi::Misuse;

extern "C" {

linnet_status linnet_model_open(const char* path, const linnet_model_options* options, linnet_model** out,
                                linnet_error* error) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (out != nullptr) *out = nullptr;
    if (path == nullptr || out == nullptr) return Misuse(diagnostic, "linnet_model_open: path or out is null");
    linnet_model_options known;
    LINNET_RETURN_IF_ERROR(linnet::capi::ReadOptions(options, "linnet_model_options", &known, diagnostic));
    return linnet::capi::Deliver(linnet::capi::OpenPath(path, known, diagnostic), out);
  });
}

linnet_status linnet_model_open_descriptor(int descriptor, uint64_t offset, uint64_t length,
                                           const linnet_model_options* options, linnet_model** out,
                                           linnet_error* error) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (out == nullptr) return Misuse(diagnostic, "linnet_model_open_descriptor: out is null");
    *out = nullptr;
    linnet_model_options known;
    LINNET_RETURN_IF_ERROR(linnet::capi::ReadOptions(options, "linnet_model_options", &known, diagnostic));
    return linnet::capi::Deliver(linnet::capi::OpenDescriptor({descriptor, offset, length}, known, diagnostic), out);
  });
}

void linnet_model_free(linnet_model* model) { delete model; }

linnet_status linnet_model_get_info(const linnet_model* model, linnet_model_info* info, linnet_error* error) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (model == nullptr) return Misuse(diagnostic, "linnet_model_get_info: model is null");
    const linnet::capi::ModelState& state = *model->state;
    const linnet::ModelConfig& config = state.file.config();
    linnet_model_info report = {};
    report.name = state.name.c_str();
    report.license = state.license.c_str();
    report.file_bytes = state.file.file_bytes();
    report.vocab_size = config.vocab_size;
    report.context_length = config.context_length;
    report.n_layers = config.n_layers;
    report.model_dim = config.model_dim;
    report.has_tokenizer = state.tokenizer ? 1 : 0;
    report.has_chat_template = state.chat_template ? 1 : 0;
    report.bos_id = state.file.generation().bos_id;
    return linnet::capi::WriteReport(report, "linnet_model_info", info, diagnostic);
  });
}

int linnet_model_is_end(const linnet_model* model, int32_t id) {
  if (model == nullptr) return 0;
  const auto& ends = model->state->file.generation().end_ids;
  return std::find(ends.begin(), ends.end(), id) != ends.end() ? 1 : 0;
}

linnet_status linnet_model_plan(const linnet_model* model, const linnet_session_options* options, linnet_plan* plan,
                                linnet_error* error) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (model == nullptr) return Misuse(diagnostic, "linnet_model_plan: model is null");
    LINNET_ASSIGN_OR_RETURN(const linnet::Plan made, linnet::capi::PlanFor(*model->state, options, diagnostic));
    return linnet::capi::WriteReport(linnet::capi::PlanReport(*model->state, made), "linnet_plan", plan, diagnostic);
  });
}

linnet_status linnet_model_load(linnet_model* model, const linnet_load_options* options, linnet_error* error) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (model == nullptr) return Misuse(diagnostic, "linnet_model_load: model is null");
    return linnet::capi::Load(model->state.get(), options, diagnostic);
  });
}

linnet_status linnet_model_sampler_defaults(const linnet_model* model, linnet_sampler_options* options,
                                            linnet_error* error) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (model == nullptr) return Misuse(diagnostic, "linnet_model_sampler_defaults: model is null");
    const linnet::GenerationDefaults& given = model->state->file.generation();
    linnet_sampler_options report = {};
    if (given.temperature >= 0) report.temperature = given.temperature;
    if (given.top_k >= 0) report.top_k = given.top_k;
    if (given.top_p >= 0) report.top_p = given.top_p;
    if (given.repetition_penalty > 0) report.repetition_penalty = given.repetition_penalty;
    return linnet::capi::WriteReport(report, "linnet_sampler_options", options, diagnostic);
  });
}

}  // extern "C"
