#include "examples/cli/memory_report.h"

#include "core/sampler.h"
#include "core/tokenizer.h"
#include "examples/cli/loaded_model.h"

namespace linnet::cli {

std::vector<MemoryReport::Class> MemoryReport::Classes() const {
  return {
      {"mapped_weights", plan.mapped_weights, "read where the model file is mapped"},
      {"packed_weights", plan.packed_weights, "mapped too, once packed for this CPU"},
      {"kv_cache", plan.kv_cache, "anonymous, fixed"},
      {"activations", plan.activations, "anonymous, fixed"},
      {"scratch", plan.scratch, "anonymous, fixed"},
      {"logits", plan.logits, "anonymous, fixed"},
      {"operators", plan.operators, "heap, XNNPACK's, at most"},
      {"tables", plan.tables, "heap, the plan itself"},
      {"thread_stacks", plan.thread_stacks, "what threads touch, at most"},
      {"tokenizer", other.tokenizer_bytes, "heap, after loading"},
      {"sampler", other.sampler_bytes, "heap, at most"},
      {"metadata", other.metadata_bytes, "description and vocabulary, mapped"},
  };
}

Result<OtherMemory> MeasureOtherMemory(const formats::ModelFile& file, Diagnostic* diagnostic) {
  OtherMemory other;
  other.metadata_bytes = file.metadata_bytes();
  SamplerOptions sampler;
  sampler.repetition_penalty = 1.1f;  // any but 1 takes memory for the tokens seen
  other.sampler_bytes = Sampler::ScratchBytes(sampler, file.config().vocab_size);
  if (!file.tokenizer_bytes().empty()) {
    LINNET_ASSIGN_OR_RETURN(const Tokenizer tokenizer, OpenTokenizer(file, "model", diagnostic));
    other.tokenizer_bytes = tokenizer.memory_bytes();
  }
  return other;
}

Result<MemoryReport> MakeMemoryReport(const Plan& plan, const formats::ModelFile& file, Diagnostic* diagnostic) {
  MemoryReport report;
  report.plan = plan.memory;
  LINNET_ASSIGN_OR_RETURN(report.other, MeasureOtherMemory(file, diagnostic));
  return report;
}

}  // namespace linnet::cli
