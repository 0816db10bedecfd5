// linnet trace: the residual stream of a prompt, layer by layer.
#include "core/trace.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/loaded_model.h"
#include "examples/cli/npy.h"
#include "examples/cli/output.h"
#include "formats/linnet/tokenizer_section.h"

namespace linnet::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxTraceBytes = uint64_t{16} << 30;  // the trace is held in memory until it is written

struct Options {
  RunOptions run;
  std::vector<int32_t> ids;
  std::string folder;
  uint32_t top = 5;
  bool json = false;
};

/// Everything that was traced, in memory.
struct Recording {
  size_t n_tokens = 0, n_layers = 0, width = 0;
  std::vector<float> stream, norms, attention_share, ffn_share;
  std::vector<std::vector<LensToken>> lens;  // [n_layers + 1], of the last position

  StreamTrace spans() { return {stream, norms, attention_share, ffn_share}; }
  std::span<const float> Entry(size_t entry) const {
    return std::span(stream).subspan(entry * n_tokens * width, n_tokens * width);
  }
  std::span<const float> LastRow(size_t entry) const { return Entry(entry).last(width); }
  float LastNorm(size_t entry) const { return norms[(entry + 1) * n_tokens - 1]; }
  float LastAttentionShare(size_t layer) const { return attention_share[(layer + 1) * n_tokens - 1]; }
  float LastFfnShare(size_t layer) const { return ffn_share[(layer + 1) * n_tokens - 1]; }
};

/// Texts of tokens, where the model has a tokenizer.
class TokenNames {
 public:
  static Result<TokenNames> Open(const formats::ModelFile& file, Diagnostic* diagnostic) {
    TokenNames names;
    LINNET_ASSIGN_OR_RETURN(TokenizerView view, formats::ReadTokenizerSection(file.tokenizer_bytes(), diagnostic));
    if (view.kind == TokenizerKind::kNone) return names;
    LINNET_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Create(std::move(view), diagnostic));
    names.tokenizer_.emplace(std::move(tokenizer));
    return names;
  }
  bool exist() const { return tokenizer_.has_value(); }
  /// The id where nothing has a text: padding rows of the head, or no tokenizer.
  std::string Of(int32_t id) const {
    const std::string_view text = exist() ? tokenizer_->TokenText(id) : std::string_view();
    return text.empty() ? std::to_string(id) : std::string(text);
  }

 private:
  std::optional<Tokenizer> tokenizer_;
};

bool ReportProgress(void* context, uint32_t done, uint32_t total) {
  static_cast<Progress*>(context)->Update(done, total,
                                          std::to_string(done) + " of " + std::to_string(total) + " tokens");
  return true;
}

Status Record(const Options& options, LoadedModel& model, Recording* out, Diagnostic* diagnostic) {
  const ModelConfig& config = model.config();
  out->n_tokens = options.ids.size();
  out->n_layers = config.n_layers;
  out->width = config.model_dim;
  const size_t layers = out->n_layers * out->n_tokens, entries = layers + out->n_tokens;
  const uint64_t bytes = uint64_t{entries} * out->width * sizeof(float);
  if (bytes > kMaxTraceBytes) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "the trace is too large",
                "%zu tokens: expected at most %llu bytes of residual stream, found %llu", out->n_tokens,
                static_cast<unsigned long long>(kMaxTraceBytes), static_cast<unsigned long long>(bytes));
  }
  out->stream.resize(entries * out->width);
  out->norms.resize(entries);
  out->attention_share.resize(layers);
  out->ffn_share.resize(layers);
  Progress progress("trace");
  const Status status = TraceStream(model.session(), config, options.ids, out->spans(), {ReportProgress, &progress});
  if (!status.ok()) return SessionFailure(status, model.session(), diagnostic);
  for (size_t entry = 0; entry <= out->n_layers; ++entry) {
    out->lens.emplace_back(std::min(options.top, config.vocab_size));
    LINNET_RETURN_IF_ERROR(ReadLens(model.session(), out->LastRow(entry), out->lens.back()));
    progress.Update(entry, out->n_layers, "logit lens");
  }
  return Status::Ok();
}

Status WriteArray(const std::string& path, std::span<const uint64_t> shape, std::span<const float> values,
                  Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::Create(path, shape, diagnostic));
  LINNET_RETURN_IF_ERROR(writer.Append(values, diagnostic));
  return writer.Finish(diagnostic);
}

std::string EntryFileName(size_t entry) {
  char name[32];
  std::snprintf(name, sizeof(name), "layer_%04zu.npy", entry);
  return name;
}

Status WriteFiles(const std::string& folder, const Recording& recording, Diagnostic* diagnostic) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Fail(diagnostic, StatusCode::kIoError, "cannot make the folder", "%s: %s", folder.c_str(),
                error.message().c_str());
  }
  const uint64_t tokens = recording.n_tokens, layers = recording.n_layers, width = recording.width;
  const auto write = [&](const std::string& name, std::vector<uint64_t> shape, std::span<const float> values) {
    return WriteArray((std::filesystem::path(folder) / name).string(), shape, values, diagnostic);
  };
  LINNET_RETURN_IF_ERROR(write("hidden_states.npy", {layers + 1, tokens, width}, recording.stream));
  for (size_t entry = 0; entry <= recording.n_layers; ++entry) {
    LINNET_RETURN_IF_ERROR(write(EntryFileName(entry), {tokens, width}, recording.Entry(entry)));
  }
  LINNET_RETURN_IF_ERROR(write("norms.npy", {layers + 1, tokens}, recording.norms));
  LINNET_RETURN_IF_ERROR(write("attention_share.npy", {layers, tokens}, recording.attention_share));
  return write("ffn_share.npy", {layers, tokens}, recording.ffn_share);
}

/// A token's text in a table: quoted, so that spaces are seen.
std::string Cell(const LensToken& token, const TokenNames& names) {
  char probability[16];
  std::snprintf(probability, sizeof(probability), " %.2f", static_cast<double>(token.probability));
  const std::string text = OneLine(names.Of(token.id));
  return (names.exist() ? "\"" + text + "\"" : text) + probability;
}

void PrintTable(const Options& options, const Recording& recording, const TokenNames& names) {
  PrintFormat("%s: %zu tokens; norms, shares and tokens at the last one\n", options.run.model.c_str(),
              recording.n_tokens);
  PrintFormat("  %5s %12s %10s %10s  %s\n", "layer", "norm", "attention", "ffn", "likeliest tokens, probability");
  for (size_t entry = 0; entry <= recording.n_layers; ++entry) {
    if (entry == 0) {
      PrintFormat("  %5s %12.4g %10s %10s  ", "input", static_cast<double>(recording.LastNorm(0)), "", "");
    } else {
      PrintFormat("  %5zu %12.4g %10.4f %10.4f  ", entry - 1, static_cast<double>(recording.LastNorm(entry)),
                  static_cast<double>(recording.LastAttentionShare(entry - 1)),
                  static_cast<double>(recording.LastFfnShare(entry - 1)));
    }
    std::string line;
    for (const LensToken& token : recording.lens[entry]) line += (line.empty() ? "" : "  ") + Cell(token, names);
    Print(line + "\n");
  }
  PrintFormat("written to %s: hidden_states.npy, %s to %s, norms.npy, attention_share.npy, ffn_share.npy\n",
              options.folder.c_str(), EntryFileName(0).c_str(), EntryFileName(recording.n_layers).c_str());
}

Json LensJson(const std::vector<LensToken>& lens, const TokenNames& names) {
  Json tokens = Json::array();
  for (const LensToken& token : lens) {
    Json json = {{"id", token.id}, {"logit", token.logit}, {"probability", token.probability}};
    if (names.exist()) json["token"] = names.Of(token.id);
    tokens.push_back(json);
  }
  return tokens;
}

void PrintJsonReport(const Options& options, const Recording& recording, const TokenNames& names) {
  Json entries = Json::array();
  for (size_t entry = 0; entry <= recording.n_layers; ++entry) {
    Json json = {{"layer", static_cast<int64_t>(entry) - 1},
                 {"file", EntryFileName(entry)},
                 {"norm", recording.LastNorm(entry)}};
    if (entry > 0) {
      json["attention_share"] = recording.LastAttentionShare(entry - 1);
      json["ffn_share"] = recording.LastFfnShare(entry - 1);
    }
    json["top"] = LensJson(recording.lens[entry], names);
    entries.push_back(json);
  }
  PrintJson({{"model", options.run.model},
             {"output", options.folder},
             {"tokens", recording.n_tokens},
             {"position", recording.n_tokens - 1},
             {"entries", entries}});
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(LoadedModel model, LoadedModel::Load(options.run, 1, diagnostic));
  LINNET_RETURN_IF_ERROR(model.CheckPrompt(options.ids, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const TokenNames names, TokenNames::Open(model.file(), diagnostic));
  Recording recording;
  LINNET_RETURN_IF_ERROR(Record(options, model, &recording, diagnostic));
  LINNET_RETURN_IF_ERROR(WriteFiles(options.folder, recording, diagnostic));
  if (options.json) {
    PrintJsonReport(options, recording, names);
  } else {
    PrintTable(options, recording, names);
  }
  return Status::Ok();
}

}  // namespace

void AddTrace(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = commands.Add(
      "trace", "Write the residual stream after every layer as .npy files; show its norm and what the head reads there",
      "linnet trace model.linnet --ids 1,2,3 -o trace --top 5");
  AddRunOptions(command, &options->run);
  AddIdsOption(command, "--ids", &options->ids, "Token ids of the prompt, used as they are")->required();
  command->add_option("-o,--output", options->folder, "The folder for the .npy files; made where it is missing")
      ->required()
      ->type_name("DIR");
  command->add_option("--top", options->top, "Tokens shown for each layer (default: 5)")->check(CLI::Range(1u, 1000u));
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
