#include "tests/support/running_model.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>

#include "core/packed_weights.h"
#include "tests/support/tiny_model.h"

namespace linnet::testing {
namespace {

void Require(const Status& status, const char* what, const Diagnostic& diagnostic = {}) {
  if (!status.ok()) throw std::runtime_error(std::string(what) + ": " + status.message() + ": " + diagnostic.text());
}

std::string TemporaryPath() {
  static std::atomic<int> count = 0;
  return (std::filesystem::temp_directory_path() /
          ("linnet_test_" + std::to_string(getpid()) + "_" + std::to_string(count++) + ".linnet"))
      .string();
}

ops::ThreadPool MakePool(uint32_t n_threads) {
  auto pool = ops::ThreadPool::Create(n_threads);
  Require(pool.status(), "thread pool");
  return std::move(pool).value();
}

}  // namespace

BuiltModel::BuiltModel(const ModelConfig& config, const formats::ConvertOptions& options, uint64_t seed) {
  const std::string path = TemporaryPath();
  Diagnostic diagnostic;
  formats::ConvertReport report;
  Require(formats::Convert(TinyCheckpoint(config, seed), options, path, {}, &report, &diagnostic), "convert",
          diagnostic);
  auto file = formats::ModelFile::Open(path, &diagnostic);
  std::filesystem::remove(path);  // the mapping stays
  Require(file.status(), "open", diagnostic);
  file_ = std::make_unique<formats::ModelFile>(std::move(file).value());
  view_ = file_->view();
}

BuiltModel::~BuiltModel() = default;

RunningModel::Aligned::Aligned(size_t size)
    : bytes(static_cast<std::byte*>(::operator new(size, std::align_val_t{64})), size) {}
RunningModel::Aligned::~Aligned() { ::operator delete(bytes.data(), std::align_val_t{64}); }

RunningModel::RunningModel(const ModelView& model, const SessionOptions& options)
    : pool_(MakePool(options.n_threads)), vocab_size_(model.config().vocab_size) {
  auto plan = MakePlan(model, options);
  Require(plan.status(), "plan");
  packed_ = std::make_unique<Aligned>(plan->packed.total_bytes);
  Require(PackWeights(model, plan->packed, packed_->bytes, {}), "pack");
  auto session = Session::Create(model, std::move(plan).value(), packed_->bytes, pool_);
  Require(session.status(), "session");
  session_ = std::make_unique<Session>(std::move(session).value());
}

std::vector<float> RunningModel::AllLogits(std::span<const int32_t> ids) {
  std::vector<float> all(ids.size() * vocab_size_);
  struct Context {
    std::vector<float>* all;
    size_t vocab_size;
  } context = {&all, vocab_size_};
  const LogitsSink sink = {.function =
                               [](void* opaque, uint32_t first_pos, const float* logits, uint32_t n_rows) {
                                 const auto* c = static_cast<Context*>(opaque);
                                 std::copy(logits, logits + n_rows * c->vocab_size,
                                           c->all->data() + first_pos * c->vocab_size);
                               },
                           .context = &context,
                           .from_pos = 0};
  Require(session_->Rewind(0), "rewind");
  Require(session_->Prefill(ids, {}, sink), "prefill");
  return all;
}

ReferenceWeights WeightsOf(const ModelView& model) {
  ReferenceWeights weights;
  for (const TensorView& tensor : model.tensors()) weights[{tensor.role, tensor.layer}] = DequantizeTensor(tensor);
  return weights;
}

std::vector<int32_t> SomeIds(size_t count, uint32_t vocab_size, uint64_t seed) {
  std::vector<int32_t> ids(count);
  uint64_t state = seed;
  for (int32_t& id : ids) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    id = static_cast<int32_t>((state >> 33) % vocab_size);
  }
  return ids;
}

}  // namespace linnet::testing
