#include <span>
#include <utility>

#include "capi/handles.h"

namespace linnet::capi {
namespace {

Status ReadSamplerOptions(const linnet_sampler_options* caller, SamplerOptions* options, Diagnostic* diagnostic) {
  linnet_sampler_options known;
  LINNET_RETURN_IF_ERROR(ReadOptions(caller, "linnet_sampler_options", &known, diagnostic));
  options->temperature = known.temperature;
  options->top_k = known.top_k;
  options->top_p = known.top_p == 0.0f ? 1.0f : known.top_p;
  options->min_p = known.min_p;
  options->repetition_penalty = known.repetition_penalty == 0.0f ? 1.0f : known.repetition_penalty;
  options->penalty_window = known.penalty_window;
  options->seed = known.seed;
  return Status::Ok();
}

Status CreateSampler(const ModelState& model, const SamplerOptions& options, linnet_sampler** out) {
  auto sampler = std::make_unique<linnet_sampler>();
  sampler->vocab_size = model.file.config().vocab_size;
  // Create refuses the options that ScratchBytes cannot measure.
  const size_t bytes = Sampler::ScratchBytes(options, sampler->vocab_size);
  sampler->memory.resize((bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  LINNET_ASSIGN_OR_RETURN(sampler->sampler, Sampler::Create(options, sampler->vocab_size,
                                                            std::as_writable_bytes(std::span(sampler->memory))));
  *out = sampler.release();
  return Status::Ok();
}

Status Sample(linnet_sampler* sampler, const linnet_session& session, int32_t* id, Diagnostic* diagnostic) {
  const SessionLock lock(session);
  if (!lock) return Misuse(diagnostic, "linnet_sampler_sample: the session is in use by another call");
  const auto logits = session.session->logits();
  if (logits.empty())
    return Misuse(diagnostic, "linnet_sampler_sample: the session has no logits; a prefill makes them");
  if (logits.size() != sampler->vocab_size) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "a session of another model",
                "logits: expected the %zu of the sampler's model, found %zu", sampler->vocab_size, logits.size());
  }
  LINNET_ASSIGN_OR_RETURN(*id, sampler->sampler->Sample(logits));
  return Status::Ok();
}

}  // namespace
}  // namespace linnet::capi

using linnet::Diagnostic;
using linnet::Status;
using linnet::capi::Guarded;
using linnet::capi::Misuse;

extern "C" {

linnet_status linnet_sampler_create(const linnet_model* model, const linnet_sampler_options* options,
                                    linnet_sampler** out, linnet_error* error) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (out == nullptr) return Misuse(diagnostic, "linnet_sampler_create: out is null");
    *out = nullptr;
    if (model == nullptr) return Misuse(diagnostic, "linnet_sampler_create: model is null");
    linnet::SamplerOptions known;
    LINNET_RETURN_IF_ERROR(linnet::capi::ReadSamplerOptions(options, &known, diagnostic));
    return linnet::capi::CreateSampler(*model->state, known, out);
  });
}

void linnet_sampler_free(linnet_sampler* sampler) { delete sampler; }

linnet_status linnet_sampler_sample(linnet_sampler* sampler, const linnet_session* session, int32_t* id,
                                    linnet_error* error) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (sampler == nullptr || session == nullptr || id == nullptr) {
      return Misuse(diagnostic, "linnet_sampler_sample: sampler, session or id is null");
    }
    return linnet::capi::Sample(sampler, *session, id, diagnostic);
  });
}

linnet_status linnet_sampler_accept(linnet_sampler* sampler, const int32_t* ids, size_t count, linnet_error* error) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (sampler == nullptr || (ids == nullptr && count != 0)) {
      return Misuse(diagnostic, "linnet_sampler_accept: sampler or ids is null");
    }
    sampler->sampler->Accept(std::span(ids, count));
    return Status::Ok();
  });
}

void linnet_sampler_reset(linnet_sampler* sampler) {
  if (sampler != nullptr) sampler->sampler->Reset();
}

}  // extern "C"
