// linnet count: what a config.json costs.
#include "core/count.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "examples/cli/args.h"
#include "examples/cli/command.h"
#include "examples/cli/config_file.h"
#include "examples/cli/output.h"

namespace linnet::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string config;
  CountOptions count;
  bool json = false;
};

using Number = unsigned long long;

void PrintLine(const char* name, uint64_t value, const std::string& note = "") {
  PrintFormat("  %-26s %22llu  %9s%s%s\n", name, static_cast<Number>(value), HumanCount(value).c_str(),
              note.empty() ? "" : "  ", note.c_str());
}

void PrintParameters(const ModelConfig& config, const ParameterCount& count) {
  Print("parameters\n");
  PrintLine("total", count.total);
  PrintLine("token embedding", count.token_embedding, config.tied_head ? "also the output matrix" : "");
  if (!config.tied_head) PrintLine("output matrix", count.output_matrix);
  if (count.position_table > 0) PrintLine("position table", count.position_table);
  PrintLine("without embeddings", count.non_embedding, "total less the lines above");
  if (count.routed_experts == 0) return;
  PrintLine("routed experts", count.routed_experts, "all of them");
  PrintLine("active per token", count.active);
  PrintLine("  without input embedding", count.active_without_input_embedding);
  PrintLine("  without embeddings", count.active_non_embedding);
  if (count.selection_bias > 0) PrintLine("router selection biases", count.selection_bias, "not in the total");
}

void PrintBlocks(const ModelConfig& config, const ModelCount& count) {
  Print("one block: parameters, share; FLOPs of the context's last token, share\n");
  for (size_t i = 0; i < count.blocks.size(); ++i) {
    const BlockCount& block = count.blocks[i];
    const double parameters = static_cast<double>(block.attention + block.ffn + block.norms);
    const uint64_t attention_flops = block.attention_product_flops + block.attention_context_flops;
    const double flops = static_cast<double>(attention_flops + block.ffn_flops);
    PrintFormat("  kind %zu, %u of %u layers\n", i, block.n_layers, config.n_layers);
    const auto line = [&](const char* name, uint64_t values, uint64_t cost) {
      PrintFormat("    %-10s %16llu %6.2f %%  %16llu %6.2f %%\n", name, static_cast<Number>(values),
                  100.0 * static_cast<double>(values) / parameters, static_cast<Number>(cost),
                  100.0 * static_cast<double>(cost) / flops);
    };
    line("attention", block.attention, attention_flops);
    line("ffn", block.ffn, block.ffn_flops);
    line("norms", block.norms, 0);
  }
}

void PrintFlops(const FlopCount& flops, uint32_t context) {
  PrintFormat("FLOPs per token, context %u\n", context);
  PrintLine("2 N + 2 L n d", flops.rule, "N: active parameters without embeddings");
  PrintLine("mean token, exact", static_cast<uint64_t>(flops.mean), "over the tokens 1 to n");
  PrintLine("last token, exact", flops.last, "sees all n");
  PrintLine("  matrix products", flops.products, "the output matrix included");
  PrintLine("  attention", flops.attention_last, "scores and weighted values");
}

std::string KvName(const KvCount& kv) {
  if (kv.kind == AttentionKind::kLatent) return "latent of " + std::to_string(kv.latent_width);
  return std::to_string(kv.n_kv_heads) + (kv.n_kv_heads == 1 ? " kv head" : " kv heads");
}

void PrintKv(const Options& options, const ModelCount& count) {
  PrintFormat("KV cache, %s, context %u: bytes per token, for the context\n", ops::KvTypeName(options.count.kv_type),
              count.context_tokens);
  const auto line = [](const char* name, const KvCount& kv) {
    if (!kv.exists) return;
    const char* shape = kv.kind == AttentionKind::kLatent ? "  four heads wide, half a head rotated" : "";
    PrintFormat("  %-6s %-16s %14llu  %18llu  %10s%s\n", name, KvName(kv).c_str(), static_cast<Number>(kv.token_bytes),
                static_cast<Number>(kv.context_bytes), HumanBytes(kv.context_bytes).c_str(),
                kv.is_own ? "  this model" : shape);
  };
  line("MHA", count.mha);
  line("GQA", count.gqa);
  line("MQA", count.mqa);
  line("MLA", count.mla);
  if (!count.mha.is_own && !count.gqa.is_own && !count.mqa.is_own && !count.mla.is_own) line("own", count.kv);
  PrintFormat("  a session takes %llu (%s): whole blocks of %u positions, in windows room for a chunk\n",
              static_cast<Number>(count.kv.planned_bytes), HumanBytes(count.kv.planned_bytes).c_str(), ops::kKvBlock);
}

Json KvJson(const KvCount& kv) {
  if (!kv.exists) return nullptr;
  Json json = {{"bytes_per_token", kv.token_bytes},
               {"context_bytes", kv.context_bytes},
               {"planned_bytes", kv.planned_bytes},
               {"this_model", kv.is_own}};
  if (kv.kind == AttentionKind::kLatent) {
    json["latent_width"] = kv.latent_width;
  } else {
    json["n_kv_heads"] = kv.n_kv_heads;
  }
  return json;
}

Json BlocksJson(const ModelCount& count) {
  Json blocks = Json::array();
  for (const BlockCount& block : count.blocks) {
    blocks.push_back({{"n_layers", block.n_layers},
                      {"attention_params", block.attention},
                      {"ffn_params", block.ffn},
                      {"norm_params", block.norms},
                      {"attention_product_flops", block.attention_product_flops},
                      {"attention_context_flops", block.attention_context_flops},
                      {"ffn_flops", block.ffn_flops}});
  }
  return blocks;
}

void PrintJsonReport(const Options& options, const ModelConfig& config, const ModelCount& count) {
  const ParameterCount& parameters = count.parameters;
  const FlopCount& flops = count.flops;
  PrintJson({{"config", options.config},
             {"family", config.family},
             {"total_params", parameters.total},
             {"token_embedding_params", parameters.token_embedding},
             {"output_head_params", parameters.output_matrix},
             {"position_embedding_params", parameters.position_table},
             {"non_embedding_params", parameters.non_embedding},
             {"routed_expert_params", parameters.routed_experts},
             {"active_params_per_token", parameters.active},
             {"active_non_embedding_params_per_token", parameters.active_non_embedding},
             {"active_params_per_token_without_input_embedding", parameters.active_without_input_embedding},
             {"router_correction_bias_values", parameters.selection_bias},
             {"blocks", BlocksJson(count)},
             {"context", count.context_tokens},
             {"flops_per_token",
              {{"rule", flops.rule},
               {"exact_last", flops.last},
               {"exact_mean", flops.mean},
               {"products", flops.products},
               {"attention_last", flops.attention_last},
               {"attention_mean", flops.attention_mean}}},
             {"kv_type", ops::KvTypeName(options.count.kv_type)},
             {"kv_bytes_per_token", count.kv.token_bytes},
             {"kv_context_bytes", count.kv.context_bytes},
             {"kv_planned_bytes", count.kv.planned_bytes},
             {"kv",
              {{"mha", KvJson(count.mha)},
               {"gqa", KvJson(count.gqa)},
               {"mqa", KvJson(count.mqa)},
               {"mla", KvJson(count.mla)}}}});
}

Status Run(const Options& options, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const ConfigFile file, ConfigFile::Open(options.config, diagnostic));
  const ModelConfig& config = file.config;
  const std::string& path = file.path;
  const auto count = CountModel(config, options.count);
  if (!count.ok()) {
    if (diagnostic != nullptr) diagnostic->Set("%s", path.c_str());
    return count.status();
  }
  if (options.json) {
    PrintJsonReport(options, config, *count);
    return Status::Ok();
  }
  const AttentionSpec& attention = config.layer(0).attention;
  PrintFormat("%s: %s, %u layers, model_dim %u, %u heads of %u, vocab %u\n", path.c_str(),
              OneLine(config.family).c_str(), config.n_layers, config.model_dim, attention.n_heads, attention.head_dim,
              config.vocab_size);
  PrintParameters(config, count->parameters);
  PrintBlocks(config, *count);
  PrintFlops(count->flops, count->context_tokens);
  PrintKv(options, *count);
  return Status::Ok();
}

}  // namespace

void AddCount(CommandSet& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      commands.Add("count", "Count parameters, FLOPs per token and KV-cache bytes from a config.json alone",
                   "linnet count config.json --context 32768 --json");
  command->add_option("config", options->config, "A config.json, or the directory that holds it")
      ->required()
      ->type_name("CONFIG");
  command->add_option("-c,--context", options->count.context_tokens, "Context length (default: the model's)")
      ->check(CLI::Range(1u, kMaxContext));
  AddKvOption(command, "f16", [options](ops::KvType type) { options->count.kv_type = type; });
  AddJsonFlag(command, &options->json);
  commands.OnRun(command, [options](Diagnostic* diagnostic) { return Run(*options, diagnostic); });
}

}  // namespace linnet::cli
