// A tiny model made, opened, packed and ready to run, in one line of a test.
#ifndef LINNET_TESTS_SUPPORT_RUNNING_MODEL_H_
#define LINNET_TESTS_SUPPORT_RUNNING_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/model_config.h"
#include "core/session.h"
#include "formats/convert/convert.h"
#include "formats/linnet/model_file.h"
#include "ops/thread_pool.h"
#include "tests/support/reference_model.h"

namespace linnet::testing {

/// A model file of random weights for a description. Throws (fails the test) where a step fails.
class BuiltModel {
 public:
  explicit BuiltModel(const ModelConfig& config, const formats::ConvertOptions& options = WithType(DType::kF32),
                      uint64_t seed = 1);
  ~BuiltModel();

  static formats::ConvertOptions WithType(DType type) {
    formats::ConvertOptions options;
    options.weights = options.embedding = options.head = type;
    return options;
  }
  const ModelView& view() const { return view_; }

 private:
  std::unique_ptr<formats::ModelFile> file_;
  ModelView view_;
};

/// A session over a model, with its packed weights in memory and a pool of its own.
class RunningModel {
 public:
  RunningModel(const ModelView& model, const SessionOptions& options);

  Session& session() { return *session_; }
  const Plan& plan() const { return session_->plan(); }
  /// Logits of every position, [ids, vocab_size]: one Prefill of a fresh sequence.
  std::vector<float> AllLogits(std::span<const int32_t> ids);

 private:
  struct Aligned {
    explicit Aligned(size_t bytes);
    ~Aligned();
    std::span<std::byte> bytes;
  };

  ops::ThreadPool pool_;
  std::unique_ptr<Aligned> packed_;
  std::unique_ptr<Session> session_;
  size_t vocab_size_;
};

/// The model's weights as the reference takes them, dequantized.
ReferenceWeights WeightsOf(const ModelView& model);

/// Deterministic ids below vocab_size.
std::vector<int32_t> SomeIds(size_t count, uint32_t vocab_size, uint64_t seed = 7);

}  // namespace linnet::testing

#endif  // LINNET_TESTS_SUPPORT_RUNNING_MODEL_H_
