#include <cstring>
#include <string>

#include "formats/linnet/metadata.h"
#include "model_generated.h"

namespace linnet::formats {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

template <typename Target, typename Source>
constexpr Target ToFb(Source value) {
  return static_cast<Target>(value);
}

// Absent where empty.
Offset<flatbuffers::String> Text(FlatBufferBuilder& builder, const std::string& text) {
  if (text.empty()) return 0;
  return builder.CreateString(text);
}
template <typename T>
Offset<flatbuffers::Vector<T>> Numbers(FlatBufferBuilder& builder, const std::vector<T>& values) {
  if (values.empty()) return 0;
  return builder.CreateVector(values);
}
Offset<flatbuffers::Vector<uint8_t>> Digest(FlatBufferBuilder& builder, const Sha256Digest& digest) {
  return builder.CreateVector(digest.data(), digest.size());
}

Offset<fb::NormSpec> BuildNorm(FlatBufferBuilder& builder, const NormSpec& norm) {
  return fb::CreateNormSpec(builder, ToFb<fb::NormKind>(norm.kind), norm.eps, norm.has_gain, norm.gain_plus_one,
                            norm.has_bias);
}

Offset<fb::RopeSpec> BuildRope(FlatBufferBuilder& builder, const RopeSpec& rope) {
  const auto short_factors = Numbers(builder, rope.short_factors);
  const auto long_factors = Numbers(builder, rope.long_factors);
  fb::RopeSpecBuilder table(builder);
  table.add_theta(rope.theta);
  table.add_rope_dim(rope.rope_dim);
  table.add_layout(ToFb<fb::RopeLayout>(rope.layout));
  table.add_scaling(ToFb<fb::RopeScaling>(rope.scaling));
  table.add_factor(rope.factor);
  table.add_original_context_length(rope.original_context_length);
  table.add_beta_fast(rope.beta_fast);
  table.add_beta_slow(rope.beta_slow);
  table.add_truncate(rope.truncate);
  table.add_low_freq_factor(rope.low_freq_factor);
  table.add_high_freq_factor(rope.high_freq_factor);
  table.add_cos_sin_scale(rope.cos_sin_scale);
  table.add_short_factors(short_factors);
  table.add_long_factors(long_factors);
  return table.Finish();
}

Offset<fb::AttentionSpec> BuildAttention(FlatBufferBuilder& builder, const AttentionSpec& attention) {
  const auto qk_norm_spec = BuildNorm(builder, attention.qk_norm_spec);
  const auto latent_norm = BuildNorm(builder, attention.latent_norm);
  fb::AttentionSpecBuilder table(builder);
  table.add_kind(ToFb<fb::AttentionKind>(attention.kind));
  table.add_n_heads(attention.n_heads);
  table.add_n_kv_heads(attention.n_kv_heads);
  table.add_head_dim(attention.head_dim);
  table.add_value_dim(attention.value_dim);
  table.add_qkv_bias(attention.qkv_bias);
  table.add_out_bias(attention.out_bias);
  table.add_qk_norm(ToFb<fb::QkNorm>(attention.qk_norm));
  table.add_qk_norm_spec(qk_norm_spec);
  table.add_score_scale(attention.score_scale);
  table.add_logit_soft_cap(attention.logit_soft_cap);
  table.add_window(attention.window);
  table.add_sinks(attention.sinks);
  table.add_alibi(attention.alibi);
  table.add_rope(attention.rope);
  table.add_q_lora_rank(attention.q_lora_rank);
  table.add_kv_lora_rank(attention.kv_lora_rank);
  table.add_latent_norm(latent_norm);
  return table.Finish();
}

Offset<fb::FfnSpec> BuildFfn(FlatBufferBuilder& builder, const FfnSpec& ffn) {
  fb::FfnSpecBuilder table(builder);
  table.add_activation(ToFb<fb::Activation>(ffn.activation));
  table.add_gated(ffn.gated);
  table.add_up_bias(ffn.up_bias);
  table.add_down_bias(ffn.down_bias);
  table.add_clamp(ffn.clamp);
  table.add_ffn_dim(ffn.ffn_dim);
  table.add_n_experts(ffn.n_experts);
  table.add_top_k(ffn.top_k);
  table.add_router_score(ToFb<fb::RouterScore>(ffn.router_score));
  table.add_router_bias(ffn.router_bias);
  table.add_selection_bias(ffn.selection_bias);
  table.add_normalize_top_k(ffn.normalize_top_k);
  table.add_routed_scale(ffn.routed_scale);
  table.add_n_groups(ffn.n_groups);
  table.add_top_groups(ffn.top_groups);
  table.add_group_score(ToFb<fb::GroupScore>(ffn.group_score));
  table.add_shared_ffn_dim(ffn.shared_ffn_dim);
  table.add_shared_gate(ffn.shared_gate);
  return table.Finish();
}

Offset<fb::BlockSpec> BuildBlock(FlatBufferBuilder& builder, const BlockSpec& block) {
  const auto norm = BuildNorm(builder, block.norm);
  const auto attention = BuildAttention(builder, block.attention);
  const auto ffn = BuildFfn(builder, block.ffn);
  fb::BlockSpecBuilder table(builder);
  table.add_norm(norm);
  table.add_placement(ToFb<fb::NormPlacement>(block.placement));
  table.add_parallel(block.parallel);
  table.add_parallel_shared_norm(block.parallel_shared_norm);
  table.add_residual_scale(block.residual_scale);
  table.add_branch_scale(block.branch_scale);
  table.add_attention(attention);
  table.add_ffn(ffn);
  return table.Finish();
}

Offset<fb::ModelConfig> BuildConfig(FlatBufferBuilder& builder, const ModelConfig& config) {
  std::vector<Offset<fb::RopeSpec>> ropes;
  for (const RopeSpec& rope : config.ropes) ropes.push_back(BuildRope(builder, rope));
  std::vector<Offset<fb::BlockSpec>> blocks;
  for (const BlockSpec& block : config.blocks) blocks.push_back(BuildBlock(builder, block));
  const auto family = Text(builder, config.family);
  const auto embedding_norm = BuildNorm(builder, config.embedding_norm);
  const auto final_norm = BuildNorm(builder, config.final_norm);
  const auto rope_vector = builder.CreateVector(ropes);
  const auto block_vector = builder.CreateVector(blocks);
  const auto layer_block = builder.CreateVector(config.layer_block);
  fb::ModelConfigBuilder table(builder);
  table.add_family(family);
  table.add_vocab_size(config.vocab_size);
  table.add_model_dim(config.model_dim);
  table.add_n_layers(config.n_layers);
  table.add_context_length(config.context_length);
  table.add_embedding_scale(config.embedding_scale);
  table.add_positions(ToFb<fb::EmbeddingPositions>(config.positions));
  table.add_position_offset(config.position_offset);
  table.add_position_rows(config.position_rows);
  table.add_embedding_norm(embedding_norm);
  table.add_final_norm(final_norm);
  table.add_logit_scale(config.logit_scale);
  table.add_logit_soft_cap(config.logit_soft_cap);
  table.add_tied_head(config.tied_head);
  table.add_head_bias(config.head_bias);
  table.add_ropes(rope_vector);
  table.add_blocks(block_vector);
  table.add_layer_block(layer_block);
  return table.Finish();
}

Offset<fb::Tensor> BuildTensor(FlatBufferBuilder& builder, const TensorRecord& tensor) {
  const auto dims = builder.CreateVector(tensor.spec.dims.data(), tensor.spec.rank);
  const auto digest = Digest(builder, tensor.sha256);
  fb::TensorBuilder table(builder);
  table.add_role(static_cast<uint8_t>(tensor.spec.role));
  table.add_layer(static_cast<int16_t>(tensor.spec.layer));
  table.add_dtype(ToFb<fb::DType>(tensor.spec.dtype));
  table.add_dims(dims);
  table.add_block_size(tensor.spec.block_size);
  table.add_rotation_block(tensor.spec.rotation_block);
  table.add_data_offset(tensor.place.data_offset);
  table.add_data_bytes(tensor.place.data_bytes);
  table.add_scales_offset(tensor.place.scales_offset);
  table.add_scales_bytes(tensor.place.scales_bytes);
  table.add_sha256(digest);
  return table.Finish();
}

Offset<fb::Generation> BuildGeneration(FlatBufferBuilder& builder, const GenerationDefaults& generation) {
  const auto end_ids = Numbers(builder, generation.end_ids);
  return fb::CreateGeneration(builder, generation.bos_id, generation.add_bos, end_ids, generation.temperature,
                              generation.top_k, generation.top_p, generation.repetition_penalty);
}

Offset<fb::Provenance> BuildProvenance(FlatBufferBuilder& builder, const Provenance& provenance) {
  std::vector<Offset<fb::SourceFile>> sources;
  for (const SourceRecord& source : provenance.sources) {
    const auto name = Text(builder, source.name);
    sources.push_back(fb::CreateSourceFile(builder, name, source.size_bytes, Digest(builder, source.sha256)));
  }
  std::vector<Offset<fb::SourceType>> types;
  for (const SourceTypeRecord& type : provenance.source_types) {
    types.push_back(fb::CreateSourceType(builder, Text(builder, type.name), type.tensors, type.elements));
  }
  const auto converter = Text(builder, provenance.converter);
  const auto source_vector = builder.CreateVector(sources);
  return fb::CreateProvenance(builder, converter, source_vector, builder.CreateVector(types));
}

Offset<fb::Golden> BuildGolden(FlatBufferBuilder& builder, const Golden& golden) {
  const auto ids = builder.CreateVector(golden.ids);
  const auto top_ids = builder.CreateVector(golden.top_ids);
  return fb::CreateGolden(builder, ids, golden.n_top, top_ids, builder.CreateVector(golden.top_logits));
}

template <typename FbTable, typename Item, typename Build>
auto BuildAll(FlatBufferBuilder& builder, std::span<const Item> items, Build build) {
  std::vector<Offset<FbTable>> offsets;
  offsets.reserve(items.size());
  for (const Item& item : items) offsets.push_back(build(builder, item));
  return builder.CreateVector(offsets);
}

Offset<fb::Model> BuildModel(FlatBufferBuilder& builder, const ModelContent& content,
                             std::span<const TensorRecord> tensors, std::span<const WeightSegment> segments,
                             const Sha256Digest& content_hash) {
  // FlatBuffers are written back to front: the large parts come first, so that they lie behind the tables.
  Offset<flatbuffers::Vector<uint8_t>> tokenizer = 0;
  if (!content.tokenizer.empty()) {
    builder.ForceVectorAlignment(content.tokenizer.size(), sizeof(uint8_t), 16);
    tokenizer =
        builder.CreateVector(reinterpret_cast<const uint8_t*>(content.tokenizer.data()), content.tokenizer.size());
  }
  const auto chat_template = Text(builder, content.chat_template);
  const auto license = Text(builder, content.license);
  const auto name = Text(builder, content.name);
  const auto goldens = BuildAll<fb::Golden>(builder, std::span(content.goldens), BuildGolden);
  const auto tensor_vector = BuildAll<fb::Tensor>(builder, tensors, BuildTensor);
  const auto segment_vector =
      BuildAll<fb::Segment>(builder, segments, [](FlatBufferBuilder& fbb, const WeightSegment& segment) {
        return fb::CreateSegment(fbb, ToFb<fb::SegmentKind>(segment.kind), segment.offset, segment.size_bytes);
      });
  const auto provenance = BuildProvenance(builder, content.provenance);
  const auto generation = BuildGeneration(builder, content.generation);
  const auto digest = Digest(builder, content_hash);
  const auto config = BuildConfig(builder, content.config);
  fb::ModelBuilder table(builder);
  table.add_config(config);
  table.add_segments(segment_vector);
  table.add_tensors(tensor_vector);
  table.add_content_hash(digest);
  table.add_tokenizer(tokenizer);
  table.add_chat_template(chat_template);
  table.add_generation(generation);
  table.add_license(license);
  table.add_name(name);
  table.add_provenance(provenance);
  table.add_goldens(goldens);
  return table.Finish();
}

// FlatBuffers asserts at its limit of 2 GiB, so the parts without a bound of their own are added up beforehand.
Status CheckLimits(const ModelContent& content, Diagnostic* diagnostic) {
  uint64_t total =
      content.tokenizer.size() + content.chat_template.size() + content.license.size() + content.name.size();
  for (const Golden& golden : content.goldens) {
    const uint64_t n_tokens = golden.ids.size(), n_answers = n_tokens * golden.n_top;
    if (n_tokens > kMaxGoldenTokens || golden.n_top > kMaxGoldenTop || golden.top_ids.size() != n_answers ||
        golden.top_logits.size() != n_answers) {
      return Fail(
          diagnostic, StatusCode::kInvalidArgument, "a golden is malformed",
          "golden of %zu tokens: expected n_top logits a token, at most %u tokens and %u logits, found n_top %u, "
          "%zu ids, %zu logits",
          golden.ids.size(), kMaxGoldenTokens, kMaxGoldenTop, golden.n_top, golden.top_ids.size(),
          golden.top_logits.size());
    }
    total += n_tokens * 4 + n_answers * 8;
  }
  for (const SourceRecord& source : content.provenance.sources) total += source.name.size();
  // Half of the limit is left for the tables, which the description bounds.
  if (total <= kMaxMetadataBytes / 2 && content.goldens.size() <= kMaxGoldens &&
      content.provenance.sources.size() <= kMaxSourceFiles &&
      content.provenance.source_types.size() <= kMaxSourceTypes) {
    return Status::Ok();
  }
  return Fail(diagnostic, StatusCode::kInvalidArgument, "the model's metadata is too large",
              "metadata: expected at most %llu bytes, %u goldens and %u source files, found %llu, %zu and %zu",
              static_cast<unsigned long long>(kMaxMetadataBytes / 2), kMaxGoldens, kMaxSourceFiles,
              static_cast<unsigned long long>(total), content.goldens.size(), content.provenance.sources.size());
}

}  // namespace

Result<std::vector<std::byte>> BuildMetadata(const ModelContent& content, std::span<const TensorRecord> tensors,
                                             std::span<const WeightSegment> segments, const Sha256Digest& content_hash,
                                             Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(CheckLimits(content, diagnostic));
  FlatBufferBuilder builder(64 * 1024);
  fb::FinishModelBuffer(builder, BuildModel(builder, content, tensors, segments, content_hash));
  std::vector<std::byte> bytes(builder.GetSize());
  std::memcpy(bytes.data(), builder.GetBufferPointer(), bytes.size());
  return bytes;
}

}  // namespace linnet::formats
