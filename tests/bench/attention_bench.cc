// Speed of the attention kernels on one thread, beside what this core can do at most: multiply-adds from registers and
// reads from memory. Prints one line a case: median and spread of the repetitions.
//   attention_bench [part of a case's name [instruction set]]     (an empty name: all cases)
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "hwy/highway.h"
#include "ops/attention.h"
#include "ops/kv_cache.h"

namespace linnet {
namespace {

// The thread's own CPU time: on a machine that is shared, a neighbour's time slices do not count.
double ThreadSeconds() {
  timespec t = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Case {
  const char* name;
  uint32_t n_heads, n_kv_heads, head_dim, value_dim;
  uint32_t first_pos, n_tokens;
  ops::KvType type;
  bool latent;
};

constexpr ops::KvType kF32 = ops::KvType::kF32, kF16 = ops::KvType::kF16, kInt8 = ops::KvType::kInt8;

constexpr Case kCases[] = {
    {"SmolLM2-135M prefill 512", 9, 3, 64, 64, 0, 512, kF32, false},
    {"SmolLM2-135M prefill 512", 9, 3, 64, 64, 0, 512, kF16, false},
    {"SmolLM2-135M prefill 128 at 3968", 9, 3, 64, 64, 3968, 128, kF16, false},
    {"Llama 3.2 1B prefill 512", 32, 8, 64, 64, 0, 512, kF32, false},
    {"Llama 3.2 1B prefill 512", 32, 8, 64, 64, 0, 512, kF16, false},
    {"Gemma 3 270M prefill 512", 4, 1, 256, 256, 0, 512, kF16, false},
    {"DeepSeek-V2-Lite latent prefill 64", 16, 1, 576, 512, 0, 64, kF16, true},
    {"SmolLM2-135M decode at 512", 9, 3, 64, 64, 512, 1, kF32, false},
    {"SmolLM2-135M decode at 512", 9, 3, 64, 64, 512, 1, kF16, false},
    {"SmolLM2-135M decode at 4096", 9, 3, 64, 64, 4096, 1, kF16, false},
    {"SmolLM2-135M decode at 16384", 9, 3, 64, 64, 16384, 1, kF16, false},
    {"Llama 3.2 1B decode at 512", 32, 8, 64, 64, 512, 1, kF16, false},
    {"Llama 3.2 1B decode at 4096", 32, 8, 64, 64, 4096, 1, kF32, false},
    {"Llama 3.2 1B decode at 4096", 32, 8, 64, 64, 4096, 1, kF16, false},
    {"Llama 3.2 1B decode at 4096", 32, 8, 64, 64, 4096, 1, kInt8, false},
    {"Llama 3.2 1B decode at 16384", 32, 8, 64, 64, 16384, 1, kF16, false},
    {"DeepSeek-V2-Lite latent decode at 4096", 16, 1, 576, 512, 4096, 1, kF16, true},
};

struct Spread {
  double median, low, high;  // seconds
};

// Repeats until a fifth of a second or 5 runs have passed, after one run to warm up.
template <class Function>
Spread Measure(const Function& function) {
  function();
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < 5 || (total < 0.2 && seconds.size() < 1000)) {
    const double start = ThreadSeconds();
    function();
    seconds.push_back(ThreadSeconds() - start);
    total += seconds.back();
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds[seconds.size() / 10], seconds[seconds.size() * 9 / 10]};
}

// A model's layers follow each other with caches of their own: a decode step finds none of them in a cache. `copies`
// layers stand for that, so that together they exceed the last-level cache.
constexpr uint64_t kColdBytes = uint64_t{96} << 20;

struct Bench {
  explicit Bench(const Case& c) {
    const uint32_t context = c.first_pos + c.n_tokens;
    layout = ops::MakeKvLayout(
        {c.type, c.n_kv_heads, c.head_dim, c.value_dim, ops::KvCapacity(0, context, c.n_tokens), c.latent});
    copies = c.n_tokens == 1 ? static_cast<size_t>(kColdBytes / layout.bytes + 1) : 1;
    cache = hwy::AllocateAligned<std::byte>(layout.bytes * copies);
    scratch = hwy::AllocateAligned<std::byte>(ops::AttentionThreadScratchBytes(layout));
    partials = hwy::AllocateAligned<std::byte>(ops::AttentionPartialBytes(layout, c.n_heads) + 64);
    q.assign(size_t{c.n_tokens} * c.n_heads * c.head_dim, 0.25f);
    for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 17) / 17 - 0.5f;
    out.resize(size_t{c.n_tokens} * c.n_heads * c.value_dim);
    std::vector<float> k(size_t{context} * c.n_kv_heads * c.head_dim), v(size_t{context} * c.n_kv_heads * c.value_dim);
    for (size_t i = 0; i < k.size(); ++i) k[i] = static_cast<float>(i % 13) / 13 - 0.5f;
    for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 11) / 11 - 0.5f;
    store = {&layout, cache.get(), 0, context, k.data(), k.size() / context, v.data(), v.size() / context};
    ops::StoreKv(store);
    for (size_t i = 1; i < copies; ++i) std::memcpy(cache.get() + i * layout.bytes, cache.get(), layout.bytes);
    args = {&layout,
            cache.get(),
            c.n_heads,
            c.first_pos,
            c.n_tokens,
            q.data(),
            size_t{c.n_heads} * c.head_dim,
            c.head_dim,
            out.data(),
            size_t{c.n_heads} * c.value_dim,
            c.value_dim,
            {}};
    args.options.score_scale = 0.125f;
  }

  void Run() {
    args.cache = cache.get() + next * layout.bytes;
    next = (next + 1) % copies;
    for (size_t i = 0; i < ops::AttentionTaskCount(args); ++i) {
      ops::RunAttentionTask(args, i, scratch.get(), partials.get());
    }
    for (size_t i = 0; i < ops::AttentionMergeTaskCount(args); ++i) {
      ops::RunAttentionMergeTask(args, i, partials.get());
    }
  }

  ops::KvLayout layout;
  size_t copies = 1, next = 0;
  hwy::AlignedFreeUniquePtr<std::byte[]> cache, scratch, partials;
  std::vector<float> q, out;
  ops::KvStoreArgs store;
  ops::AttentionArgs args;
};

double ReadBandwidth() {
  const size_t words = size_t{128} << 17;  // 128 MiB of uint64_t
  std::vector<uint64_t> memory(words, 3);
  volatile uint64_t sink = 0;
  const Spread s = Measure([&] {
    uint64_t sums[8] = {};
    for (size_t i = 0; i < words; i += 8) {
      for (size_t j = 0; j < 8; ++j) sums[j] += memory[i + j];
    }
    for (const uint64_t sum : sums) sink = sink + sum;
  });
  return static_cast<double>(words) * 8 / s.low;
}

}  // namespace

// attention_bench_peak.cc
double PeakFlops();
const char* PeakTarget();

// Masks instruction sets down to the named one ("AVX2"); all where null.
bool SelectTarget(const char* name) {
  if (name == nullptr) return true;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (std::strcmp(hwy::TargetName(target), name) != 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    return true;
  }
  std::fprintf(stderr, "instruction set %s: not compiled in, or not supported here\n", name);
  return false;
}

void RunBench(const char* filter) {
  const double peak = PeakFlops(), bandwidth = ReadBandwidth();
  std::printf("%s, one thread: peak %.1f GFLOP/s, read bandwidth %.1f GB/s\n", PeakTarget(), peak / 1e9,
              bandwidth / 1e9);
  for (const Case& c : kCases) {
    if (filter != nullptr && std::strstr(c.name, filter) == nullptr) continue;
    Bench bench(c);
    const Spread s = Measure([&] { bench.Run(); });
    const ops::AttentionCost cost = ops::ComputeAttentionCost(bench.args);
    const double flops = static_cast<double>(cost.flops) / s.median;
    const double bytes = static_cast<double>(cost.cache_bytes) / s.median;
    std::printf("%-40s %-4s %9.1f us (%.1f to %.1f)  %6.1f GFLOP/s %3.0f %%  %5.1f GB/s %3.0f %%\n", c.name,
                ops::KvTypeName(c.type), s.median * 1e6, s.low * 1e6, s.high * 1e6, flops / 1e9, 100 * flops / peak,
                bytes / 1e9, 100 * bytes / bandwidth);
  }
}

}  // namespace linnet

int main(int argc, char** argv) {
  if (!linnet::SelectTarget(argc > 2 ? argv[2] : nullptr)) return 1;
  linnet::RunBench(argc > 1 ? argv[1] : nullptr);
  return 0;
}
