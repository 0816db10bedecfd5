// Public header. One conversation's state over a model: prefill, decode, logits.
#ifndef LINNET_CORE_SESSION_H_
#define LINNET_CORE_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/base/model_view.h"
#include "core/base/status.h"
#include "core/plan.h"
#include "ops/thread_pool.h"

namespace linnet {

/// Receives the logits of every position from `from_pos` on, blocks of rows in order, during Prefill.
struct LogitsSink {
  void (*function)(void* context, uint32_t first_pos, const float* logits, uint32_t n_rows) = nullptr;
  void* context = nullptr;
  uint32_t from_pos = 0;
};

/// Called after every chunk of a prefill with tokens done and in all; returns false to stop.
struct PrefillProgress {
  bool (*function)(void* context, uint32_t tokens_done, uint32_t tokens_total) = nullptr;
  void* context = nullptr;
};

/// Runs a model. All memory is taken in Create; Prefill, Decode and Rewind make no heap call. Not thread-safe; the
/// bits of its results depend neither on the pool's threads nor on the chunk. Move-only.
class Session {
 public:
  /// `model`, `packed` (a region that PackWeights filled) and `pool` outlive the session; the pool has
  /// plan.options.n_threads threads. `memory`: plan.memory.session bytes aligned to 64, or empty: the session
  /// allocates them itself.
  /// Errors: kInvalidArgument (another pool, misaligned memory), kOutOfMemory (memory too small, or none to be had),
  /// kInvalidModel (packed bytes of another model or CPU).
  static Result<Session> Create(const ModelView& model, Plan plan, std::span<const std::byte> packed,
                                ops::ThreadPool& pool, std::span<std::byte> memory = {});

  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  /// Appends ids to the sequence. Afterwards logits() are those of the last one.
  /// Errors: kInvalidArgument (no ids, or an id outside the vocabulary: value() is its index), kContextFull (more ids
  /// than remaining(): value() is how many fit): in both cases nothing has changed. kCancelled: the chunks that
  /// were done stay, position() tells.
  Status Prefill(std::span<const int32_t> ids, const PrefillProgress& progress = {}, const LogitsSink& sink = {});
  /// Appends one id, through the plan for single tokens. Errors: as Prefill.
  Status Decode(int32_t id);

  /// Logits of the last position, [vocab_size]; empty before the first Prefill and after Rewind. Valid until the next
  /// call.
  std::span<const float> logits() const;

  uint32_t position() const;   // tokens in the sequence
  uint32_t remaining() const;  // tokens that still fit
  /// Forgets everything from `position` on. Errors: kInvalidArgument where it is ahead; kUnsupported where a window
  /// layer's ring no longer holds what came before it (Rewind(0) always works).
  Status Rewind(uint32_t position);

  const Plan& plan() const;

  /// What the final norm and the head read from one row [model_dim] of any layer's residual stream: afterwards logits()
  /// are its logits. The sequence stays as it is. For traces; not from inside an observer.
  /// Errors: kInvalidArgument (another width).
  Status ReadHead(std::span<const float> stream_row);

  /// Calls `observer` after every step from now on (core/executor.h); a null function ends it.
  void SetObserver(const struct StepObserver& observer);

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace linnet

#endif  // LINNET_CORE_SESSION_H_
