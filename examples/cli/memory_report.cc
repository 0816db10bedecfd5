#include "examples/cli/memory_report.h"

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
      {"tokenizer", tokenizer_bytes, "heap, after loading"},
      {"metadata", metadata_bytes, "description and vocabulary, mapped"},
  };
}

uint64_t MemoryReport::Total() const {
  uint64_t total = 0;
  for (const Class& part : Classes()) total += part.bytes;
  return total;
}

Result<MemoryReport> MakeMemoryReport(const Plan& plan, const formats::ModelFile& file, Diagnostic* diagnostic) {
  MemoryReport report;
  report.plan = plan.memory;
  report.metadata_bytes = file.metadata_bytes();
  if (!file.tokenizer_bytes().empty()) {
    LINNET_ASSIGN_OR_RETURN(const Tokenizer tokenizer, OpenTokenizer(file, "model", diagnostic));
    report.tokenizer_bytes = tokenizer.memory_bytes();
  }
  return report;
}

}  // namespace linnet::cli
