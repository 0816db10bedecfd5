// Random weights for a description: a source to convert from where no checkpoint is at hand.
#ifndef LINNET_FORMATS_SYNTHETIC_CHECKPOINT_H_
#define LINNET_FORMATS_SYNTHETIC_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/model_config.h"
#include "formats/checkpoint.h"

namespace linnet::formats {

struct SyntheticOptions {
  uint64_t seed = 0;
  std::string name;               // the model's name
  std::vector<SourceFile> files;  // what the description was read from; outlives the checkpoint
};

/// A checkpoint of `config`, which is validated. It holds no weights: each is computed from the seed and its place, so
/// that any rows may be read in any order. Matrices and embedding tables are about normal with a standard deviation of
/// 1 / sqrt(columns), which keeps the activations of any depth finite; gains multiply by one, biases, sinks and
/// selection biases are zero. There is no tokenizer. Numerics: the same bits on every CPU.
std::unique_ptr<Checkpoint> MakeSyntheticCheckpoint(ModelConfig config, SyntheticOptions options);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_SYNTHETIC_CHECKPOINT_H_
