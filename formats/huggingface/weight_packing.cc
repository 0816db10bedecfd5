#include "formats/huggingface/weight_packing.h"

#include <string>

#include "formats/huggingface/config_reader.h"

namespace linnet::formats {
namespace {

// How the quantizer worked and how other programs run the result; what is stored follows from the rest.
constexpr const char* kKeysOfQuantizers[] = {
    "act_group_aware",
    "backend",
    "batch_size",
    "block_name_to_quantize",
    "cache_block_outputs",
    "damp_auto_increment",
    "damp_percent",
    "dataset",
    "desc_act",  // g_idx says what it did to the groups
    "disable_exllama",
    "do_fuse",
    "exllama_config",
    "fuse_max_seq_len",
    "hyb_act",
    "lm_head",  // the head's tensors say it
    "max_input_length",
    "meta",
    "model_file_base_name",
    "model_name_or_path",
    "model_seqlen",
    "module_name_preceding_first_block",
    "modules_in_block_to_quantize",
    "modules_to_fuse",
    "modules_to_not_convert",  // they have a weight
    "mse",
    "pad_token_id",
    "parallel_packing",
    "quantizer",
    "static_groups",
    "sym",  // the zero points say it
    "tokenizer",
    "true_sequential",
    "use_cuda_fp16",
    "use_exllama",
    "zero_point",  // the zero points say it
};

// -1 stands for a whole row.
uint32_t ReadGroupSize(ConfigReader& reader) {
  const double size = reader.Number("group_size", 128.0);
  if (size == -1.0) return 0;
  if (size >= 1.0 && size <= 1u << 24 && size == static_cast<double>(static_cast<uint32_t>(size))) {
    return static_cast<uint32_t>(size);
  }
  reader.Invalid("group_size", "expected -1 or a whole number from 1 to 2^24");
  return 0;
}

}  // namespace

WeightPacking ReadWeightPacking(ConfigReader reader) {
  WeightPacking packing;
  const std::string method = reader.Text("quant_method", "");
  if (method == "gptq") {
    packing.method = PackingMethod::kGptq;
  } else if (method == "awq") {
    packing.method = PackingMethod::kAwq;
  } else {
    reader.Refuse("quant_method", "checkpoints in F32, F16 or BF16, \"gptq\" and \"awq\"");
    return packing;
  }
  packing.bits = reader.Positive("bits", 4);
  packing.group_size = ReadGroupSize(reader);
  reader.Ignore(kKeysOfQuantizers);
  reader.Expect("dynamic", {"{}"});  // another packing for some layers
  reader.Expect("pack_dtype", {"\"int32\""});
  reader.Expect("is_marlin_format", {"false"});
  if (packing.method == PackingMethod::kGptq) {
    const char* format = reader.Either({"checkpoint_format", "format"});
    reader.Expect(format, {"\"gptq\"", "\"gptq_v2\""});
    packing.zeros_less_one = reader.Text(format, "gptq") == "gptq";
    if (packing.bits != 2 && packing.bits != 4 && packing.bits != 8) reader.Refuse("bits", "2, 4 and 8");
  } else {
    reader.Expect(reader.Either({"version", "format"}), {"\"gemm\"", "\"GEMM\""});
    if (packing.bits != 4) reader.Refuse("bits", "4");
  }
  reader.Finish();
  return packing;
}

}  // namespace linnet::formats
