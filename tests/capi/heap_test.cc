// The C API and the heap: any call of operator new may fail, and the answer is a status; running makes none.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "capi/linnet.h"
#include "formats/convert/convert.h"
#include "tests/support/running_model.h"
#include "tests/support/tiny_model.h"

namespace {

// Calls of operator new that still succeed; below zero: all do.
std::atomic<long> g_calls_left{-1};
std::atomic<long> g_calls{0};

bool Refused() {
  g_calls.fetch_add(1);
  if (g_calls_left.load() < 0) return false;
  if (g_calls_left.load() == 0) return true;
  g_calls_left.fetch_sub(1);
  return false;
}

void* Allocate(std::size_t bytes, std::size_t alignment) {
  if (Refused()) return nullptr;
  if (bytes == 0) bytes = 1;
  return alignment <= alignof(std::max_align_t)
             ? std::malloc(bytes)
             : std::aligned_alloc(alignment, (bytes + alignment - 1) & ~(alignment - 1));
}

void* AllocateOrThrow(std::size_t bytes, std::size_t alignment) {
  void* memory = Allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return AllocateOrThrow(bytes, 1); }
void* operator new[](std::size_t bytes) { return AllocateOrThrow(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace linnet::testing {
namespace {

// From the file to two tokens. Returns the first failure.
linnet_status Run(const std::string& path, linnet_error* error) {
  const int32_t ids[] = {1, 2, 3};
  linnet_model* model = nullptr;
  linnet_session* session = nullptr;
  linnet_sampler* sampler = nullptr;
  int32_t id = 0;
  linnet_plan plan = {};
  plan.struct_size = sizeof(plan);
  linnet_status status = linnet_model_open(path.c_str(), nullptr, &model, error);
  if (status == LINNET_OK) status = linnet_model_plan(model, nullptr, &plan, error);
  if (status == LINNET_OK) status = linnet_model_load(model, nullptr, error);
  if (status == LINNET_OK) status = linnet_session_create(model, nullptr, &session, error);
  if (status == LINNET_OK) status = linnet_sampler_create(model, nullptr, &sampler, error);
  if (status == LINNET_OK) status = linnet_session_prefill(session, ids, 3, nullptr, nullptr, error);
  if (status == LINNET_OK) status = linnet_sampler_sample(sampler, session, &id, error);
  if (status == LINNET_OK) status = linnet_session_decode(session, id, error);
  linnet_sampler_free(sampler);
  linnet_session_free(session);
  linnet_model_free(model);
  return status;
}

// A model file that is removed at the end.
class ModelOnDisk {
 public:
  ModelOnDisk() : path_("capi_heap_test." + std::to_string(getpid()) + ".linnet") {
    TinyCheckpoint checkpoint(TinyConfig({.vocab_size = 96}));
    Diagnostic diagnostic;
    const auto options = BuiltModel::WithType(DType::kF32);
    REQUIRE(formats::Convert(checkpoint, options, path_, nullptr, nullptr, &diagnostic).ok());
  }
  ~ModelOnDisk() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST_SUITE("capi") {
  TEST_CASE("C API: prefill, decode, sampling and rewind make no heap call") {
    const ModelOnDisk file;
    const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    linnet_model* model = nullptr;
    linnet_session* session = nullptr;
    linnet_sampler* sampler = nullptr;
    linnet_error error;
    linnet_sampler_options options = {};
    options.struct_size = sizeof(options);
    options.temperature = 1.0f;
    options.repetition_penalty = 1.1f;
    REQUIRE(linnet_model_open(file.path().c_str(), nullptr, &model, &error) == LINNET_OK);
    REQUIRE(linnet_model_load(model, nullptr, &error) == LINNET_OK);
    REQUIRE(linnet_session_create(model, nullptr, &session, &error) == LINNET_OK);
    REQUIRE(linnet_sampler_create(model, &options, &sampler, &error) == LINNET_OK);
    int32_t id = 0;
    size_t reused = 0;
    linnet_status status = LINNET_OK;
    const long before = g_calls.load();
    for (size_t n = 2; n <= 9 && status == LINNET_OK; ++n) {
      status = linnet_session_set_prompt(session, ids, n, nullptr, nullptr, &reused, &error);
      if (status == LINNET_OK) status = linnet_sampler_accept(sampler, ids, n, &error);
      if (status == LINNET_OK) status = linnet_sampler_sample(sampler, session, &id, &error);
      if (status == LINNET_OK) status = linnet_session_decode(session, id, &error);
      if (status == LINNET_OK) status = linnet_session_rewind(session, 1, &error);
    }
    const linnet_status wrong = linnet_session_decode(session, 96, &error);
    const long calls = g_calls.load() - before;
    CHECK(status == LINNET_OK);
    CHECK(wrong == LINNET_INVALID_ARGUMENT);
    CHECK(calls == 0);
    linnet_sampler_free(sampler);
    linnet_session_free(session);
    linnet_model_free(model);
  }

  TEST_CASE("C API: an exhausted heap is a status, wherever it happens") {
    const ModelOnDisk file;
    const std::string& path = file.path();
    linnet_error error;
    REQUIRE(Run(path, &error) == LINNET_OK);
    long refused = 0;
    linnet_status status = LINNET_OUT_OF_MEMORY;
    for (long calls = 0; status != LINNET_OK; calls += 1 + calls / 64) {
      g_calls_left = calls;
      status = Run(path, &error);
      g_calls_left = -1;
      if (status == LINNET_OK) break;
      ++refused;
      CAPTURE(calls);
      CAPTURE(std::string(error.message));
      CHECK(status == LINNET_OUT_OF_MEMORY);
      REQUIRE(calls < 1000000);
    }
    CHECK(refused > 50);
    REQUIRE(Run(path, &error) == LINNET_OK);
  }
}

}  // namespace
}  // namespace linnet::testing
