// linnet inspect: what a model file holds.
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/describe.h"
#include "examples/cli/output.h"
#include "formats/linnet/model_file.h"
#include "formats/linnet/tokenizer_section.h"

namespace linnet::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  bool tensors = false;
  bool check = false;
  bool json = false;
};

std::string Shape(const TensorView& tensor) {
  std::string text;
  for (uint32_t i = 0; i < tensor.rank; ++i) {
    if (i != 0) text += " x ";
    text += std::to_string(tensor.dims[i]);
  }
  return text;
}

std::string TypeText(const TensorView& tensor) {
  std::string text = DTypeName(tensor.dtype);
  if (tensor.block_size != 0) text += "/" + std::to_string(tensor.block_size);
  if (tensor.rotation_block != 0) text += " rotated/" + std::to_string(tensor.rotation_block);
  return text;
}

uint64_t TotalElements(const ModelView& view) {
  uint64_t elements = 0;
  for (const TensorView& tensor : view.tensors()) elements += tensor.elements();
  return elements;
}

double BitsPerWeight(const formats::ModelFile& file, uint64_t elements) {
  return elements == 0 ? 0.0 : static_cast<double>(file.weight_bytes()) * 8 / static_cast<double>(elements);
}

// One line for each role and way of storing, in the file's order of first appearance.
void PrintRoles(const ModelView& view) {
  struct Row {
    std::string role, type, shape;
    size_t tensors = 0;
    uint64_t elements = 0, bytes = 0;
  };
  std::vector<Row> rows;
  std::map<std::string, size_t> index;
  for (const TensorView& tensor : view.tensors()) {
    const std::string key = std::string(TensorRoleName(tensor.role)) + "|" + TypeText(tensor) + "|" + Shape(tensor);
    const auto [at, is_new] = index.emplace(key, rows.size());
    if (is_new) rows.push_back({TensorRoleName(tensor.role), TypeText(tensor), Shape(tensor)});
    Row& row = rows[at->second];
    ++row.tensors;
    row.elements += tensor.elements();
    row.bytes += tensor.data.size() + tensor.scales.size();
  }
  Print("  tensors\n");
  for (const Row& row : rows) {
    PrintFormat("    %4zu  %-24s %-20s %-22s %9s  %10s\n", row.tensors, row.role.c_str(), row.shape.c_str(),
                row.type.c_str(), HumanCount(row.elements).c_str(), HumanBytes(row.bytes).c_str());
  }
}

void PrintTensors(const ModelView& view) {
  Print("  every tensor\n");
  for (const TensorView& tensor : view.tensors()) {
    PrintFormat("    layer %4d  %-24s %-20s %-22s %12zu bytes\n", tensor.layer, TensorRoleName(tensor.role),
                Shape(tensor).c_str(), TypeText(tensor).c_str(), tensor.data.size() + tensor.scales.size());
  }
}

const char* TokenizerName(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::kNone:
      return "none";
    case TokenizerKind::kBpe:
      return "bpe";
    case TokenizerKind::kSentencePieceBpe:
      return "sentencepiece_bpe";
  }
  return "?";
}

void PrintText(const Options& options, const formats::ModelFile& file, const TokenizerView& tokenizer) {
  const ModelView view = file.view();
  const uint64_t elements = TotalElements(view);
  PrintFormat("%s: %s%s%s\n", options.model.c_str(), OneLine(file.name()).c_str(), file.name().empty() ? "" : ", ",
              OneLine(file.config().family).c_str());
  PrintFormat("  parameters         %s (%llu)\n", HumanCount(elements).c_str(),
              static_cast<unsigned long long>(elements));
  PrintFormat("  file               %s, weights %s, %.2f bits per weight, format %u\n",
              HumanBytes(file.file_bytes()).c_str(), HumanBytes(file.weight_bytes()).c_str(),
              BitsPerWeight(file, elements), file.format_version());
  Print(ConfigToText(file.config()));
  PrintRoles(view);
  if (options.tensors) PrintTensors(view);
  PrintFormat("  tokenizer          %s, %d tokens\n", TokenizerName(tokenizer.kind), tokenizer.token_count());
  PrintFormat("  chat template      %zu bytes\n", file.chat_template().size());
  PrintFormat("  licence            %.100s\n", file.license().empty() ? "not given" : OneLine(file.license()).c_str());
  PrintFormat("  made by            %s\n", OneLine(file.provenance().converter).c_str());
  for (const formats::SourceRecord& source : file.provenance().sources) {
    PrintFormat("    from             %s, %s, sha256 %s\n", OneLine(source.name).c_str(),
                HumanBytes(source.size_bytes).c_str(), Hex(source.sha256.data(), source.sha256.size()).c_str());
  }
  for (const formats::SourceTypeRecord& type : file.provenance().source_types) {
    PrintFormat("    stored there as  %s: %u tensors, %s weights\n", OneLine(type.name).c_str(), type.tensors,
                HumanCount(type.elements).c_str());
  }
  PrintFormat("  content hash       %s\n", Hex(view.content_hash.data(), view.content_hash.size()).c_str());
}

Json TensorsJson(const ModelView& view) {
  Json tensors = Json::array();
  for (const TensorView& tensor : view.tensors()) {
    Json dims = Json::array();
    for (uint32_t i = 0; i < tensor.rank; ++i) dims.push_back(tensor.dims[i]);
    tensors.push_back({{"role", TensorRoleName(tensor.role)},
                       {"layer", tensor.layer},
                       {"dims", dims},
                       {"type", DTypeName(tensor.dtype)},
                       {"block_size", tensor.block_size},
                       {"rotation_block", tensor.rotation_block},
                       {"bytes", tensor.data.size() + tensor.scales.size()}});
  }
  return tensors;
}

Json ProvenanceJson(const formats::Provenance& provenance) {
  Json sources = Json::array();
  for (const formats::SourceRecord& source : provenance.sources) {
    sources.push_back({{"name", source.name},
                       {"bytes", source.size_bytes},
                       {"sha256", Hex(source.sha256.data(), source.sha256.size())}});
  }
  Json types = Json::array();
  for (const formats::SourceTypeRecord& type : provenance.source_types) {
    types.push_back({{"name", type.name}, {"tensors", type.tensors}, {"elements", type.elements}});
  }
  return {{"converter", provenance.converter}, {"sources", sources}, {"source_types", types}};
}

void PrintJsonReport(const Options& options, const formats::ModelFile& file, const TokenizerView& tokenizer) {
  const ModelView view = file.view();
  const uint64_t elements = TotalElements(view);
  const GenerationDefaults& generation = file.generation();
  PrintJson({{"model", options.model},
             {"name", file.name()},
             {"format_version", file.format_version()},
             {"file_bytes", file.file_bytes()},
             {"metadata_bytes", file.metadata_bytes()},
             {"weight_bytes", file.weight_bytes()},
             {"parameters", elements},
             {"bits_per_weight", BitsPerWeight(file, elements)},
             {"config", ConfigToJson(file.config())},
             {"tensors", TensorsJson(view)},
             {"tokenizer", {{"kind", TokenizerName(tokenizer.kind)}, {"tokens", tokenizer.token_count()}}},
             {"chat_template", file.chat_template()},
             {"generation",
              {{"bos_id", generation.bos_id}, {"add_bos", generation.add_bos}, {"end_ids", generation.end_ids}}},
             {"license", file.license()},
             {"provenance", ProvenanceJson(file.provenance())},
             {"content_hash", Hex(view.content_hash.data(), view.content_hash.size())}});
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(formats::ModelFile file, formats::ModelFile::Open(options.model, diagnostic));
  LINNET_ASSIGN_OR_RETURN(const TokenizerView tokenizer,
                          formats::ReadTokenizerSection(file.tokenizer_bytes(), diagnostic));
  if (options.check) LINNET_RETURN_IF_ERROR(file.CheckContent(diagnostic));
  if (options.json) {
    PrintJsonReport(options, file, tokenizer);
  } else {
    PrintText(options, file, tokenizer);
  }
  return Status::Ok();
}

}  // namespace

void AddInspect(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      commands.Add("inspect", "Show what a model file holds: description, tensors, types, bytes, origin",
                   "linnet inspect model.linnet --json");
  AddModelArgument(command, &options->model);
  command->add_flag("--tensors", options->tensors, "List every tensor");
  command->add_flag("--check", options->check, "Also read all weights and compare their hashes");
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
