// Public header. What a model file holds, as text for people and as JSON for programs.
#ifndef LINNET_FORMATS_LINNET_DESCRIBE_H_
#define LINNET_FORMATS_LINNET_DESCRIBE_H_

#include <string>

#include "core/base/model_config.h"
#include "formats/linnet/model_file.h"

namespace linnet::formats {

struct DescribeOptions {
  bool every_tensor = false;  // text: a line a tensor instead of a line a kind of tensor
};

/// Lines for people: sizes, kinds of block, tensors by role and type, tokenizer, texts, provenance.
std::string DescribeModel(const ModelFile& file, const DescribeOptions& options);

/// JSON lines: first one object with "record": "model" (sizes, description, segments, provenance, generation
/// defaults), then one with "record": "tensor" for every tensor. Numbers are exact; offsets count from the start of the
/// file. Bytes of names and texts that are no UTF-8 are replaced by U+FFFD.
std::string DescribeModelJson(const ModelFile& file);

/// The description as one JSON object with the names of core/base/model_config.h; enumerators by name. Optional parts
/// that are off are left out.
std::string ModelConfigJson(const ModelConfig& config);

/// One kind of block in words: "pre RMSNorm; GQA 9/3 heads of 64, RoPE 64 theta 100000; SwiGLU 1536".
std::string DescribeBlock(const ModelConfig& config, const BlockSpec& block);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_LINNET_DESCRIBE_H_
