// What perplexity and quality share: the windows of a text, and what one position's logits say.
#ifndef LINNET_EXAMPLES_CLI_SCORING_H_
#define LINNET_EXAMPLES_CLI_SCORING_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "examples/cli/loaded_model.h"
#include "formats/linnet/model_file.h"

namespace linnet::cli {

constexpr uint32_t kDefaultWindow = 512;
constexpr uint32_t kScoredLogitRows = 16;  // positions per product with the head: enough to reuse its weights

/// Turns logits into logarithms of probabilities; returns the index of the largest.
size_t LogSoftmax(const float* logits, std::span<float> out);

/// sum p (log p - log q) in nats.
double KlDivergence(std::span<const float> log_p, std::span<const float> log_q);

/// Of one value per position.
struct Spread {
  double mean = 0.0, median = 0.0, p99 = 0.0, max = 0.0;
};
/// Sorts `values`, which are not empty.
Spread SpreadOf(std::vector<double>& values);

/// The windows' tokens, [windows, context]: the whole of `text` tokenized without recognizing special tokens, one bos
/// before it and in place of each window's first token where the model wants bos. windows: 0 for all.
/// Errors: kInvalidArgument where the text is too short or the model has no tokenizer.
Result<std::vector<int32_t>> MakeWindows(const LoadedModel& model, const std::string& model_path,
                                         const std::string& text_path, uint32_t context, uint32_t windows,
                                         Diagnostic* diagnostic);

uint64_t ParameterCount(const formats::ModelFile& file);
double BitsPerWeight(const formats::ModelFile& file);

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_SCORING_H_
