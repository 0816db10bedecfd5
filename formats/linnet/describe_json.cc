#include <nlohmann/json.hpp>
#include <string>

#include "formats/linnet/describe.h"
#include "formats/linnet/enum_names.h"
#include "formats/linnet/sha256.h"

namespace linnet::formats {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// A member that is left out where it is off.
template <typename T>
void SetIf(bool on, Json* json, const char* key, const T& value) {
  if (on) (*json)[key] = value;
}

Json NormJson(const NormSpec& norm) {
  Json json = {{"kind", EnumName(norm.kind)}, {"eps", norm.eps}, {"has_gain", norm.has_gain}};
  SetIf(norm.gain_plus_one, &json, "gain_plus_one", true);
  SetIf(norm.has_bias, &json, "has_bias", true);
  return json;
}

Json RopeJson(const RopeSpec& rope) {
  Json json = {{"theta", rope.theta},
               {"rope_dim", rope.rope_dim},
               {"layout", EnumName(rope.layout)},
               {"scaling", EnumName(rope.scaling)}};
  if (rope.scaling == RopeScaling::kNone) return json;
  const bool yarn = rope.scaling == RopeScaling::kYarn, llama3 = rope.scaling == RopeScaling::kLlama3;
  json["factor"] = rope.factor;
  json["original_context_length"] = rope.original_context_length;
  json["cos_sin_scale"] = rope.cos_sin_scale;
  SetIf(yarn, &json, "beta_fast", rope.beta_fast);
  SetIf(yarn, &json, "beta_slow", rope.beta_slow);
  SetIf(yarn, &json, "truncate", rope.truncate);
  SetIf(llama3, &json, "low_freq_factor", rope.low_freq_factor);
  SetIf(llama3, &json, "high_freq_factor", rope.high_freq_factor);
  SetIf(!rope.short_factors.empty(), &json, "short_factors", rope.short_factors);
  SetIf(!rope.long_factors.empty(), &json, "long_factors", rope.long_factors);
  return json;
}

Json AttentionJson(const AttentionSpec& attention) {
  Json json = {{"kind", EnumName(attention.kind)},     {"n_heads", attention.n_heads},
               {"n_kv_heads", attention.n_kv_heads},   {"head_dim", attention.head_dim},
               {"value_dim", attention.value_dim},     {"qkv_bias", attention.qkv_bias},
               {"out_bias", attention.out_bias},       {"qk_norm", EnumName(attention.qk_norm)},
               {"score_scale", attention.score_scale}, {"rope", attention.rope}};
  SetIf(attention.qk_norm != QkNorm::kNone, &json, "qk_norm_spec", NormJson(attention.qk_norm_spec));
  SetIf(attention.logit_soft_cap != 0.0f, &json, "logit_soft_cap", attention.logit_soft_cap);
  SetIf(attention.window != 0, &json, "window", attention.window);
  SetIf(attention.sinks, &json, "sinks", true);
  SetIf(attention.alibi, &json, "alibi", true);
  if (attention.kind != AttentionKind::kLatent) return json;
  json["q_lora_rank"] = attention.q_lora_rank;
  json["kv_lora_rank"] = attention.kv_lora_rank;
  json["latent_norm"] = NormJson(attention.latent_norm);
  return json;
}

Json FfnJson(const FfnSpec& ffn) {
  Json json = {{"activation", EnumName(ffn.activation)},
               {"gated", ffn.gated},
               {"ffn_dim", ffn.ffn_dim},
               {"up_bias", ffn.up_bias},
               {"down_bias", ffn.down_bias}};
  SetIf(ffn.clamp != 0.0f, &json, "clamp", ffn.clamp);
  if (ffn.n_experts == 0) return json;
  json["n_experts"] = ffn.n_experts;
  json["top_k"] = ffn.top_k;
  json["router_score"] = EnumName(ffn.router_score);
  json["router_bias"] = ffn.router_bias;
  json["selection_bias"] = ffn.selection_bias;
  json["normalize_top_k"] = ffn.normalize_top_k;
  json["routed_scale"] = ffn.routed_scale;
  json["n_groups"] = ffn.n_groups;
  json["top_groups"] = ffn.top_groups;
  json["group_score"] = EnumName(ffn.group_score);
  json["shared_ffn_dim"] = ffn.shared_ffn_dim;
  json["shared_gate"] = ffn.shared_gate;
  return json;
}

Json BlockJson(const ModelConfig& config, const BlockSpec& block) {
  Json json = {{"text", DescribeBlock(config, block)},
               {"norm", NormJson(block.norm)},
               {"placement", EnumName(block.placement)},
               {"parallel", block.parallel}};
  SetIf(block.parallel_shared_norm, &json, "parallel_shared_norm", true);
  json["residual_scale"] = block.residual_scale;
  json["branch_scale"] = block.branch_scale;
  json["attention"] = AttentionJson(block.attention);
  json["ffn"] = FfnJson(block.ffn);
  return json;
}

Json ConfigJson(const ModelConfig& config) {
  Json json = {{"family", config.family},
               {"vocab_size", config.vocab_size},
               {"model_dim", config.model_dim},
               {"n_layers", config.n_layers},
               {"context_length", config.context_length},
               {"embedding_scale", config.embedding_scale},
               {"positions", EnumName(config.positions)}};
  const bool learned = config.positions == EmbeddingPositions::kLearned;
  SetIf(learned, &json, "position_offset", config.position_offset);
  SetIf(learned, &json, "position_rows", config.position_rows);
  SetIf(config.embedding_norm.kind != NormKind::kNone, &json, "embedding_norm", NormJson(config.embedding_norm));
  json["final_norm"] = NormJson(config.final_norm);
  json["logit_scale"] = config.logit_scale;
  SetIf(config.logit_soft_cap != 0.0f, &json, "logit_soft_cap", config.logit_soft_cap);
  json["tied_head"] = config.tied_head;
  json["head_bias"] = config.head_bias;
  Json ropes = Json::array(), blocks = Json::array();
  for (const RopeSpec& rope : config.ropes) ropes.push_back(RopeJson(rope));
  for (const BlockSpec& block : config.blocks) blocks.push_back(BlockJson(config, block));
  json["ropes"] = std::move(ropes);
  json["blocks"] = std::move(blocks);
  json["layer_block"] = config.layer_block;
  return json;
}

Json ProvenanceJson(const Provenance& provenance) {
  Json sources = Json::array(), types = Json::array();
  for (const SourceRecord& source : provenance.sources) {
    sources.push_back(
        Json{{"name", source.name}, {"size_bytes", source.size_bytes}, {"sha256", HexText(source.sha256)}});
  }
  for (const SourceTypeRecord& type : provenance.source_types) {
    types.push_back(Json{{"name", type.name}, {"tensors", type.tensors}, {"elements", type.elements}});
  }
  return Json{{"converter", provenance.converter}, {"sources", std::move(sources)}, {"source_types", std::move(types)}};
}

Json GenerationJson(const GenerationDefaults& generation) {
  Json json = {{"add_bos", generation.add_bos}, {"end_ids", generation.end_ids}};
  SetIf(generation.bos_id >= 0, &json, "bos_id", generation.bos_id);
  SetIf(generation.temperature >= 0.0f, &json, "temperature", generation.temperature);
  SetIf(generation.top_k >= 0, &json, "top_k", generation.top_k);
  SetIf(generation.top_p >= 0.0f, &json, "top_p", generation.top_p);
  SetIf(generation.repetition_penalty >= 0.0f, &json, "repetition_penalty", generation.repetition_penalty);
  return json;
}

Json ModelJson(const ModelFile& file) {
  const ModelView view = file.view();
  uint64_t parameters = 0;
  for (const TensorView& tensor : view.tensors()) parameters += tensor.elements();
  Json segments = Json::array();
  for (const WeightSegment& segment : file.segments()) {
    segments.push_back(
        Json{{"kind", EnumName(segment.kind)}, {"offset", segment.offset}, {"size_bytes", segment.size_bytes}});
  }
  return Json{{"record", "model"},
              {"name", file.name()},
              {"format_version", file.format_version()},
              {"file_bytes", file.file_bytes()},
              {"weight_bytes", file.weight_bytes()},
              {"metadata_bytes", file.metadata_bytes()},
              {"tokenizer_bytes", file.tokenizer_bytes().size()},
              {"chat_template_bytes", file.chat_template().size()},
              {"license_bytes", file.license().size()},
              {"parameters", parameters},
              {"bits_per_weight", 8.0 * static_cast<double>(file.weight_bytes()) / static_cast<double>(parameters)},
              {"content_hash", HexText(view.content_hash)},
              {"goldens", file.goldens().size()},
              {"config", ConfigJson(view.config())},
              {"segments", std::move(segments)},
              {"generation", GenerationJson(file.generation())},
              {"provenance", ProvenanceJson(file.provenance())}};
}

Json TensorJson(const TensorView& tensor, const std::byte* file_begin) {
  Json json = {{"record", "tensor"},
               {"role", TensorRoleName(tensor.role)},
               {"layer", tensor.layer},
               {"type", DTypeName(tensor.dtype)},
               {"shape", std::vector<uint64_t>(tensor.dims.begin(), tensor.dims.begin() + tensor.rank)}};
  SetIf(tensor.block_size != 0, &json, "block_size", tensor.block_size);
  SetIf(tensor.rotation_block != 0, &json, "rotation_block", tensor.rotation_block);
  json["data_offset"] = static_cast<uint64_t>(tensor.data.data() - file_begin);
  json["data_bytes"] = tensor.data.size();
  if (tensor.scales.empty()) return json;
  json["scales_offset"] = static_cast<uint64_t>(tensor.scales.data() - file_begin);
  json["scales_bytes"] = tensor.scales.size();
  return json;
}

}  // namespace

std::string ModelConfigJson(const ModelConfig& config) { return Dump(ConfigJson(config)); }

std::string DescribeModelJson(const ModelFile& file) {
  std::string text = Dump(ModelJson(file)) + "\n";
  for (const TensorView& tensor : file.view().tensors()) {
    text += Dump(TensorJson(tensor, file.bytes().data())) + "\n";
  }
  return text;
}

}  // namespace linnet::formats
