// Between a session's creation and its end the token path asks nobody for memory: neither heap nor system.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "core/executor.h"
#include "core/sampler.h"
#include "core/session.h"
#include "ops/thread_pool.h"
#include "ops/xnn_linear.h"
#include "tests/support/heap_counter.h"
#include "tests/support/running_model.h"
#include "tests/support/small_config.h"
#include "tests/support/tiny_model.h"

namespace linnet {
namespace {

using testing::HeapIsCounted;
using testing::MemoryCalls;

constexpr SamplerOptions kSampling = {.temperature = 0.8f,
                                      .top_k = 20,
                                      .top_p = 0.9f,
                                      .min_p = 0.02f,
                                      .repetition_penalty = 1.1f,
                                      .penalty_window = 16,
                                      .seed = 3};

// What a program does with a session: a prompt, an answer, a part forgotten, the logits of every position, a step
// observed, a full context, a new start.
bool UseAll(Session& session, Sampler& sampler, std::span<const int32_t> ids) {
  bool good = session.Prefill(ids).ok();
  sampler.Accept(ids);
  for (int i = 0; i < 40; ++i) {
    const Result<int32_t> id = sampler.Sample(session.logits());
    good = id.ok() && session.Decode(*id).ok() && good;
    if (id.ok()) sampler.Accept(*id);
  }
  good = session.Rewind(79).ok() && session.Prefill(ids.first(9)).ok() && good;
  uint32_t rows = 0;
  const LogitsSink sink = {
      .function = [](void* context, uint32_t, const float*, uint32_t n) { *static_cast<uint32_t*>(context) += n; },
      .context = &rows,
      .from_pos = 3};
  sampler.Reset();
  good = session.Rewind(0).ok() && session.Prefill(ids, {}, sink).ok() && rows == ids.size() - 3 && good;
  uint32_t steps = 0;
  session.SetObserver({.function = [](void* context, const Executor&, const ExecutionPlan&,
                                      size_t) { ++*static_cast<uint32_t*>(context); },
                       .context = &steps});
  good = session.Decode(ids[0]).ok() && steps > 0 && good;
  session.SetObserver({});
  while (session.remaining() > 0) good = session.Decode(ids[0]).ok() && good;
  return session.Decode(ids[0]).code() == StatusCode::kContextFull && good;
}

int64_t CallsOnTheTokenPath(const ModelView& model, const SessionOptions& options) {
  testing::RunningModel running(model, options);
  const std::vector<int32_t> ids = testing::SomeIds(40, model.config().vocab_size);
  std::vector<uint64_t> scratch(Sampler::ScratchBytes(kSampling, model.config().vocab_size) / 8 + 1);
  auto sampler = Sampler::Create(kSampling, model.config().vocab_size, std::as_writable_bytes(std::span(scratch)));
  REQUIRE(sampler.ok());
  const int64_t before = MemoryCalls();
  const bool good = UseAll(running.session(), *sampler, ids);
  const int64_t calls = MemoryCalls() - before;
  REQUIRE(good);
  return calls;
}

void CheckModel(const ModelConfig& config, DType type) {
  const testing::BuiltModel model(config, testing::BuiltModel::WithType(type));
  for (const uint32_t threads : {1u, 2u, 5u}) {
    for (const SessionOptions::Kv kv : {SessionOptions::Kv::kAuto, SessionOptions::Kv::kInt8}) {
      CAPTURE(threads);
      CHECK(CallsOnTheTokenPath(
                model.view(),
                {.context_tokens = 96, .chunk_tokens = 16, .n_threads = threads, .logit_rows = 5, .kv = kv}) == 0);
    }
  }
}

constexpr const char* kSkipped = "skipped: calls cannot be counted under a sanitizer or without glibc";

}  // namespace

TEST_SUITE("core") {
  TEST_CASE("MemoryCalls: counts every way to memory") {
    if (!HeapIsCounted()) {
      MESSAGE(kSkipped);
      return;
    }
    const auto counted = [](const std::function<void()>& call) {
      const int64_t before = MemoryCalls();
      call();
      return MemoryCalls() - before;
    };
    // Through volatile pointers, so that the compiler cannot leave a pair of calls out.
    static void* volatile block;
    CHECK(counted([] { block = std::malloc(10), std::free(block); }) == 2);
    CHECK(counted([] {
            block = std::calloc(2, 10);
            block = std::realloc(block, 100);
            std::free(block);
          }) == 3);
    CHECK(counted([] { block = std::aligned_alloc(64, 128), std::free(block); }) == 2);
    CHECK(counted([] {
            void* aligned = nullptr;
            if (posix_memalign(&aligned, 64, 100) == 0) block = aligned;
            std::free(block);
          }) == 2);
    CHECK(counted([] { block = new char[100], delete[] static_cast<char*>(block); }) == 2);
    CHECK(counted([] { block = new std::string(100, 'x'), delete static_cast<std::string*>(block); }) == 4);
    CHECK(counted([] {
            block = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            munmap(block, 4096);
          }) == 2);
  }

  TEST_CASE("kLinearRuntimeBytes: more than XNNPACK, cpuinfo and a pool take of the heap") {
    if (!HeapIsCounted()) {
      MESSAGE(kSkipped);
      return;
    }
    const int64_t before = testing::HeapBytes();  // the first use of both in this program
    REQUIRE(ops::InitializeXnnpack().ok());
    const auto pool = ops::ThreadPool::Create(8);
    REQUIRE(pool.ok());
    const int64_t taken = testing::HeapBytes() - before;
    CHECK(taken > 0);
    CHECK(taken <= static_cast<int64_t>(ops::kLinearRuntimeBytes));
  }

  TEST_CASE("Session: no call for memory between creation and end, whatever the weights, threads and features") {
    if (!HeapIsCounted()) {
      MESSAGE(kSkipped);
      return;
    }
    for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8, DType::kQ4}) {
      CAPTURE(std::string(DTypeName(type)));
      CheckModel(testing::TinyConfig({.window = 8}), type);
      CheckModel(testing::TinyConfig({.tied_head = true, .qkv_bias = true, .qk_norm = QkNorm::kPerHead}), type);
      CheckModel(testing::TinyConfig({.n_experts = 4}), type);
      CheckModel(testing::SmallMixtureConfig(), type);
      CheckModel(testing::SmallLatentConfig(), type);
    }
  }
}

}  // namespace linnet
