#include <span>
#include <utility>

#include "capi/handles.h"

namespace linnet::capi {
namespace {

Status CheckLoaded(const ModelState& model, Diagnostic* diagnostic) {
  if (model.loaded.load(std::memory_order_acquire)) return Status::Ok();
  return Misuse(diagnostic, "linnet_session_create: linnet_model_load must come first");
}

Status CreateSession(std::shared_ptr<const ModelState> model, const linnet_session_options* options,
                     linnet_session** out, Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(CheckLoaded(*model, diagnostic));
  LINNET_ASSIGN_OR_RETURN(Plan plan, PlanFor(*model, options, diagnostic));
  auto session = std::make_unique<linnet_session>();
  session->model = std::move(model);
  session->capacity = plan.options.context_tokens;
  session->ids.reserve(session->capacity);
  LINNET_ASSIGN_OR_RETURN(session->memory, platform::AnonymousMemory::Create(plan.memory.session, diagnostic));
  LINNET_ASSIGN_OR_RETURN(session->pool, ops::ThreadPool::Create(plan.options.n_threads));
  LINNET_ASSIGN_OR_RETURN(session->session,
                          Session::Create(session->model->view, std::move(plan), session->model->packed->bytes(),
                                          *session->pool, session->memory.bytes()));
  *out = session.release();
  return Status::Ok();
}

// A prefill of one call: the caller's progress function, and the request to stop.
struct Run {
  linnet_session* session;
  linnet_progress_function progress;
  void* context;

  static bool Update(void* self, uint32_t done, uint32_t total) {
    const Run& run = *static_cast<const Run*>(self);
    run.session->position.store(run.session->session->position(), std::memory_order_relaxed);
    if (run.progress != nullptr && run.progress(run.context, done, total) == 0) return false;
    return !run.session->cancelled.load(std::memory_order_relaxed);
  }
};

Status CheckCancel(const linnet_session& session, Diagnostic* diagnostic) {
  if (!session.cancelled.load(std::memory_order_relaxed)) return Status::Ok();
  return Fail(diagnostic, StatusCode::kCancelled, "cancelled",
              "session: linnet_session_cancel was called; linnet_session_reset_cancel ends that");
}

// A failure of core with what it cannot say in a static message.
Status Explain(const Status& status, std::span<const int32_t> ids, const linnet_session& session,
               Diagnostic* diagnostic) {
  if (diagnostic == nullptr || status.ok()) return status;
  const auto index = static_cast<size_t>(status.value());
  if (status.code() == StatusCode::kContextFull) {
    diagnostic->Set("context of %u tokens: expected at most %lld more, found %zu", session.capacity,
                    static_cast<long long>(status.value()), ids.size());
  } else if (status.code() == StatusCode::kInvalidArgument && index < ids.size()) {
    diagnostic->Set("id at index %zu: expected 0 to %u, found %d", index, session.model->file.config().vocab_size - 1,
                    ids[index]);
  }
  return status;
}

// The session's own record of its ids follows what core did.
void Follow(linnet_session* session, std::span<const int32_t> ids, size_t begin) {
  const size_t end = session->session->position();
  session->ids.resize(begin);
  session->ids.insert(session->ids.end(), ids.begin(), ids.begin() + static_cast<ptrdiff_t>(end - begin));
  session->position.store(static_cast<uint32_t>(end), std::memory_order_relaxed);
}

// `session` is held by the caller.
Status Prefill(linnet_session* session, std::span<const int32_t> ids, const Run& run, Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(CheckCancel(*session, diagnostic));
  const size_t begin = session->session->position();
  const Status status = session->session->Prefill(ids, {Run::Update, const_cast<Run*>(&run)});
  Follow(session, ids, begin);
  if (status.ok() && run.progress != nullptr) run.progress(run.context, ids.size(), ids.size());
  return Explain(status, ids, *session, diagnostic);
}

// Errors: those that Prefill would have for `ids` as a whole sequence, before anything is forgotten.
Status CheckPrompt(const linnet_session& session, std::span<const int32_t> ids, Diagnostic* diagnostic) {
  Status status;
  const auto vocab_size = static_cast<int64_t>(session.model->file.config().vocab_size);
  if (ids.empty()) return Misuse(diagnostic, "linnet_session_set_prompt: no ids");
  if (ids.size() > session.capacity) {
    status = {StatusCode::kContextFull, "the tokens do not fit into the context", session.capacity};
  }
  for (size_t i = 0; i < ids.size() && status.ok(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    status = {StatusCode::kInvalidArgument, "a token id is outside the vocabulary", static_cast<int64_t>(i)};
  }
  return Explain(status, ids, session, diagnostic);
}

Status SetPrompt(linnet_session* session, std::span<const int32_t> ids, const Run& run, size_t* reused,
                 Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(CheckPrompt(*session, ids, diagnostic));
  LINNET_RETURN_IF_ERROR(CheckCancel(*session, diagnostic));
  size_t common = 0;
  const size_t limit = std::min(session->ids.size(), ids.size() - 1);  // the last id runs again: its logits are needed
  while (common < limit && session->ids[common] == ids[common]) ++common;
  if (!session->session->Rewind(static_cast<uint32_t>(common)).ok()) {
    // A layer with a window no longer holds what came before that position.
    LINNET_RETURN_IF_ERROR(session->session->Rewind(0));
    common = 0;
  }
  session->ids.resize(common);
  *reused = common;
  return Prefill(session, ids.subspan(common), run, diagnostic);
}

Status Rewind(linnet_session* session, uint32_t position, Diagnostic* diagnostic) {
  const uint32_t found = session->session->position();
  const Status status = session->session->Rewind(position);
  if (!status.ok()) {
    if (diagnostic != nullptr) {
      diagnostic->Set("position: expected 0, or one up to %u that every layer still holds, found %u", found, position);
    }
    return status;
  }
  session->ids.resize(position);
  session->position.store(position, std::memory_order_relaxed);
  return Status::Ok();
}

// Takes the session for one call of `function(Diagnostic*) -> Status`.
template <typename Function>
linnet_status Exclusive(const linnet_session* session, const char* name, linnet_error* error,
                        const Function& function) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (session == nullptr) {
      return Fail(diagnostic, StatusCode::kInvalidArgument, "a null argument", "%s: session is null", name);
    }
    const SessionLock lock(*session);
    if (!lock) {
      return Fail(diagnostic, StatusCode::kInvalidArgument, "the session is in use",
                  "%s: expected one call at a time, found another one running", name);
    }
    return function(diagnostic);
  });
}

}  // namespace
}  // namespace linnet::capi

using linnet::Diagnostic;
using linnet::Status;
using linnet::capi::Exclusive;
using linnet::capi::Guarded;
using linnet::capi::Misuse;

extern "C" {

linnet_status linnet_session_create(const linnet_model* model, const linnet_session_options* options,
                                    linnet_session** out, linnet_error* error) {
  return Guarded(error, [&](Diagnostic* diagnostic) -> Status {
    if (out == nullptr) return Misuse(diagnostic, "linnet_session_create: out is null");
    *out = nullptr;
    if (model == nullptr) return Misuse(diagnostic, "linnet_session_create: model is null");
    return linnet::capi::CreateSession(model->state, options, out, diagnostic);
  });
}

void linnet_session_free(linnet_session* session) { delete session; }

linnet_status linnet_session_prefill(linnet_session* session, const int32_t* ids, size_t count,
                                     linnet_progress_function progress, void* progress_context, linnet_error* error) {
  return Exclusive(session, "linnet_session_prefill", error, [&](Diagnostic* diagnostic) -> Status {
    if (ids == nullptr && count != 0) return Misuse(diagnostic, "linnet_session_prefill: ids is null");
    return linnet::capi::Prefill(session, {ids, count}, {session, progress, progress_context}, diagnostic);
  });
}

linnet_status linnet_session_set_prompt(linnet_session* session, const int32_t* ids, size_t count,
                                        linnet_progress_function progress, void* progress_context, size_t* reused,
                                        linnet_error* error) {
  size_t kept = 0;
  if (reused != nullptr) *reused = 0;
  const linnet_status status =
      Exclusive(session, "linnet_session_set_prompt", error, [&](Diagnostic* diagnostic) -> Status {
        if (ids == nullptr && count != 0) return Misuse(diagnostic, "linnet_session_set_prompt: ids is null");
        return linnet::capi::SetPrompt(session, {ids, count}, {session, progress, progress_context}, &kept, diagnostic);
      });
  if (reused != nullptr) *reused = kept;
  return status;
}

linnet_status linnet_session_decode(linnet_session* session, int32_t id, linnet_error* error) {
  return Exclusive(session, "linnet_session_decode", error, [&](Diagnostic* diagnostic) -> Status {
    LINNET_RETURN_IF_ERROR(linnet::capi::CheckCancel(*session, diagnostic));
    const size_t begin = session->session->position();
    const Status status = session->session->Decode(id);
    linnet::capi::Follow(session, {&id, 1}, begin);
    return linnet::capi::Explain(status, {&id, 1}, *session, diagnostic);
  });
}

const float* linnet_session_logits(const linnet_session* session, size_t* count) {
  if (count != nullptr) *count = 0;
  if (session == nullptr) return nullptr;
  const linnet::capi::SessionLock lock(*session);
  if (!lock) return nullptr;
  const auto logits = session->session->logits();
  if (logits.empty()) return nullptr;
  if (count != nullptr) *count = logits.size();
  return logits.data();
}

uint32_t linnet_session_position(const linnet_session* session) {
  return session == nullptr ? 0 : session->position.load(std::memory_order_relaxed);
}

uint32_t linnet_session_remaining(const linnet_session* session) {
  return session == nullptr ? 0 : session->capacity - session->position.load(std::memory_order_relaxed);
}

linnet_status linnet_session_rewind(linnet_session* session, uint32_t position, linnet_error* error) {
  return Exclusive(session, "linnet_session_rewind", error, [&](Diagnostic* diagnostic) -> Status {
    return linnet::capi::Rewind(session, position, diagnostic);
  });
}

void linnet_session_cancel(linnet_session* session) {
  if (session != nullptr) session->cancelled.store(true, std::memory_order_relaxed);
}

void linnet_session_reset_cancel(linnet_session* session) {
  if (session != nullptr) session->cancelled.store(false, std::memory_order_relaxed);
}

}  // extern "C"
