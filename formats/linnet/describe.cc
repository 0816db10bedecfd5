#include "formats/linnet/describe.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <vector>

#include "formats/linnet/enum_names.h"
#include "formats/linnet/sha256.h"
#include "formats/linnet/tokenizer_section.h"

namespace linnet::formats {
namespace {

constexpr size_t kMaxPieceBytes = 512;  // names from files are cut to what fits a line
constexpr size_t kMaxListedSources = 16;

__attribute__((format(printf, 2, 3))) void Append(std::string* text, const char* format, ...) {
  std::array<char, kMaxPieceBytes> piece;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(piece.data(), piece.size(), format, arguments);
  va_end(arguments);
  *text += piece.data();
}

unsigned long long Printed(uint64_t value) { return value; }

// Text from a file on one line: control characters would reach the reader's terminal.
std::string OneLine(std::string_view text, size_t max_bytes = 80) {
  std::string line(text.substr(0, max_bytes));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  if (text.size() > max_bytes) line += "...";
  return line;
}

const char* NormText(const NormSpec& norm) { return norm.kind == NormKind::kLayerNorm ? "LayerNorm" : "RMSNorm"; }

std::string RopeText(const RopeSpec& rope) {
  std::string text;
  Append(&text, "RoPE %u theta %g", rope.rope_dim, rope.theta);
  if (rope.layout == RopeLayout::kInterleaved) text += " interleaved";
  if (rope.scaling != RopeScaling::kNone) Append(&text, " %s x %g", EnumName(rope.scaling), rope.factor);
  return text;
}

std::string AttentionText(const ModelConfig& config, const AttentionSpec& attention) {
  std::string text;
  if (attention.kind == AttentionKind::kLatent) {
    Append(&text, "MLA %u heads, latent %u", attention.n_heads, attention.kv_lora_rank);
  } else if (attention.n_kv_heads == attention.n_heads) {
    Append(&text, "MHA %u heads of %u", attention.n_heads, attention.head_dim);
  } else {
    Append(&text, "%s %u/%u heads of %u", attention.n_kv_heads == 1 ? "MQA" : "GQA", attention.n_heads,
           attention.n_kv_heads, attention.head_dim);
  }
  if (attention.qkv_bias) text += ", qkv bias";
  if (attention.qk_norm != QkNorm::kNone) Append(&text, ", QK-norm %s", EnumName(attention.qk_norm));
  if (attention.rope >= 0) text += ", " + RopeText(config.ropes[static_cast<size_t>(attention.rope)]);
  if (attention.rope < 0) text += attention.alibi ? ", ALiBi" : ", no rotation";
  if (attention.window != 0) Append(&text, ", window %u", attention.window);
  if (attention.logit_soft_cap != 0.0f) Append(&text, ", soft cap %g", attention.logit_soft_cap);
  if (attention.sinks) text += ", sinks";
  return text;
}

const char* GatedName(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "SwiGLU";
    case Activation::kGelu:
    case Activation::kGeluTanh:
      return "GEGLU";
    case Activation::kRelu:
      return "ReGLU";
    case Activation::kSigmoid:
      return "GLU";
    case Activation::kSquaredRelu:
      return "gated squared ReLU";
    case Activation::kClampedSwiglu:
      return "clamped SwiGLU";
  }
  return "?";
}

std::string FfnText(const FfnSpec& ffn) {
  std::string text = ffn.gated ? GatedName(ffn.activation) : EnumName(ffn.activation);
  Append(&text, " %u", ffn.ffn_dim);
  if (ffn.up_bias || ffn.down_bias) text += ", bias";
  if (ffn.n_experts == 0) return text;
  Append(&text, ", %u of %u experts, %s router", ffn.top_k, ffn.n_experts, EnumName(ffn.router_score));
  if (ffn.shared_ffn_dim != 0) Append(&text, ", shared expert %u", ffn.shared_ffn_dim);
  return text;
}

/// A line of the table of tensors: all layers' tensors that are stored alike.
struct TensorRow {
  TensorView first;
  uint32_t count = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
};

bool StoredAlike(const TensorView& a, const TensorView& b) {
  return a.role == b.role && a.dtype == b.dtype && a.rank == b.rank && a.dims == b.dims &&
         a.block_size == b.block_size && a.rotation_block == b.rotation_block;
}

std::vector<TensorRow> TensorRows(const ModelView& view, bool every_tensor) {
  std::vector<TensorRow> rows;
  for (const TensorView& tensor : view.tensors()) {
    auto row = std::find_if(rows.begin(), rows.end(), [&](const TensorRow& r) { return StoredAlike(r.first, tensor); });
    if (every_tensor || row == rows.end()) row = rows.insert(rows.end(), {tensor, 0, 0, 0});
    ++row->count;
    row->elements += tensor.elements();
    row->bytes += tensor.data.size() + tensor.scales.size();
  }
  return rows;
}

std::string ShapeText(const TensorView& tensor) {
  std::string text = "[";
  for (uint32_t i = 0; i < tensor.rank; ++i) Append(&text, i == 0 ? "%llu" : ", %llu", Printed(tensor.dims[i]));
  return text + "]";
}

std::string StorageText(const TensorView& tensor) {
  std::string text = DTypeName(tensor.dtype);
  if (tensor.block_size != 0) Append(&text, "/%u", tensor.block_size);
  if (tensor.rotation_block != 0) Append(&text, " rotated by %u", tensor.rotation_block);
  return text;
}

void AppendSizes(const ModelFile& file, std::string* text) {
  uint64_t parameters = 0;
  for (const TensorView& tensor : file.view().tensors()) parameters += tensor.elements();
  Append(text, "name         %s\n", OneLine(file.name()).c_str());
  Append(text, "family       %s\n", OneLine(file.config().family).c_str());
  Append(text, "file         %llu bytes, format version %u: weights %llu, metadata %llu\n", Printed(file.file_bytes()),
         file.format_version(), Printed(file.weight_bytes()), Printed(file.metadata_bytes()));
  Append(text, "parameters   %llu, %.3f bits each\n", Printed(parameters),
         8.0 * static_cast<double>(file.weight_bytes()) / static_cast<double>(parameters));
  Append(text, "content      %s\n", HexText(file.view().content_hash).c_str());
}

void AppendConfig(const ModelConfig& config, std::string* text) {
  Append(text, "description  %u layers, model_dim %u, vocabulary %u, context %u, %s\n", config.n_layers,
         config.model_dim, config.vocab_size, config.context_length,
         config.tied_head ? "lm_head tied to the embedding" : "lm_head of its own");
  if (config.positions != EmbeddingPositions::kNone) Append(text, "positions    %s\n", EnumName(config.positions));
  for (size_t i = 0; i < config.blocks.size(); ++i) {
    const auto layers = std::count(config.layer_block.begin(), config.layer_block.end(), i);
    const auto first = std::find(config.layer_block.begin(), config.layer_block.end(), i) - config.layer_block.begin();
    if (layers == 0) continue;
    Append(text, "block %-6zu %td layers from layer %td on: ", i, layers, first);
    *text += DescribeBlock(config, config.blocks[i]) + "\n";
  }
}

void AppendTensors(const ModelView& view, bool every_tensor, std::string* text) {
  Append(text, "\n%6s %6s  %-28s %-18s %-20s %14s\n", "layer", "count", "tensor", "shape", "type", "bytes");
  for (const TensorRow& row : TensorRows(view, every_tensor)) {
    const std::string layer = row.first.layer < 0 ? "-" : std::to_string(row.first.layer);
    Append(text, "%6s %6u  %-28s %-18s %-20s %14llu\n", layer.c_str(), row.count, TensorRoleName(row.first.role),
           ShapeText(row.first).c_str(), StorageText(row.first).c_str(), Printed(row.bytes));
  }
}

const char* TokenizerKindText(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::kNone:
      return "none";
    case TokenizerKind::kBpe:
      return "BPE";
    case TokenizerKind::kSentencePieceBpe:
      return "SentencePiece BPE";
  }
  return "?";
}

void AppendTexts(const ModelFile& file, std::string* text) {
  const Result<TokenizerView> tokenizer = ReadTokenizerSection(file.tokenizer_bytes(), nullptr);
  if (tokenizer.ok()) {
    Append(text, "\ntokenizer    %s, %d tokens, %zu bytes\n", TokenizerKindText(tokenizer->kind),
           tokenizer->token_count(), file.tokenizer_bytes().size());
  } else {
    Append(text, "\ntokenizer    damaged: %s\n", tokenizer.status().message());
  }
  Append(text, "template     %zu bytes\n", file.chat_template().size());
  Append(text, "license      %s (%zu bytes)\n", OneLine(file.license(), 60).c_str(), file.license().size());
  const GenerationDefaults& generation = file.generation();
  Append(text, "generation   bos %d (%s), end", generation.bos_id, generation.add_bos ? "added" : "not added");
  for (const int32_t id : generation.end_ids) Append(text, " %d", id);
  *text += "\n";
}

void AppendProvenance(const ModelFile& file, std::string* text) {
  const Provenance& provenance = file.provenance();
  Append(text, "converter    %s\n", OneLine(provenance.converter).c_str());
  for (size_t i = 0; i < std::min(provenance.sources.size(), kMaxListedSources); ++i) {
    const SourceRecord& source = provenance.sources[i];
    Append(text, "source       %s %llu bytes, SHA-256 %s\n", OneLine(source.name).c_str(), Printed(source.size_bytes),
           HexText(source.sha256).c_str());
  }
  if (provenance.sources.size() > kMaxListedSources) {
    Append(text, "source       and %zu more\n", provenance.sources.size() - kMaxListedSources);
  }
  for (const SourceTypeRecord& type : provenance.source_types) {
    Append(text, "source type  %s: %u tensors, %llu weights\n", OneLine(type.name).c_str(), type.tensors,
           Printed(type.elements));
  }
  Append(text, "goldens      %zu\n", file.goldens().size());
}

}  // namespace

std::string DescribeBlock(const ModelConfig& config, const BlockSpec& block) {
  std::string text = EnumName(block.placement);
  std::replace(text.begin(), text.end(), '_', ' ');
  text += std::string(" ") + NormText(block.norm);
  if (block.norm.gain_plus_one) text += " (1 + w)";
  if (block.parallel) text += block.parallel_shared_norm ? ", parallel, one norm" : ", parallel";
  return text + "; " + AttentionText(config, block.attention) + "; " + FfnText(block.ffn);
}

std::string DescribeModel(const ModelFile& file, const DescribeOptions& options) {
  std::string text;
  AppendSizes(file, &text);
  AppendConfig(file.config(), &text);
  AppendTensors(file.view(), options.every_tensor, &text);
  AppendTexts(file, &text);
  AppendProvenance(file, &text);
  return text;
}

}  // namespace linnet::formats
