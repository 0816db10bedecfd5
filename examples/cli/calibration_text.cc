#include "examples/cli/calibration_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/file_mapping.h"
#include "core/tokenizer.h"
#include "examples/cli/own_text.h"
#include "formats/linnet/tokenizer_section.h"

namespace linnet::cli {
namespace {

// formats/quantize/README.md has the measurement.
constexpr uint32_t kTextWindows = 20;

// Windows of the text, evenly spread where there are more than wanted; each begins with bos where the model wants it.
std::vector<int32_t> CutWindows(const std::vector<int32_t>& ids, const GenerationDefaults& defaults,
                                CalibrationTextOptions* options) {
  options->window = static_cast<uint32_t>(std::min<size_t>(options->window, ids.size()));
  const size_t available = ids.size() / options->window, wanted = std::min<size_t>(available, options->windows);
  std::vector<int32_t> cut;
  for (size_t i = 0; i < wanted; ++i) {
    const auto begin = ids.begin() + static_cast<ptrdiff_t>(i * available / wanted * options->window);
    const size_t first = cut.size();
    cut.insert(cut.end(), begin, begin + options->window);
    if (defaults.add_bos && defaults.bos_id >= 0) cut[first] = defaults.bos_id;
  }
  return cut;
}

Result<std::vector<int32_t>> TokenizeFile(const formats::CheckpointInfo& info, const std::string& path,
                                          Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const std::vector<std::byte> section,
                          formats::WriteTokenizerSection(info.tokenizer, diagnostic));
  LINNET_ASSIGN_OR_RETURN(TokenizerView view, formats::ReadTokenizerSection(section, diagnostic));
  if (view.kind == TokenizerKind::kNone) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the model has no tokenizer",
                "--calibrate %s: expected a model with a tokenizer, found none", path.c_str());
  }
  LINNET_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Create(std::move(view), diagnostic));
  LINNET_ASSIGN_OR_RETURN(const FileMapping file, FileMapping::Open(path, diagnostic));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::vector<int32_t> ids;
  LINNET_RETURN_IF_ERROR(tokenizer.Encode(text, {false, false}, &ids, diagnostic));
  for (const int32_t id : ids) {
    if (static_cast<uint32_t>(id) < info.config.vocab_size) continue;
    return Fail(diagnostic, StatusCode::kInvalidModel, "the tokenizer does not fit the model",
                "--calibrate %s: expected ids below %u, found %d", path.c_str(), info.config.vocab_size, id);
  }
  if (ids.size() < kMinCalibrationTokens) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the calibration text is too short",
                "--calibrate %s: expected at least %zu tokens, found %zu", path.c_str(), kMinCalibrationTokens,
                ids.size());
  }
  return ids;
}

}  // namespace

Result<std::vector<int32_t>> MakeCalibrationText(const formats::Checkpoint& source, CalibrationTextOptions* options,
                                                 Diagnostic* diagnostic) {
  const ModelConfig& config = source.info().config;
  if (options->windows == 0) options->windows = options->source == kSelfText ? OwnTextWindows(source) : kTextWindows;
  if (config.context_length > 0) options->window = std::min(options->window, config.context_length);
  if (options->source == kSelfText) {
    // One more token is written than is kept.
    if (options->window == config.context_length) options->window = std::max(options->window - 1, 1u);
    return WriteOwnText(source, *options, diagnostic);
  }
  LINNET_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, TokenizeFile(source.info(), options->source, diagnostic));
  return CutWindows(ids, source.info().generation, options);
}

}  // namespace linnet::cli
