// Names of the description's enumerators, for reports. Every enumerator has one: the compiler warns where a case is
// missing.
#ifndef LINNET_FORMATS_LINNET_ENUM_NAMES_H_
#define LINNET_FORMATS_LINNET_ENUM_NAMES_H_

#include "core/base/model_config.h"
#include "formats/linnet/model_content.h"

namespace linnet::formats {

constexpr const char* EnumName(NormKind value) {
  switch (value) {
    case NormKind::kNone:
      return "none";
    case NormKind::kRmsNorm:
      return "rms_norm";
    case NormKind::kLayerNorm:
      return "layer_norm";
  }
  return "?";
}
constexpr const char* EnumName(NormPlacement value) {
  switch (value) {
    case NormPlacement::kPre:
      return "pre";
    case NormPlacement::kPost:
      return "post";
    case NormPlacement::kSubLayerOutput:
      return "sub_layer_output";
    case NormPlacement::kBothSides:
      return "both_sides";
  }
  return "?";
}
constexpr const char* EnumName(EmbeddingPositions value) {
  switch (value) {
    case EmbeddingPositions::kNone:
      return "none";
    case EmbeddingPositions::kLearned:
      return "learned";
    case EmbeddingPositions::kSinusoidal:
      return "sinusoidal";
  }
  return "?";
}
constexpr const char* EnumName(RopeLayout value) {
  switch (value) {
    case RopeLayout::kHalfSplit:
      return "half_split";
    case RopeLayout::kInterleaved:
      return "interleaved";
  }
  return "?";
}
constexpr const char* EnumName(RopeScaling value) {
  switch (value) {
    case RopeScaling::kNone:
      return "none";
    case RopeScaling::kLinear:
      return "linear";
    case RopeScaling::kDynamicNtk:
      return "dynamic_ntk";
    case RopeScaling::kYarn:
      return "yarn";
    case RopeScaling::kLlama3:
      return "llama3";
    case RopeScaling::kLongRope:
      return "longrope";
  }
  return "?";
}
constexpr const char* EnumName(AttentionKind value) {
  switch (value) {
    case AttentionKind::kGrouped:
      return "grouped";
    case AttentionKind::kLatent:
      return "latent";
  }
  return "?";
}
constexpr const char* EnumName(QkNorm value) {
  switch (value) {
    case QkNorm::kNone:
      return "none";
    case QkNorm::kPerHead:
      return "per_head";
    case QkNorm::kPerHeadGain:
      return "per_head_gain";
    case QkNorm::kFullWidth:
      return "full_width";
  }
  return "?";
}
constexpr const char* EnumName(Activation value) {
  switch (value) {
    case Activation::kRelu:
      return "relu";
    case Activation::kSquaredRelu:
      return "squared_relu";
    case Activation::kGelu:
      return "gelu";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kSilu:
      return "silu";
    case Activation::kSigmoid:
      return "sigmoid";
    case Activation::kClampedSwiglu:
      return "clamped_swiglu";
  }
  return "?";
}
constexpr const char* EnumName(RouterScore value) {
  switch (value) {
    case RouterScore::kSoftmax:
      return "softmax";
    case RouterScore::kSigmoid:
      return "sigmoid";
    case RouterScore::kSoftmaxOfTopK:
      return "softmax_of_top_k";
  }
  return "?";
}
constexpr const char* EnumName(GroupScore value) {
  switch (value) {
    case GroupScore::kMax:
      return "max";
    case GroupScore::kSumOfTopTwo:
      return "sum_of_top_two";
  }
  return "?";
}
constexpr const char* EnumName(SegmentKind value) {
  switch (value) {
    case SegmentKind::kTables:
      return "tables";
    case SegmentKind::kLinear:
      return "linear";
    case SegmentKind::kVectors:
      return "vectors";
  }
  return "?";
}

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_LINNET_ENUM_NAMES_H_
