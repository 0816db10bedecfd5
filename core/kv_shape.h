// What one layer caches, from its description: shared by the planner and by `count`.
#ifndef LINNET_CORE_KV_SHAPE_H_
#define LINNET_CORE_KV_SHAPE_H_

#include "core/base/model_config.h"
#include "ops/kv_cache.h"

namespace linnet {

/// The shape without its capacity. `attention` is one of the (validated) config's blocks'.
inline ops::KvShape KvShapeOf(const ModelConfig& config, const AttentionSpec& attention, ops::KvType type) {
  ops::KvShape shape = {.type = type};
  shape.latent = attention.kind == AttentionKind::kLatent;
  if (shape.latent) {
    const uint32_t rope_dim = attention.rope < 0 ? 0 : config.ropes[static_cast<size_t>(attention.rope)].rope_dim;
    shape.n_kv_heads = 1;
    shape.head_dim = attention.kv_lora_rank + rope_dim;
    shape.value_dim = attention.kv_lora_rank;
  } else {
    shape.n_kv_heads = attention.n_kv_heads;
    shape.head_dim = attention.head_dim;
    shape.value_dim = attention.value_dim;
  }
  return shape;
}

}  // namespace linnet

#endif  // LINNET_CORE_KV_SHAPE_H_
