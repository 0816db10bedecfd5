// What `quality` measured, as text, JSON and HTML.
#ifndef LINNET_EXAMPLES_CLI_QUALITY_REPORT_H_
#define LINNET_EXAMPLES_CLI_QUALITY_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "examples/cli/scoring.h"
#include "formats/linnet/model_file.h"

namespace linnet::cli {

/// Tensors of a model that are stored in one way.
struct StoredType {
  std::string type;  // "q4/32 rotated"
  uint32_t tensors = 0;
  uint64_t weights = 0, bytes = 0;
};

struct ModelFacts {
  std::string path;
  const char* kv = "";  // element type of the cache
  uint64_t file_bytes = 0, weight_bytes = 0, parameters = 0;
  double bits_per_weight = 0.0;
  double perplexity = 0.0;
  std::vector<StoredType> types;  // the largest first
};
ModelFacts FactsOf(const std::string& path, const formats::ModelFile& file);

struct QualityReport {
  ModelFacts reference, model;
  std::string text;
  uint32_t context = 0, windows = 0;
  uint64_t tokens = 0;            // scored
  Spread kl;                      // of the model's distributions from the reference's, nats
  std::vector<double> kl_values;  // one a position, ascending
  double top1_agreement = 0.0;
  /// Entry 0: the input of layer 0; i + 1: the output of layer i. Mean over the first window's positions of the
  /// residual stream's difference relative to the reference's own norm. Empty where the models' shapes differ.
  std::vector<double> stream_error;
};

std::string QualityText(const QualityReport& report);
std::string QualityJson(const QualityReport& report);
/// A page on its own.
std::string QualityHtml(const QualityReport& report);

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_QUALITY_REPORT_H_
