// A session's peak is the plan's figure, on every architecture: counted in the memory itself, since an emulator's own
// memory hides in the process's.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/base/checked.h"
#include "core/session.h"
#include "tests/support/running_model.h"
#include "tests/support/tiny_model.h"

namespace linnet {
namespace {

constexpr size_t kLine = 64;  // the alignment of every buffer

/// `bytes` (rounded up to kLine) that end where a page begins that nobody may touch.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t used = AlignUp(bytes, kLine), whole = AlignUp(used, page);
    size_ = whole + page;
    base_ = static_cast<std::byte*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(static_cast<void*>(base_) != MAP_FAILED);
    REQUIRE(mprotect(base_ + whole, page, PROT_NONE) == 0);
    bytes_ = {base_ + whole - used, used};
    std::memset(bytes_.data(), kUntouched, used);
  }
  ~GuardedMemory() { munmap(base_, size_); }

  std::span<std::byte> bytes() const { return bytes_; }
  size_t TouchedLines() const {
    const std::vector<std::byte> untouched(kLine, std::byte{kUntouched});
    size_t count = 0;
    for (size_t i = 0; i < bytes_.size(); i += kLine) {
      count += std::memcmp(bytes_.data() + i, untouched.data(), kLine) != 0;
    }
    return count;
  }

 private:
  static constexpr unsigned char kUntouched = 0xa5;
  std::byte* base_ = nullptr;
  size_t size_ = 0;
  std::span<std::byte> bytes_;
};

}  // namespace

TEST_SUITE("levels") {
  TEST_CASE("Memory: a run up to the last position uses the plan's bytes and none beyond") {
    for (const DType type : {DType::kF32, DType::kQ8, DType::kQ4}) {
      SUBCASE(DTypeName(type)) {
        const testing::BuiltModel model(
            testing::TinyConfig({.vocab_size = 203, .model_dim = 128, .n_heads = 4, .head_dim = 32, .ffn_dim = 384}),
            testing::BuiltModel::WithType(type));
        const SessionOptions options = {.context_tokens = 256, .chunk_tokens = 32, .n_threads = 1, .logit_rows = 1};
        auto plan = MakePlan(model.view(), options);
        REQUIRE(plan.ok());
        const GuardedMemory memory(plan->memory.session), packed(plan->packed.total_bytes);
        REQUIRE(PackWeights(model.view(), plan->packed, packed.bytes(), {}).ok());
        auto pool = ops::ThreadPool::Create(1);
        REQUIRE(pool.ok());
        auto session =
            Session::Create(model.view(), std::move(plan).value(), packed.bytes(), pool.value(), memory.bytes());
        REQUIRE(session.ok());
        const std::vector<int32_t> ids = testing::SomeIds(256, 203);
        REQUIRE(session->Prefill(std::span(ids).first(200)).ok());
        for (size_t t = 200; t < ids.size(); ++t) REQUIRE(session->Decode(ids[t]).ok());
        CHECK(session->remaining() == 0);
        const size_t lines = memory.bytes().size() / kLine;
        CAPTURE(lines);
        CAPTURE(memory.TouchedLines());
        // Paddings and what a short last chunk leaves alone are the rest.
        CHECK(memory.TouchedLines() * 100 >= lines * 95);
      }
    }
  }
}

}  // namespace linnet
