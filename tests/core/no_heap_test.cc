// The whole process's heap calls are counted: malloc and its kin, which operator new and XNNPACK come down to.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "core/sampler.h"
#include "core/session.h"
#include "tests/support/running_model.h"
#include "tests/support/tiny_model.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LINNET_COUNTS_HEAP_CALLS 1
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}
namespace {
std::atomic<long> heap_calls = 0;
}
extern "C" {
void* malloc(size_t size) { return ++heap_calls, __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return ++heap_calls, __libc_calloc(count, size); }
void* realloc(void* old, size_t size) { return ++heap_calls, __libc_realloc(old, size); }
void* memalign(size_t alignment, size_t size) { return ++heap_calls, __libc_memalign(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return ++heap_calls, __libc_memalign(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) {
  ++heap_calls;
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? 12 : 0;
}
void free(void* block) { ++heap_calls, __libc_free(block); }
}
#endif

namespace linnet {
namespace {

#ifdef LINNET_COUNTS_HEAP_CALLS
// Heap calls of 40 prefilled and 40 decoded and sampled tokens.
long CallsOnTheTokenPath(const ModelView& model, const SessionOptions& options) {
  testing::RunningModel running(model, options);
  Session& session = running.session();
  const std::vector<int32_t> ids = testing::SomeIds(40, model.config().vocab_size);
  const SamplerOptions sampling = {.temperature = 0.8f,
                                   .top_k = 20,
                                   .top_p = 0.9f,
                                   .min_p = 0.02f,
                                   .repetition_penalty = 1.1f,
                                   .penalty_window = 16,
                                   .seed = 3};
  std::vector<uint64_t> scratch(Sampler::ScratchBytes(sampling, model.config().vocab_size) / 8 + 1);
  auto sampler = Sampler::Create(sampling, model.config().vocab_size, std::as_writable_bytes(std::span(scratch)));
  REQUIRE(sampler.ok());
  bool good = true;
  const long before = heap_calls;
  good = session.Prefill(ids).ok() && good;
  sampler->Accept(ids);
  for (int i = 0; i < 40; ++i) {
    const Result<int32_t> id = sampler->Sample(session.logits());
    good = id.ok() && session.Decode(*id).ok() && good;
  }
  good = session.Rewind(70).ok() && session.Prefill(std::span(ids).first(9)).ok() && good;
  const long calls = heap_calls - before;
  REQUIRE(good);
  return calls;
}
#endif

}  // namespace

TEST_SUITE("core") {
  TEST_CASE("Session: no heap call between creation and end, in prefill, decode and sampling") {
#ifdef LINNET_COUNTS_HEAP_CALLS
    const long before = heap_calls;
    delete new std::string(100, 'x');
    REQUIRE(heap_calls > before);  // the counter counts
    for (const DType type : {DType::kF32, DType::kQ8, DType::kQ4}) {
      for (const uint32_t n_experts : {0u, 4u}) {
        const testing::BuiltModel model(testing::TinyConfig({.window = 8, .n_experts = n_experts}),
                                        testing::BuiltModel::WithType(type));
        for (const uint32_t threads : {1u, 3u}) {
          CAPTURE(std::string(DTypeName(type)));
          CAPTURE(n_experts);
          CAPTURE(threads);
          CHECK(CallsOnTheTokenPath(model.view(), {.context_tokens = 96, .chunk_tokens = 16, .n_threads = threads}) ==
                0);
        }
      }
    }
#else
    MESSAGE("skipped: heap calls cannot be counted under a sanitizer or without glibc");
#endif
  }
}

}  // namespace linnet
