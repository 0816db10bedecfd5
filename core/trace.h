// Public header. What happens inside a run: the residual stream layer by layer, and what the head would read there.
#ifndef LINNET_CORE_TRACE_H_
#define LINNET_CORE_TRACE_H_

#include <cstdint>
#include <span>

#include "core/base/model_config.h"
#include "core/base/status.h"
#include "core/session.h"

namespace linnet {

/// Where a trace of T tokens through L layers of width d goes; memory of the caller.
struct StreamTrace {
  std::span<float> stream;           // [L + 1, T, d]: entry 0 is the input of layer 0, entry i + 1 the output of
                                     // layer i; the final norm is not applied
  std::span<float> norms;            // [L + 1, T]: Euclidean norm of each row
  std::span<float> attention_share;  // [L, T]: norm of what the attention adds to the stream / norm of what it adds to
  std::span<float> ffn_share;        // [L, T]: the same of the FFN. In a parallel block both add to the block's input
};

/// Prefills `ids` behind what the session holds, chunk by chunk, and fills `trace`. Afterwards the session is as after
/// Prefill, and has no observer. Numerics: the rows are the run's own bits; norms are summed in f64.
/// Errors: as Session::Prefill; kInvalidArgument where a span has another size.
Status TraceStream(Session& session, const ModelConfig& config, std::span<const int32_t> ids, const StreamTrace& trace,
                   const PrefillProgress& progress = {});

struct LensToken {
  int32_t id = -1;
  float logit = 0.0f;
  float probability = 0.0f;  // of the softmax over the whole vocabulary
};

/// The logit lens: the likeliest tokens that the model's final norm and head read from one row [d] of the stream, best
/// first, the lower id first where logits are equal. top: 1 to vocab_size entries. Afterwards session.logits() are that
/// row's. Errors: kInvalidArgument (a size).
Status ReadLens(Session& session, std::span<const float> stream_row, std::span<LensToken> top);

}  // namespace linnet

#endif  // LINNET_CORE_TRACE_H_
