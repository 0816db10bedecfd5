// The memory contract over every family: what the plan says beforehand against what a session then takes.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/packed_weights.h"
#include "core/session.h"
#include "ops/thread_pool.h"
#include "ops/xnn_linear.h"
#include "tests/golden/golden.h"
#include "tests/support/heap_counter.h"
#include "tests/support/running_model.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

struct alignas(64) Line {
  std::byte bytes[64];
};

// Memory of exactly `bytes`, with lines before and behind it that nobody may write.
class Fenced {
 public:
  explicit Fenced(uint64_t bytes) : lines_((bytes + 63) / 64 + 2), bytes_(bytes) {
    std::fill_n(lines_.front().bytes, sizeof(Line), kFence);
    std::fill_n(lines_.back().bytes, sizeof(Line), kFence);
  }
  std::span<std::byte> bytes() { return {lines_[1].bytes, bytes_}; }
  bool whole() const {
    const auto is_fence = [](std::byte b) { return b == kFence; };
    return std::all_of(lines_.front().bytes, lines_.front().bytes + sizeof(Line), is_fence) &&
           std::all_of(lines_.back().bytes, lines_.back().bytes + sizeof(Line), is_fence);
  }

 private:
  static constexpr std::byte kFence{0xa5};
  std::vector<Line> lines_;
  uint64_t bytes_;
};

// Fills the whole context: a prompt in uneven parts with the logits of every position, then one by one.
bool FillContext(Session& session, std::span<const int32_t> ids) {
  const LogitsSink sink = {.function = [](void*, uint32_t, const float*, uint32_t) {}, .context = nullptr};
  bool good = session.Prefill(ids.first(1)).ok() && session.Prefill(ids.subspan(1, 39), {}, sink).ok();
  for (const int32_t id : ids.subspan(40)) good = session.Decode(id).ok() && good;
  return good && session.remaining() == 0;
}

void CheckContract(const ModelView& model, const SessionOptions& options) {
  const auto plan = MakePlan(model, options);
  REQUIRE(plan.ok());
  const MemoryPlan& memory = plan->memory;
  Fenced packed(memory.packed_weights), arena(memory.session);
  REQUIRE(PackWeights(model, plan->packed, packed.bytes(), {}).ok());
  auto pool = ops::ThreadPool::Create(plan->options.n_threads);
  REQUIRE(pool.ok());
  const std::vector<int32_t> ids = testing::SomeIds(plan->options.context_tokens, model.config().vocab_size);

  // One byte less is refused: all of it is needed, by the same layout that placed it.
  const auto smaller = arena.bytes().first(memory.session - 1);
  CHECK(Session::Create(model, *plan, packed.bytes(), *pool, smaller).status().code() == StatusCode::kOutOfMemory);

  const int64_t before = testing::HeapBytes();
  auto session = Session::Create(model, *plan, packed.bytes(), *pool, arena.bytes());
  REQUIRE(session.ok());
  const int64_t heap = testing::HeapBytes() - before;
  const int64_t calls = testing::MemoryCalls();
  const bool filled = FillContext(*session, ids);
  CHECK(testing::MemoryCalls() == calls);
  REQUIRE(filled);
  CHECK(arena.whole());
  CHECK(packed.whole());
  if (!testing::HeapIsCounted()) return;
  // The session's own few blocks are not in the plan; an allocator rounds each of the tables' up. XNNPACK itself and
  // the pool were there before.
  const auto planned = static_cast<int64_t>(memory.operators - ops::kLinearRuntimeBytes + memory.tables);
  CHECK(heap <= planned + 4096);
  CHECK(heap >= planned / 2);
}

}  // namespace

TEST_SUITE("golden") {
  TEST_CASE("Goldens: every family's session takes what was planned, to the byte") {
    for (const fs::path& folder : testing::AllGoldens()) {
      const std::string name = folder.filename().string();
      SUBCASE(name.c_str()) {
        for (const DType type : {DType::kF32, DType::kQ8, DType::kQ4}) {
          CAPTURE(std::string(DTypeName(type)));
          const formats::ModelFile file = testing::ConvertGolden(folder, false, type);
          CheckContract(file.view(), {.context_tokens = 64, .chunk_tokens = 16, .n_threads = 3, .logit_rows = 5});
          CheckContract(file.view(), {.context_tokens = 64, .kv = SessionOptions::Kv::kInt8});
        }
      }
    }
  }
}

}  // namespace linnet
