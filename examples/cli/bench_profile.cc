#include "examples/cli/bench_profile.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "core/executor.h"
#include "examples/cli/cpu_level.h"
#include "ops/q4_product.h"
#include "ops/xnn_kernels.h"
#include "platforms/clock.h"

namespace linnet::cli {
namespace {

struct KernelName {
  std::string kernel, instruction_set;
};

KernelName Own(const std::string& name) { return {name, HighwayTargetName()}; }

std::string WithInt8(const char* name, const RowsBuffer& out) {
  return std::string(name) + (out.int8 != kNoBuffer ? " + rotate + int8" : "");
}

/// What computes a step: XNNPACK's kernels by their names, everything else is Linnet's own over Highway.
struct KernelNamer {
  const ModelView& model;
  const Plan& plan;
  const std::array<ops::LinearKernels, 3>& xnnpack;
  bool many_rows;

  KernelName Product(uint32_t matrix) const {
    const TensorView& weight = model.tensors()[plan.packed.matrices[matrix].tensor];
    const size_t type = weight.dtype == DType::kQ4 ? 2 : weight.dtype == DType::kQ8 ? 1 : 0;
    const std::string name = many_rows ? xnnpack[type].many_rows : xnnpack[type].one_row;
    // XNNPACK's names end in two underscores and the instruction set.
    const size_t end = name.rfind("__");
    const std::string library = name.starts_with("q4_product") ? "" : "xnnpack ";
    if (end == std::string::npos) return {library + name, ReachedCpuLevel()};
    return {library + name.substr(0, end), name.substr(end + 2)};
  }

  KernelName operator()(const LinearStep& step) const { return Product(step.matrix); }
  KernelName operator()(const ExpertsStep& step) const { return Product(step.first_up); }
  KernelName operator()(const AbsorbStep& step) const { return Product(step.first_matrix); }
  KernelName operator()(const ValueUpStep& step) const { return Product(step.first_matrix); }
  KernelName operator()(const AttentionStep&) const {
    return Own(std::string("online softmax, ") + ops::KvTypeName(plan.kv_type) + " kv");
  }
  KernelName operator()(const EmbedStep&) const { return Own("look-up"); }
  KernelName operator()(const PositionStep&) const { return Own("add rows"); }
  KernelName operator()(const RopeTableStep&) const { return Own("sine, cosine"); }
  KernelName operator()(const NormStep& step) const { return Own(WithInt8("norm", step.out)); }
  KernelName operator()(const QuantizeStep&) const { return Own("rotate + int8"); }
  KernelName operator()(const HeadsStep&) const { return Own("norm, rope, store kv"); }
  KernelName operator()(const LatentHeadsStep&) const { return Own("norm, rope, store kv"); }
  KernelName operator()(const ActivationStep& step) const {
    return Own(WithInt8(step.ffn->gated ? "gated activation" : "activation", step.out));
  }
  KernelName operator()(const ResidualStep&) const { return Own("add rows"); }
  KernelName operator()(const RouteStep&) const { return Own("f32 product, top k"); }
  KernelName operator()(const SharedGateStep&) const { return Own("f32 product"); }
  KernelName operator()(const LogitsStep&) const { return Own("scale, cap"); }
};

class StepTimer {
 public:
  StepTimer(const ModelView& model, const Plan& plan, const std::array<ops::LinearKernels, 3>& xnnpack)
      : model_(model),
        plan_(plan),
        xnnpack_(xnnpack),
        prefill_(plan.prefill.steps.size()),
        decode_(plan.decode.steps.size()) {}

  /// The next step's time starts now.
  void Restart() { last_ns_ = platform::MonotonicNanoseconds(); }

  static void Observe(void* context, const Executor& executor, const ExecutionPlan& plan, size_t step) {
    static_cast<StepTimer*>(context)->AfterStep(executor, plan, step);
  }

  Profile Take(uint32_t repetitions) const;

 private:
  struct Entry {
    uint64_t calls = 0, nanoseconds = 0;
    StepCost cost;
  };

  void AfterStep(const Executor& executor, const ExecutionPlan& plan, size_t index) {
    const uint64_t now = platform::MonotonicNanoseconds();
    Entry& entry = (&plan == &plan_.decode ? decode_ : prefill_)[index];
    ++entry.calls;
    entry.nanoseconds += now - last_ns_;
    // The head runs on one row and has no pass.
    StepRows rows;
    if (index < plan.head_begin) {
      rows = {static_cast<uint32_t>(executor.pass().ids.size()), executor.pass().first_pos};
    }
    entry.cost += CostOfStep(model_, plan_, plan.steps[index], rows);
    Restart();
  }

  void AddRows(const ExecutionPlan& plan, const std::vector<Entry>& entries, uint32_t repetitions,
               Profile& profile) const;

  const ModelView& model_;
  const Plan& plan_;
  const std::array<ops::LinearKernels, 3>& xnnpack_;
  std::vector<Entry> prefill_, decode_;  // one a step of each plan
  uint64_t last_ns_ = 0;
};

StepCost Divided(const StepCost& cost, uint64_t by) {
  return {cost.weight_bytes / by, cost.kv_bytes / by, cost.activation_bytes / by, cost.int8_multiply_adds / by,
          cost.float_multiply_adds / by};
}

void AddToSteps(const ProfileRow& row, std::vector<ProfileRow>& steps) {
  const auto same = [&row](const ProfileRow& r) { return r.step == row.step && r.kernel == row.kernel; };
  const auto found = std::find_if(steps.begin(), steps.end(), same);
  if (found == steps.end()) {
    steps.push_back(row);
    steps.back().layer = -1;
    return;
  }
  found->calls += row.calls;
  found->seconds += row.seconds;
  found->cost += row.cost;
}

void StepTimer::AddRows(const ExecutionPlan& plan, const std::vector<Entry>& entries, uint32_t repetitions,
                        Profile& profile) const {
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (entry.calls == 0) continue;
    const Step& step = plan.steps[i];
    ProfileRow row;
    row.step = step.name;
    row.layer = step.layer;
    const bool many_rows = &plan == &plan_.prefill && i < plan.head_begin;
    KernelName name = std::visit(KernelNamer{model_, plan_, xnnpack_, many_rows}, step.data);
    row.kernel = std::move(name.kernel);
    row.instruction_set = std::move(name.instruction_set);
    row.calls = static_cast<double>(entry.calls) / repetitions;
    row.seconds = static_cast<double>(entry.nanoseconds) * 1e-9 / repetitions;
    row.cost = Divided(entry.cost, repetitions);
    profile.seconds += row.seconds;
    AddToSteps(row, profile.by_step);
    profile.by_layer.push_back(std::move(row));
  }
}

Profile StepTimer::Take(uint32_t repetitions) const {
  Profile profile;
  AddRows(plan_.prefill, prefill_, repetitions, profile);
  AddRows(plan_.decode, decode_, repetitions, profile);
  return profile;
}

// An observer that ends with its scope, errors included.
class ObserverScope {
 public:
  ObserverScope(Session& session, StepTimer& timer) : session_(session) {
    session_.SetObserver({StepTimer::Observe, &timer});
  }
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;
  ~ObserverScope() { session_.SetObserver({}); }

 private:
  Session& session_;
};

}  // namespace

Result<Profile> ProfileBenchTest(Session& session, const ModelView& model, std::span<const int32_t> ids,
                                 const BenchTest& test, uint32_t repetitions) {
  LINNET_ASSIGN_OR_RETURN(const auto xnnpack, ops::ChosenLinearKernels());
  StepTimer timer(model, session.plan(), xnnpack);
  for (uint32_t i = 0; i < repetitions; ++i) {
    // The way to the test's depth is not observed.
    LINNET_RETURN_IF_ERROR(PrepareBenchTest(session, ids, test));
    const ObserverScope scope(session, timer);
    timer.Restart();
    LINNET_RETURN_IF_ERROR(RunPreparedBenchTest(session, ids, test));
  }
  return timer.Take(repetitions);
}

}  // namespace linnet::cli
