#include "core/session.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/aligned_memory.h"
#include "core/executor.h"

namespace linnet {

struct Session::State {
  ModelView model;
  Plan plan;
  AlignedMemory owned;
  std::unique_ptr<Executor> executor;
  uint32_t position = 0;
  uint32_t written_end = 0;  // one past the highest position ever written since the last full rewind
  const float* logits = nullptr;

  uint32_t remaining() const { return plan.options.context_tokens - position; }
  Status CheckIds(std::span<const int32_t> ids) const;
  Status Feed(const ExecutionPlan& steps, std::span<const int32_t> ids, uint32_t sequence_tokens, uint32_t first_row);
  Status Head(const ExecutionPlan& steps, uint32_t first_row, uint32_t n_rows);
  Status Deliver(uint32_t n_rows, const LogitsSink& sink);
};

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::Create(const ModelView& model, Plan plan, std::span<const std::byte> packed,
                                ops::ThreadPool& pool, std::span<std::byte> memory) {
  if (pool.n_threads() != plan.options.n_threads) {
    return Status(StatusCode::kInvalidArgument, "the pool has another number of threads than the plan",
                  static_cast<int64_t>(pool.n_threads()));
  }
  auto state = std::unique_ptr<State>(new (std::nothrow) State);
  if (state == nullptr) return Status(StatusCode::kOutOfMemory, "no memory for a session");
  state->model = model;
  state->plan = std::move(plan);
  const uint64_t bytes = state->plan.memory.session;
  if (memory.empty()) {
    state->owned = AllocateAligned(bytes);
    if (state->owned == nullptr) {
      return Status(StatusCode::kOutOfMemory, "no memory for the KV cache and the activations",
                    static_cast<int64_t>(bytes));
    }
    memory = {state->owned.get(), bytes};
  }
  if (reinterpret_cast<uintptr_t>(memory.data()) % kMemoryAlignment != 0) {
    return Status(StatusCode::kInvalidArgument, "the session's memory is not aligned to 64 bytes");
  }
  if (memory.size() < bytes) {
    return Status(StatusCode::kOutOfMemory, "the session's memory is smaller than planned",
                  static_cast<int64_t>(bytes));
  }
  LINNET_ASSIGN_OR_RETURN(Executor executor,
                          Executor::Create(state->model, state->plan, packed,
                                           Executor::Memory::Place(state->plan.memory, memory.data()), pool));
  state->executor = std::unique_ptr<Executor>(new (std::nothrow) Executor(std::move(executor)));
  if (state->executor == nullptr) return Status(StatusCode::kOutOfMemory, "no memory for a session");
  return Session(std::move(state));
}

Status Session::State::CheckIds(std::span<const int32_t> ids) const {
  if (ids.empty()) return {StatusCode::kInvalidArgument, "no tokens were given", 0};
  if (ids.size() > remaining()) {
    return {StatusCode::kContextFull, "the tokens do not fit into the context", remaining()};
  }
  const auto vocab_size = static_cast<int64_t>(model.config().vocab_size);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return {StatusCode::kInvalidArgument, "a token id is outside the vocabulary", static_cast<int64_t>(i)};
    }
  }
  return Status::Ok();
}

// Logits can be asked for of rows from first_row on.
Status Session::State::Feed(const ExecutionPlan& steps, std::span<const int32_t> ids, uint32_t sequence_tokens,
                            uint32_t first_row) {
  logits = nullptr;
  LINNET_RETURN_IF_ERROR(
      executor->RunBody(steps, {.ids = ids, .first_pos = position, .sequence_tokens = sequence_tokens}, first_row));
  position += static_cast<uint32_t>(ids.size());
  written_end = std::max(written_end, position);
  return Status::Ok();
}

Status Session::State::Head(const ExecutionPlan& steps, uint32_t first_row, uint32_t n_rows) {
  LINNET_RETURN_IF_ERROR(executor->RunHead(steps, first_row, n_rows));
  logits = executor->logits(steps) + size_t{n_rows - 1} * model.config().vocab_size;
  return Status::Ok();
}

// Hands the logits of the last n_rows positions to the sink, as far as it wants them.
Status Session::State::Deliver(uint32_t n_rows, const LogitsSink& sink) {
  const uint32_t first_pos = position - n_rows;
  const uint32_t skip = sink.from_pos > first_pos ? std::min(sink.from_pos - first_pos, n_rows) : 0;
  const uint32_t block = plan.prefill.max_logit_rows;
  for (uint32_t row = skip; row < n_rows; row += block) {
    const uint32_t n = std::min(block, n_rows - row);
    LINNET_RETURN_IF_ERROR(Head(plan.prefill, row, n));
    sink.function(sink.context, first_pos + row, executor->logits(plan.prefill), n);
  }
  return Status::Ok();
}

Status Session::Prefill(std::span<const int32_t> ids, const PrefillProgress& progress, const LogitsSink& sink) {
  State& s = *state_;
  LINNET_RETURN_IF_ERROR(s.CheckIds(ids));
  const uint32_t sequence_tokens = s.position + static_cast<uint32_t>(ids.size());
  for (size_t done = 0; done < ids.size();) {
    const size_t n = std::min<size_t>(s.plan.options.chunk_tokens, ids.size() - done);
    const auto n_rows = static_cast<uint32_t>(n);
    uint32_t first_row = done + n == ids.size() ? n_rows - 1 : n_rows;
    if (sink.function != nullptr) first_row = std::min(first_row, sink.from_pos - std::min(sink.from_pos, s.position));
    LINNET_RETURN_IF_ERROR(s.Feed(s.plan.prefill, ids.subspan(done, n), sequence_tokens, first_row));
    done += n;
    if (sink.function != nullptr) LINNET_RETURN_IF_ERROR(s.Deliver(n_rows, sink));
    if (done == ids.size() && s.logits == nullptr) LINNET_RETURN_IF_ERROR(s.Head(s.plan.prefill, n_rows - 1, 1));
    if (progress.function != nullptr && done < ids.size() &&
        !progress.function(progress.context, static_cast<uint32_t>(done), static_cast<uint32_t>(ids.size()))) {
      return {StatusCode::kCancelled, "the prefill was stopped", s.position};
    }
  }
  return Status::Ok();
}

Status Session::Decode(int32_t id) {
  State& s = *state_;
  LINNET_RETURN_IF_ERROR(s.CheckIds({&id, 1}));
  LINNET_RETURN_IF_ERROR(s.Feed(s.plan.decode, {&id, 1}, s.position + 1, 0));
  return s.Head(s.plan.decode, 0, 1);
}

std::span<const float> Session::logits() const {
  return state_->logits == nullptr ? std::span<const float>()
                                   : std::span<const float>(state_->logits, state_->model.config().vocab_size);
}

uint32_t Session::position() const { return state_->position; }
uint32_t Session::remaining() const { return state_->remaining(); }
const Plan& Session::plan() const { return state_->plan; }
void Session::SetObserver(const StepObserver& observer) { state_->executor->set_observer(observer); }

Status Session::ReadHead(std::span<const float> stream_row) {
  State& s = *state_;
  if (stream_row.size() != s.model.config().model_dim) {
    return {StatusCode::kInvalidArgument, "a row of the residual stream is model_dim wide",
            static_cast<int64_t>(stream_row.size())};
  }
  std::copy(stream_row.begin(), stream_row.end(), s.executor->stream(s.plan.decode));
  return s.Head(s.plan.decode, 0, 1);
}

Status Session::Rewind(uint32_t position) {
  State& s = *state_;
  if (position > s.position) return {StatusCode::kInvalidArgument, "the sequence is shorter than that", s.position};
  for (uint32_t layer = 0; position > 0 && layer < s.model.config().n_layers; ++layer) {
    const uint32_t window = s.model.config().layer(layer).attention.window;
    const uint32_t capacity = s.plan.kv[layer].shape.capacity;
    // The next token sees positions from position - window + 1 on; the ring still holds the last `capacity` written.
    const uint64_t oldest_held = s.written_end > capacity ? s.written_end - capacity : 0;
    if (window > 0 && uint64_t{position} + 1 < oldest_held + window && oldest_held > 0) {
      return {StatusCode::kUnsupported, "a window layer no longer holds what came before that position", layer};
    }
  }
  s.position = position;
  if (position == 0) s.written_end = 0;
  s.logits = nullptr;
  return Status::Ok();
}

}  // namespace linnet
