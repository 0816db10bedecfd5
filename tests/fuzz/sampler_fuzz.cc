// Sampler: options, tokens seen, and logits, all of any bits.
#include <cmath>
#include <vector>

#include "core/sampler.h"
#include "tests/fuzz/fuzz.h"

namespace linnet::fuzz {
namespace {

constexpr size_t kMaxScratchBytes = size_t{1} << 20;  // a window of the largest size would take a second to clear
constexpr size_t kMaxVocab = 4096;
constexpr int kDraws = 3;

SamplerOptions TakeOptions(Input& input) {
  SamplerOptions options;
  options.temperature = input.Take<float>();
  options.top_k = input.Take<int32_t>();
  options.top_p = input.Take<float>();
  options.min_p = input.Take<float>();
  options.repetition_penalty = input.Take<float>();
  options.penalty_window = input.Take<uint32_t>();
  options.seed = input.Take<uint64_t>();
  return options;
}

std::vector<float> TakeLogits(const Input& input) {
  const std::span<const std::byte> bytes = input.Rest();
  std::vector<float> logits(std::min(bytes.size() / sizeof(float), kMaxVocab));
  if (!logits.empty()) std::memcpy(logits.data(), bytes.data(), logits.size() * sizeof(float));
  return logits;
}

struct Drawn {
  StatusCode code = StatusCode::kOk;
  int32_t id = -1;
  bool operator==(const Drawn&) const = default;
};

std::vector<Drawn> Draw(Sampler& sampler, std::span<const int32_t> seen, std::span<const float> logits) {
  sampler.Reset();
  sampler.Accept(seen);
  std::vector<Drawn> drawn;
  for (int i = 0; i < kDraws; ++i) {
    const auto id = sampler.Sample(logits);
    drawn.push_back(id.ok() ? Drawn{StatusCode::kOk, *id} : Drawn{id.status().code(), -1});
    if (!id.ok()) continue;
    LINNET_CHECK(*id >= 0 && static_cast<size_t>(*id) < logits.size());
    LINNET_CHECK(logits[static_cast<size_t>(*id)] > -INFINITY);
    sampler.Accept(*id);
  }
  return drawn;
}

void Run(Input input) {
  const SamplerOptions options = TakeOptions(input);
  std::vector<int32_t> seen(input.TakeBelow(32));
  for (int32_t& id : seen) id = input.Take<int16_t>();
  const std::vector<float> logits = TakeLogits(input);
  const size_t scratch_bytes = Sampler::ScratchBytes(options, logits.size());
  if (scratch_bytes > kMaxScratchBytes) return;
  std::vector<uint64_t> scratch((scratch_bytes + 7) / 8);
  auto sampler = Sampler::Create(options, logits.size(), std::as_writable_bytes(std::span(scratch)));
  if (!sampler.ok()) return LINNET_CHECK(sampler.status().code() == StatusCode::kInvalidArgument);
  const std::vector<float> before = logits;
  const std::vector<Drawn> first = Draw(*sampler, seen, logits);
  LINNET_CHECK(first == Draw(*sampler, seen, logits));
  LINNET_CHECK(std::memcmp(before.data(), logits.data(), logits.size() * sizeof(float)) == 0);
  const bool bad = std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x) || x == INFINITY; });
  if (bad) LINNET_CHECK(first[0].code == StatusCode::kInvalidModel);
}

}  // namespace
}  // namespace linnet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  linnet::fuzz::Run({data, size});
  return 0;
}
