// Writes a tiny Llama whose linear layers are packed as GPTQ or AWQ packs them, beside the values that they stand for.
#ifndef LINNET_TESTS_FORMATS_HUGGINGFACE_PACKED_CHECKPOINT_H_
#define LINNET_TESTS_FORMATS_HUGGINGFACE_PACKED_CHECKPOINT_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/base/float16.h"
#include "tests/formats/huggingface/goldens.h"
#include "tests/formats/safetensors/safetensors_writer.h"
#include "tests/platforms/temporary_folder.h"

namespace linnet::testing {

/// A linear layer [rows, columns] before it is packed.
struct PackedLayer {
  uint32_t rows = 0, columns = 0, bits = 4, group_size = 0;
  std::vector<uint32_t> levels;  // [rows, columns]
  std::vector<uint32_t> zeros;   // [groups, rows]
  std::vector<uint16_t> scales;  // [groups, rows] f16
  std::vector<uint32_t> groups;  // [columns]

  float Scale(uint32_t n, uint32_t k) const { return F32FromF16(scales[groups[k] * rows + n]); }
  float Weight(uint32_t n, uint32_t k) const {
    const int level = static_cast<int>(levels[n * columns + k]), zero = static_cast<int>(zeros[groups[k] * rows + n]);
    return Scale(n, k) * static_cast<float>(level - zero);
  }
  uint32_t group_count() const { return (columns + group_size - 1) / group_size; }
};

struct PackedOptions {
  bool awq = false;
  bool symmetric = true;
  bool second_format = false;  // GPTQ: zero points as they are
  bool act_order = false;      // GPTQ: columns' groups are shuffled
  bool with_index = true;      // GPTQ: write g_idx
  uint32_t bits = 4;
  uint32_t group_size = 32;  // 0: whole rows
};

/// 64 wide, 4 heads, 2 kv heads, ffn 96, 8 tokens, one layer, untied; embedding, norms and head are not packed.
class PackedCheckpoint {
 public:
  explicit PackedCheckpoint(const PackedOptions& options) : options_(options), random_(options.bits + options.awq) {
    for (const auto& [name, rows, columns] : kLinears) {
      PackedLayer& layer = layers[std::string("model.layers.0.") + name];
      layer = MakeLayer(rows, columns);
    }
    config = {{"model_type", "llama"},
              {"hidden_size", 64},
              {"intermediate_size", 96},
              {"num_hidden_layers", 1},
              {"num_attention_heads", 4},
              {"num_key_value_heads", 2},
              {"vocab_size", 8},
              {"max_position_embeddings", 16},
              {"tie_word_embeddings", false}};
    auto& stored = config["quantization_config"];
    stored = {{"bits", options.bits}, {"quant_method", options.awq ? "awq" : "gptq"}};
    stored["group_size"] = options.group_size == 0 ? -1 : static_cast<int>(options.group_size);
    if (options.awq) {
      stored["version"] = "gemm";
      stored["zero_point"] = !options.symmetric;
      stored["modules_to_not_convert"] = nullptr;
    } else {
      stored["sym"] = options.symmetric;
      stored["desc_act"] = options.act_order;
      stored["checkpoint_format"] = options.second_format ? "gptq_v2" : "gptq";
      stored["damp_percent"] = 0.1;
    }
  }

  struct Stored {
    std::string type;
    std::vector<uint64_t> shape;
    std::string bytes;
  };
  /// Every tensor by name; change what a test wants changed, then Write.
  std::map<std::string, Stored> Tensors() {
    std::map<std::string, Stored> tensors;
    for (const char* norm :
         {"model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"}) {
      tensors[std::string(norm) + ".weight"] = Floats({64});
    }
    tensors["model.embed_tokens.weight"] = Floats({8, 64});
    tensors["lm_head.weight"] = Floats({8, 64});
    for (const auto& [name, layer] : layers) Pack(name, layer, &tensors);
    return tensors;
  }
  template <typename Folder>
  void Write(const Folder& folder, const std::map<std::string, Stored>& tensors) const {
    SafetensorsWriter writer;
    for (const auto& [name, tensor] : tensors) writer.AddBytes(name, tensor.type, tensor.shape, tensor.bytes);
    WriteFile(folder / "model.safetensors", writer.Bytes());
    WriteFile(folder / "config.json", config.dump());
  }

  nlohmann::json config;
  std::map<std::string, PackedLayer> layers;  // "model.layers.0.self_attn.q_proj"

 private:
  struct Linear {
    const char* name;
    uint32_t rows, columns;
  };
  static constexpr Linear kLinears[] = {
      {"self_attn.q_proj", 64, 64}, {"self_attn.k_proj", 32, 64}, {"self_attn.v_proj", 32, 64},
      {"self_attn.o_proj", 64, 64}, {"mlp.gate_proj", 96, 64},    {"mlp.up_proj", 96, 64},
      {"mlp.down_proj", 64, 96},
  };

  PackedLayer MakeLayer(uint32_t rows, uint32_t columns) {
    PackedLayer layer;
    layer.rows = rows;
    layer.columns = columns;
    layer.bits = options_.bits;
    layer.group_size = options_.group_size == 0 ? columns : std::min(options_.group_size, columns);
    const uint32_t levels = 1u << options_.bits;
    for (uint32_t i = 0; i < rows * columns; ++i) layer.levels.push_back(Random(levels));
    for (uint32_t i = 0; i < layer.group_count() * rows; ++i) {
      layer.zeros.push_back(options_.symmetric ? levels / 2 : Random(levels));
      layer.scales.push_back(F16FromF32(0.001f + static_cast<float>(random_() % 1000) / 50000.0f));
    }
    for (uint32_t k = 0; k < columns; ++k) layer.groups.push_back(k / layer.group_size);
    if (options_.act_order) std::shuffle(layer.groups.begin(), layer.groups.end(), random_);
    return layer;
  }

  uint32_t Random(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  Stored Floats(std::vector<uint64_t> shape) {
    uint64_t count = 1;
    for (const uint64_t dim : shape) count *= dim;
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(random_() % 100) / 100.0f;
    return {"F32", std::move(shape), Text(values)};
  }
  template <typename T>
  static std::string Text(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }

  // Integers at(outer, inner), outer rows of `inner` integers, packed along the inner index; place(i) is where in a
  // word the i-th of its integers goes.
  std::string Words(uint32_t outer, uint32_t inner, const std::function<uint32_t(uint32_t, uint32_t)>& at,
                    const std::vector<uint32_t>& place) const {
    const uint32_t per_word = 32 / options_.bits;
    std::vector<uint32_t> words(size_t{outer} * inner / per_word, 0);
    for (uint32_t o = 0; o < outer; ++o) {
      for (uint32_t i = 0; i < inner; ++i) {
        words[(o * inner + i) / per_word] |= at(o, i) << (options_.bits * place[i % per_word]);
      }
    }
    return Text(words);
  }

  void Pack(const std::string& name, const PackedLayer& layer, std::map<std::string, Stored>* tensors) const {
    const uint32_t per_word = 32 / options_.bits, rows = layer.rows, columns = layer.columns;
    const uint32_t groups = layer.group_count(), mask = (1u << options_.bits) - 1;
    std::vector<uint32_t> in_order(per_word);
    for (uint32_t i = 0; i < per_word; ++i) in_order[i] = i;
    const auto level = [&](uint32_t k, uint32_t n) { return layer.levels[n * columns + k]; };
    const uint32_t less = !options_.awq && !options_.second_format ? 1 : 0;
    const auto zero = [&](uint32_t g, uint32_t n) { return (layer.zeros[g * rows + n] - less) & mask; };
    if (options_.awq) {
      // The word's nibbles hold columns 0 2 4 6 1 3 5 7, so column 1 is in nibble 4.
      const std::vector<uint32_t> interleaved = {0, 4, 1, 5, 2, 6, 3, 7};
      (*tensors)[name + ".qweight"] = {"I32", {columns, rows / 8}, Words(columns, rows, level, interleaved)};
      (*tensors)[name + ".qzeros"] = {"I32", {groups, rows / 8}, Words(groups, rows, zero, interleaved)};
    } else {
      std::vector<uint32_t> words(size_t{columns} / per_word * rows, 0);
      for (uint32_t k = 0; k < columns; ++k) {
        for (uint32_t n = 0; n < rows; ++n) {
          words[k / per_word * rows + n] |= level(k, n) << (options_.bits * (k % per_word));
        }
      }
      (*tensors)[name + ".qweight"] = {"I32", {columns / per_word, rows}, Text(words)};
      (*tensors)[name + ".qzeros"] = {"I32", {groups, rows / per_word}, Words(groups, rows, zero, in_order)};
      if (options_.with_index) (*tensors)[name + ".g_idx"] = {"I32", {columns}, Text(layer.groups)};
    }
    (*tensors)[name + ".scales"] = {"F16", {groups, rows}, Text(layer.scales)};
  }

  PackedOptions options_;
  std::mt19937 random_;
};

}  // namespace linnet::testing

#endif  // LINNET_TESTS_FORMATS_HUGGINGFACE_PACKED_CHECKPOINT_H_
