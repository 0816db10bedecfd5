#include "examples/cli/scoring.h"

#include <algorithm>
#include <cmath>

#include "core/base/file_mapping.h"

namespace linnet::cli {

size_t LogSoftmax(const float* logits, std::span<float> out) {
  const size_t top = static_cast<size_t>(std::max_element(logits, logits + out.size()) - logits);
  double sum = 0.0;
  for (size_t i = 0; i < out.size(); ++i) sum += std::exp(logits[i] - logits[top]);
  const float shift = logits[top] + static_cast<float>(std::log(sum));
  for (size_t i = 0; i < out.size(); ++i) out[i] = logits[i] - shift;
  return top;
}

double KlDivergence(std::span<const float> log_p, std::span<const float> log_q) {
  double sum = 0.0;
  for (size_t i = 0; i < log_p.size(); ++i) sum += std::exp(log_p[i]) * (log_p[i] - log_q[i]);
  return std::max(sum, 0.0);  // of equal logits the roundings are left
}

Spread SpreadOf(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  Spread spread;
  for (const double value : values) spread.mean += value / count;
  spread.median = values[values.size() / 2];
  spread.p99 = values[std::min(values.size() - 1, static_cast<size_t>(0.99 * count))];
  spread.max = values.back();
  return spread;
}

Result<std::vector<int32_t>> MakeWindows(const LoadedModel& model, const std::string& model_path,
                                         const std::string& text_path, uint32_t context, uint32_t wanted,
                                         Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const Tokenizer tokenizer, OpenTokenizer(model.file(), model_path, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const FileMapping file, FileMapping::Open(text_path, diagnostic));
  const GenerationDefaults& defaults = model.file().generation();
  const bool add_bos = defaults.add_bos && defaults.bos_id >= 0;
  std::vector<int32_t> ids;
  if (add_bos) ids.push_back(defaults.bos_id);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  LINNET_RETURN_IF_ERROR(tokenizer.Encode(text, {false, false}, &ids, diagnostic));
  const size_t available = ids.size() / context;
  const size_t windows = wanted == 0 ? available : wanted;
  if (available == 0 || windows > available) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the text is too short",
                "%s: expected at least %zu tokens (%zu windows of %u), found %zu", text_path.c_str(),
                std::max<size_t>(windows, 1) * context, std::max<size_t>(windows, 1), context, ids.size());
  }
  ids.resize(windows * context);
  if (add_bos) {
    for (size_t i = 0; i < windows; ++i) ids[i * context] = defaults.bos_id;
  }
  const auto vocab_size = static_cast<int64_t>(model.config().vocab_size);
  for (const int32_t id : ids) {
    if (id >= vocab_size) {
      return Fail(diagnostic, StatusCode::kInvalidModel, "the tokenizer does not fit the model",
                  "%s: expected ids below %lld, found %d", model_path.c_str(), static_cast<long long>(vocab_size), id);
    }
  }
  return ids;
}

uint64_t ParameterCount(const formats::ModelFile& file) {
  uint64_t elements = 0;
  for (const TensorView& tensor : file.view().tensors()) elements += tensor.elements();
  return elements;
}

double BitsPerWeight(const formats::ModelFile& file) {
  const uint64_t elements = std::max<uint64_t>(ParameterCount(file), 1);
  return static_cast<double>(file.weight_bytes()) * 8 / static_cast<double>(elements);
}

}  // namespace linnet::cli
