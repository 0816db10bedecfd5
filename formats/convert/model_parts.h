// Descriptions of parts of a model that run by themselves (core/base/part_runner.h).
#ifndef LINNET_FORMATS_CONVERT_MODEL_PARTS_H_
#define LINNET_FORMATS_CONVERT_MODEL_PARTS_H_

#include <cstdint>

#include "core/base/model_config.h"

namespace linnet::formats {

/// From ids to the residual stream; the embedding table has only the rows that are used.
ModelConfig EmbeddingPart(const ModelConfig& config, uint32_t table_rows);
/// One block, from stream to stream. A table of one row stands in for embedding and head.
ModelConfig BlockPart(const ModelConfig& config, uint32_t layer);
/// Final norm and a head of `rows` rows, as a tied model's table.
ModelConfig HeadPart(const ModelConfig& config, uint32_t rows);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_CONVERT_MODEL_PARTS_H_
