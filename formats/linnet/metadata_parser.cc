#include <algorithm>
#include <cmath>
#include <string>

#include "formats/linnet/metadata.h"
#include "model_generated.h"

namespace linnet::formats {
namespace {

// The deepest path is Model, ModelConfig, BlockSpec, AttentionSpec, NormSpec.
constexpr size_t kMaxDepth = 16;
// Blocks, layers' tensors and the rest: a model at every limit has fewer.
constexpr size_t kMaxTables = 200'000;

// The schema's enumerators are those of model_config.h and dtype.h.
template <typename FbEnum, typename Enum>
constexpr bool SameEnd(FbEnum fb_last, Enum last) {
  return static_cast<int>(fb_last) == static_cast<int>(last);
}
static_assert(SameEnd(fb::NormKind::MAX, NormKind::kLayerNorm));
static_assert(SameEnd(fb::NormPlacement::MAX, NormPlacement::kBothSides));
static_assert(SameEnd(fb::EmbeddingPositions::MAX, EmbeddingPositions::kSinusoidal));
static_assert(SameEnd(fb::RopeLayout::MAX, RopeLayout::kInterleaved));
static_assert(SameEnd(fb::RopeScaling::MAX, RopeScaling::kLongRope));
static_assert(SameEnd(fb::AttentionKind::MAX, AttentionKind::kLatent));
static_assert(SameEnd(fb::QkNorm::MAX, QkNorm::kFullWidth));
static_assert(SameEnd(fb::Activation::MAX, Activation::kClampedSwiglu));
static_assert(SameEnd(fb::RouterScore::MAX, RouterScore::kSoftmaxOfTopK));
static_assert(SameEnd(fb::GroupScore::MAX, GroupScore::kSumOfTopTwo));
static_assert(SameEnd(fb::DType::MAX, DType::kQ4) && SameEnd(fb::DType::MAX, kDTypeCount - 1));
static_assert(SameEnd(fb::SegmentKind::MAX, SegmentKind::kVectors));

/// Parses one verified FlatBuffer. Several offsets may name the same bytes, so that a small file could ask for much
/// memory: everything that is copied counts against the file's own size.
class Parser {
 public:
  Parser(size_t budget_bytes, Diagnostic* diagnostic) : budget_bytes_(budget_bytes), diagnostic_(diagnostic) {}

  Status ParseModel(const fb::Model& model, Metadata* out);

 private:
  Status Invalid(const char* message) {
    return Fail(diagnostic_, StatusCode::kInvalidModel, message, "metadata: %s", message);
  }

  template <typename FbEnum, typename Enum>
  Status ParseEnum(FbEnum value, const char* field, Enum* out) {
    if (value > FbEnum::MAX) {
      return Fail(diagnostic_, StatusCode::kUnsupported, "an enumerator of the model file is not known",
                  "metadata, %s: expected at most %u, found %u; a newer version of Linnet may have written the file",
                  field, static_cast<unsigned>(FbEnum::MAX), static_cast<unsigned>(value));
    }
    *out = static_cast<Enum>(value);
    return Status::Ok();
  }

  Status Spend(uint64_t bytes) {
    if (bytes > budget_bytes_) return Invalid("its parts take more bytes than the file has");
    budget_bytes_ -= bytes;
    return Status::Ok();
  }

  template <typename T>
  Status CopyNumbers(const flatbuffers::Vector<T>* from, std::vector<T>* out) {
    if (from == nullptr) return Status::Ok();
    LINNET_RETURN_IF_ERROR(Spend(uint64_t{from->size()} * sizeof(T)));
    out->assign(from->begin(), from->end());
    return Status::Ok();
  }
  Status CopyText(const flatbuffers::String* from, std::string* out) {
    if (from == nullptr) return Status::Ok();
    LINNET_RETURN_IF_ERROR(Spend(from->size()));
    out->assign(from->c_str(), from->size());
    return Status::Ok();
  }
  Status CopyDigest(const flatbuffers::Vector<uint8_t>* from, Sha256Digest* out) {
    if (from->size() != out->size()) return Invalid("a SHA-256 digest has not 32 bytes");
    std::copy(from->begin(), from->end(), out->begin());
    return Status::Ok();
  }

  // One step a table of `from`; null counts as empty.
  template <typename FbTable, typename Item, typename Parse>
  Status ParseAll(const flatbuffers::Vector<flatbuffers::Offset<FbTable>>* from, uint32_t limit, const char* too_many,
                  std::vector<Item>* out, Parse parse) {
    if (from == nullptr) return Status::Ok();
    if (from->size() > limit) return Invalid(too_many);
    out->reserve(from->size());
    for (const FbTable* table : *from) {
      LINNET_RETURN_IF_ERROR((this->*parse)(*table, &out->emplace_back()));
    }
    return Status::Ok();
  }

  Status ParseNorm(const fb::NormSpec* from, NormSpec* out);
  Status ParseRope(const fb::RopeSpec& from, RopeSpec* out);
  Status ParseAttention(const fb::AttentionSpec& from, AttentionSpec* out);
  Status ParseFfn(const fb::FfnSpec& from, FfnSpec* out);
  Status ParseBlock(const fb::BlockSpec& from, BlockSpec* out);
  Status ParseConfig(const fb::ModelConfig& from, ModelConfig* out);
  Status ParseTensor(const fb::Tensor& from, TensorRecord* out);
  Status ParseSegment(const fb::Segment& from, WeightSegment* out);
  Status ParseGeneration(const fb::Generation* from, GenerationDefaults* out);
  Status ParseSource(const fb::SourceFile& from, SourceRecord* out);
  Status ParseSourceType(const fb::SourceType& from, SourceTypeRecord* out);
  Status ParseProvenance(const fb::Provenance* from, Provenance* out);
  Status ParseGolden(const fb::Golden& from, Golden* out);

  uint64_t budget_bytes_;
  Diagnostic* diagnostic_;
  const ModelConfig* config_ = nullptr;  // once it is validated
};

Status Parser::ParseNorm(const fb::NormSpec* from, NormSpec* out) {
  if (from == nullptr) return Status::Ok();
  LINNET_RETURN_IF_ERROR(ParseEnum(from->kind(), "norm.kind", &out->kind));
  out->eps = from->eps();
  out->has_gain = from->has_gain();
  out->gain_plus_one = from->gain_plus_one();
  out->has_bias = from->has_bias();
  return Status::Ok();
}

Status Parser::ParseRope(const fb::RopeSpec& from, RopeSpec* out) {
  LINNET_RETURN_IF_ERROR(ParseEnum(from.layout(), "rope.layout", &out->layout));
  LINNET_RETURN_IF_ERROR(ParseEnum(from.scaling(), "rope.scaling", &out->scaling));
  out->theta = from.theta();
  out->rope_dim = from.rope_dim();
  out->factor = from.factor();
  out->original_context_length = from.original_context_length();
  out->beta_fast = from.beta_fast();
  out->beta_slow = from.beta_slow();
  out->truncate = from.truncate();
  out->low_freq_factor = from.low_freq_factor();
  out->high_freq_factor = from.high_freq_factor();
  out->cos_sin_scale = from.cos_sin_scale();
  LINNET_RETURN_IF_ERROR(CopyNumbers(from.short_factors(), &out->short_factors));
  return CopyNumbers(from.long_factors(), &out->long_factors);
}

Status Parser::ParseAttention(const fb::AttentionSpec& from, AttentionSpec* out) {
  LINNET_RETURN_IF_ERROR(ParseEnum(from.kind(), "attention.kind", &out->kind));
  LINNET_RETURN_IF_ERROR(ParseEnum(from.qk_norm(), "attention.qk_norm", &out->qk_norm));
  LINNET_RETURN_IF_ERROR(ParseNorm(from.qk_norm_spec(), &out->qk_norm_spec));
  LINNET_RETURN_IF_ERROR(ParseNorm(from.latent_norm(), &out->latent_norm));
  out->n_heads = from.n_heads();
  out->n_kv_heads = from.n_kv_heads();
  out->head_dim = from.head_dim();
  out->value_dim = from.value_dim();
  out->qkv_bias = from.qkv_bias();
  out->out_bias = from.out_bias();
  out->score_scale = from.score_scale();
  out->logit_soft_cap = from.logit_soft_cap();
  out->window = from.window();
  out->sinks = from.sinks();
  out->alibi = from.alibi();
  out->rope = from.rope();
  out->q_lora_rank = from.q_lora_rank();
  out->kv_lora_rank = from.kv_lora_rank();
  return Status::Ok();
}

Status Parser::ParseFfn(const fb::FfnSpec& from, FfnSpec* out) {
  LINNET_RETURN_IF_ERROR(ParseEnum(from.activation(), "ffn.activation", &out->activation));
  LINNET_RETURN_IF_ERROR(ParseEnum(from.router_score(), "ffn.router_score", &out->router_score));
  LINNET_RETURN_IF_ERROR(ParseEnum(from.group_score(), "ffn.group_score", &out->group_score));
  out->gated = from.gated();
  out->up_bias = from.up_bias();
  out->down_bias = from.down_bias();
  out->clamp = from.clamp();
  out->ffn_dim = from.ffn_dim();
  out->n_experts = from.n_experts();
  out->top_k = from.top_k();
  out->router_bias = from.router_bias();
  out->selection_bias = from.selection_bias();
  out->normalize_top_k = from.normalize_top_k();
  out->routed_scale = from.routed_scale();
  out->n_groups = from.n_groups();
  out->top_groups = from.top_groups();
  out->shared_ffn_dim = from.shared_ffn_dim();
  out->shared_gate = from.shared_gate();
  return Status::Ok();
}

Status Parser::ParseBlock(const fb::BlockSpec& from, BlockSpec* out) {
  LINNET_RETURN_IF_ERROR(ParseNorm(from.norm(), &out->norm));
  LINNET_RETURN_IF_ERROR(ParseEnum(from.placement(), "block.placement", &out->placement));
  out->parallel = from.parallel();
  out->parallel_shared_norm = from.parallel_shared_norm();
  out->residual_scale = from.residual_scale();
  out->branch_scale = from.branch_scale();
  LINNET_RETURN_IF_ERROR(ParseAttention(*from.attention(), &out->attention));
  return ParseFfn(*from.ffn(), &out->ffn);
}

Status Parser::ParseConfig(const fb::ModelConfig& from, ModelConfig* out) {
  LINNET_RETURN_IF_ERROR(CopyText(from.family(), &out->family));
  LINNET_RETURN_IF_ERROR(ParseEnum(from.positions(), "positions", &out->positions));
  LINNET_RETURN_IF_ERROR(ParseNorm(from.embedding_norm(), &out->embedding_norm));
  LINNET_RETURN_IF_ERROR(ParseNorm(from.final_norm(), &out->final_norm));
  out->vocab_size = from.vocab_size();
  out->model_dim = from.model_dim();
  out->n_layers = from.n_layers();
  out->context_length = from.context_length();
  out->embedding_scale = from.embedding_scale();
  out->position_offset = from.position_offset();
  out->position_rows = from.position_rows();
  out->logit_scale = from.logit_scale();
  out->logit_soft_cap = from.logit_soft_cap();
  out->tied_head = from.tied_head();
  out->head_bias = from.head_bias();
  LINNET_RETURN_IF_ERROR(
      ParseAll(from.ropes(), kMaxRopes, "more ropes than the limit", &out->ropes, &Parser::ParseRope));
  LINNET_RETURN_IF_ERROR(
      ParseAll(from.blocks(), kMaxBlockKinds, "more kinds of block than the limit", &out->blocks, &Parser::ParseBlock));
  LINNET_RETURN_IF_ERROR(CopyNumbers(from.layer_block(), &out->layer_block));
  const Status valid = ValidateModelConfig(*out);
  if (valid.ok()) return valid;
  return Fail(diagnostic_, valid.code(), valid.message(), "metadata, description: %s (found %lld)", valid.message(),
              static_cast<long long>(valid.value()));
}

Status Parser::ParseTensor(const fb::Tensor& from, TensorRecord* out) {
  if (!IsKnownTensorRole(from.role())) {
    return Fail(diagnostic_, StatusCode::kUnsupported, "a tensor's role is not known",
                "metadata, tensors: role %u is not known; a newer version of Linnet may have written the file",
                from.role());
  }
  if (from.dims()->size() < 1 || from.dims()->size() > 3) return Invalid("a tensor's rank is not within 1 and 3");
  TensorSpec& spec = out->spec;
  spec.role = static_cast<TensorRole>(from.role());
  spec.layer = from.layer();
  LINNET_RETURN_IF_ERROR(ParseEnum(from.dtype(), "tensor.dtype", &spec.dtype));
  spec.rank = from.dims()->size();
  std::copy(from.dims()->begin(), from.dims()->end(), spec.dims.begin());
  spec.block_size = from.block_size();
  spec.rotation_block = from.rotation_block();
  out->place = {from.data_offset(), from.data_bytes(), from.scales_offset(), from.scales_bytes()};
  return CopyDigest(from.sha256(), &out->sha256);
}

Status Parser::ParseSegment(const fb::Segment& from, WeightSegment* out) {
  out->offset = from.offset();
  out->size_bytes = from.size_bytes();
  return ParseEnum(from.kind(), "segment.kind", &out->kind);
}

Status Parser::ParseGeneration(const fb::Generation* from, GenerationDefaults* out) {
  if (from == nullptr) return Status::Ok();
  const int64_t vocab_size = config_->vocab_size;
  out->bos_id = from->bos_id();
  out->add_bos = from->add_bos();
  if (out->bos_id < -1 || out->bos_id >= vocab_size) return Invalid("generation.bos_id is outside the vocabulary");
  if (from->end_ids() != nullptr && from->end_ids()->size() > kMaxEndTokens) return Invalid("too many end tokens");
  LINNET_RETURN_IF_ERROR(CopyNumbers(from->end_ids(), &out->end_ids));
  for (const int32_t id : out->end_ids) {
    if (id < 0 || id >= vocab_size) return Invalid("an end token is outside the vocabulary");
  }
  out->temperature = from->temperature();
  out->top_k = from->top_k();
  out->top_p = from->top_p();
  out->repetition_penalty = from->repetition_penalty();
  const bool finite =
      std::isfinite(out->temperature) && std::isfinite(out->top_p) && std::isfinite(out->repetition_penalty);
  return finite ? Status::Ok() : Invalid("a generation default is not a finite number");
}

Status Parser::ParseSource(const fb::SourceFile& from, SourceRecord* out) {
  LINNET_RETURN_IF_ERROR(CopyText(from.name(), &out->name));
  out->size_bytes = from.size_bytes();
  return CopyDigest(from.sha256(), &out->sha256);
}

Status Parser::ParseSourceType(const fb::SourceType& from, SourceTypeRecord* out) {
  out->tensors = from.tensors();
  out->elements = from.elements();
  return CopyText(from.name(), &out->name);
}

Status Parser::ParseProvenance(const fb::Provenance* from, Provenance* out) {
  if (from == nullptr) return Status::Ok();
  LINNET_RETURN_IF_ERROR(CopyText(from->converter(), &out->converter));
  LINNET_RETURN_IF_ERROR(
      ParseAll(from->sources(), kMaxSourceFiles, "too many source files", &out->sources, &Parser::ParseSource));
  return ParseAll(from->source_types(), kMaxSourceTypes, "too many source types", &out->source_types,
                  &Parser::ParseSourceType);
}

Status Parser::ParseGolden(const fb::Golden& from, Golden* out) {
  const uint64_t n_tokens = from.ids()->size(), n_answers = n_tokens * from.n_top();
  if (n_tokens > kMaxGoldenTokens || from.n_top() > kMaxGoldenTop) return Invalid("a golden is above its limit");
  if (from.top_ids()->size() != n_answers || from.top_logits()->size() != n_answers) {
    return Invalid("a golden's ids, n_top and logits do not fit together");
  }
  out->n_top = from.n_top();
  LINNET_RETURN_IF_ERROR(CopyNumbers(from.ids(), &out->ids));
  LINNET_RETURN_IF_ERROR(CopyNumbers(from.top_ids(), &out->top_ids));
  LINNET_RETURN_IF_ERROR(CopyNumbers(from.top_logits(), &out->top_logits));
  const auto outside = [this](int32_t id) { return id < 0 || id >= static_cast<int64_t>(config_->vocab_size); };
  if (std::any_of(out->ids.begin(), out->ids.end(), outside) ||
      std::any_of(out->top_ids.begin(), out->top_ids.end(), outside)) {
    return Invalid("a golden's token is outside the vocabulary");
  }
  return Status::Ok();
}

std::string_view View(const flatbuffers::String* text) {
  return text == nullptr ? std::string_view() : std::string_view(text->c_str(), text->size());
}

Status Parser::ParseModel(const fb::Model& model, Metadata* out) {
  LINNET_RETURN_IF_ERROR(ParseConfig(*model.config(), &out->config));
  config_ = &out->config;
  LINNET_RETURN_IF_ERROR(
      ParseAll(model.segments(), kMaxSegments, "too many segments", &out->segments, &Parser::ParseSegment));
  const size_t n_required = RequiredTensors(out->config).size();
  if (model.tensors()->size() != n_required) {
    return Fail(diagnostic_, StatusCode::kInvalidModel, "the tensors are not those of the description",
                "metadata, tensors: expected %zu for this description, found %u", n_required, model.tensors()->size());
  }
  LINNET_RETURN_IF_ERROR(ParseAll(model.tensors(), model.tensors()->size(), "", &out->tensors, &Parser::ParseTensor));
  LINNET_RETURN_IF_ERROR(CopyDigest(model.content_hash(), &out->content_hash));
  LINNET_RETURN_IF_ERROR(ParseGeneration(model.generation(), &out->generation));
  LINNET_RETURN_IF_ERROR(ParseProvenance(model.provenance(), &out->provenance));
  LINNET_RETURN_IF_ERROR(
      ParseAll(model.goldens(), kMaxGoldens, "too many goldens", &out->goldens, &Parser::ParseGolden));
  if (model.tokenizer() != nullptr) {
    out->tokenizer = std::as_bytes(std::span(model.tokenizer()->data(), model.tokenizer()->size()));
    if (reinterpret_cast<uintptr_t>(out->tokenizer.data()) % 16 != 0) return Invalid("the tokenizer is not aligned");
  }
  out->chat_template = View(model.chat_template());
  out->license = View(model.license());
  out->name = View(model.name());
  return Status::Ok();
}

}  // namespace

Result<Metadata> ParseMetadata(std::span<const std::byte> bytes, Diagnostic* diagnostic) {
  const uint8_t* const data = reinterpret_cast<const uint8_t*>(bytes.data());
  flatbuffers::Verifier::Options options;
  options.max_depth = kMaxDepth;
  options.max_tables = kMaxTables;
  // The verifier requires a size below its limit as its caller's duty, and reads the identifier only after the root.
  const bool plausible = bytes.size() >= 16 && bytes.size() <= kMaxMetadataBytes;
  flatbuffers::Verifier verifier(data, plausible ? bytes.size() : 0, options);
  if (!plausible || !fb::VerifyModelBuffer(verifier)) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "the metadata is damaged",
                "metadata: expected a FlatBuffer \"%s\" of %zu bytes, found one that its verifier refuses",
                fb::ModelIdentifier(), bytes.size());
  }
  Metadata metadata;
  Parser parser(bytes.size(), diagnostic);
  LINNET_RETURN_IF_ERROR(parser.ParseModel(*fb::GetModel(data), &metadata));
  return metadata;
}

}  // namespace linnet::formats
