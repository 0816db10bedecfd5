#include "formats/convert/model_parts.h"

namespace linnet::formats {
namespace {

// The stream's width and nothing else: neither blocks nor norms, and a table of `rows` rows for both ends.
ModelConfig BarePart(const ModelConfig& config, uint32_t rows) {
  ModelConfig part;
  part.family = config.family;
  part.vocab_size = rows;
  part.model_dim = config.model_dim;
  part.context_length = config.context_length;
  part.embedding_scale = config.embedding_scale;
  part.tied_head = true;
  return part;
}

}  // namespace

ModelConfig EmbeddingPart(const ModelConfig& config, uint32_t table_rows) {
  ModelConfig part = BarePart(config, table_rows);
  part.positions = config.positions;
  part.position_offset = config.position_offset;
  part.position_rows = config.position_rows;
  part.embedding_norm = config.embedding_norm;
  return part;
}

ModelConfig BlockPart(const ModelConfig& config, uint32_t layer) {
  ModelConfig part = BarePart(config, 1);
  part.n_layers = 1;
  part.ropes = config.ropes;
  part.blocks = {config.layer(layer)};
  part.layer_block = {0};
  return part;
}

ModelConfig HeadPart(const ModelConfig& config, uint32_t rows) {
  ModelConfig part = BarePart(config, rows);
  part.final_norm = config.final_norm;
  part.logit_scale = config.logit_scale;
  part.logit_soft_cap = config.logit_soft_cap;
  return part;
}

}  // namespace linnet::formats
