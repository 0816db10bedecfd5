// The memory of a run by class, as `plan` prints it and `bench` compares it.
#ifndef LINNET_EXAMPLES_CLI_MEMORY_REPORT_H_
#define LINNET_EXAMPLES_CLI_MEMORY_REPORT_H_

#include <cstdint>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "core/plan.h"
#include "formats/linnet/model_file.h"

namespace linnet::cli {

/// What a run keeps beside its session.
struct OtherMemory {
  uint64_t tokenizer_bytes = 0;  // heap of the tokenizer; its vocabulary is mapped
  uint64_t sampler_bytes = 0;    // heap of a sampler with everything switched on
  uint64_t metadata_bytes = 0;   // the mapped description, tensor table and vocabulary

  uint64_t Total() const { return tokenizer_bytes + sampler_bytes + metadata_bytes; }
};
/// Errors: kInvalidModel (a damaged tokenizer).
Result<OtherMemory> MeasureOtherMemory(const formats::ModelFile& file, Diagnostic* diagnostic);

struct MemoryReport {
  MemoryPlan plan;
  OtherMemory other;

  struct Class {
    const char* name;
    uint64_t bytes;
    const char* meaning;
  };
  std::vector<Class> Classes() const;
  uint64_t Total() const { return plan.Total() + other.Total(); }
  /// Of the total, what no other process can share and no file stands behind (packed weights being a mapped file).
  uint64_t Anonymous() const { return plan.Anonymous() + other.tokenizer_bytes + other.sampler_bytes; }
};

/// Errors: kInvalidModel (a damaged tokenizer).
Result<MemoryReport> MakeMemoryReport(const Plan& plan, const formats::ModelFile& file, Diagnostic* diagnostic);

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_MEMORY_REPORT_H_
