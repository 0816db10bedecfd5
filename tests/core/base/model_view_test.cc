#include "core/base/model_view.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "core/base/diagnostic.h"
#include "tests/support/small_config.h"

namespace linnet {
namespace {

using linnet::testing::SmallConfig;
using linnet::testing::SmallLatentConfig;
using linnet::testing::SmallMixtureConfig;

struct Free {
  void operator()(void* pointer) const { std::free(pointer); }
};

/// One aligned block that every tensor's bytes view into: ValidateTensors looks at sizes and places, not at values.
class Memory {
 public:
  static constexpr size_t kBytes = size_t{1} << 20;
  std::span<const std::byte> Take(size_t bytes) const { return {static_cast<const std::byte*>(block_.get()), bytes}; }

 private:
  std::unique_ptr<void, Free> block_{std::aligned_alloc(64, kBytes)};
};

TensorView ViewOf(const TensorRequirement& required, DType dtype, uint32_t block_size, const Memory& memory) {
  TensorView view;
  view.role = required.role;
  view.layer = required.layer;
  view.rank = required.rank;
  view.dims = required.dims;
  view.dtype = required.must_be_f32 ? DType::kF32 : dtype;
  view.block_size = view.dtype == DType::kQ4 ? block_size : 0;
  const auto bytes = ComputeTensorBytes(view.dtype, std::span(view.dims).first(view.rank), view.block_size);
  REQUIRE(bytes.ok());
  view.data = memory.Take(bytes->data);
  if (bytes->scales > 0) view.scales = memory.Take(bytes->scales);
  return view;
}

std::vector<TensorView> AllViews(const ModelConfig& config, DType dtype, const Memory& memory) {
  std::vector<TensorView> views;
  for (const TensorRequirement& required : RequiredTensors(config))
    views.push_back(ViewOf(required, dtype, 32, memory));
  return views;
}

std::vector<std::string> NamesOf(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const TensorRequirement& required : RequiredTensors(config)) {
    names.push_back(std::to_string(required.layer) + " " + TensorRoleName(required.role));
  }
  return names;
}

TEST_SUITE("core/base") {
  TEST_CASE("TensorRoleName: every role has a name of its own") {
    std::set<std::string> names;
    int known = 0;
    for (int value = 0; value < 256; ++value) {
      const auto role = static_cast<TensorRole>(value);
      if (!IsKnownTensorRole(static_cast<uint8_t>(value))) {
        CHECK(std::string(TensorRoleName(role)) == "?");
        CHECK_FALSE(IsLinearRole(role));
        continue;
      }
      ++known;
      names.insert(TensorRoleName(role));
    }
    CHECK(known == 46);  // the enumerators of TensorRole
    CHECK(names.size() == static_cast<size_t>(known));
  }

  TEST_CASE("ComputeTensorBytes: data and scales of every type") {
    const uint64_t dims[] = {2, 6, 64};
    const auto bytes = [&](DType dtype, uint32_t block) {
      const auto result = ComputeTensorBytes(dtype, dims, block);
      REQUIRE(result.ok());
      return std::pair(result->data, result->scales);
    };
    CHECK(bytes(DType::kF32, 0) == std::pair<uint64_t, uint64_t>(3072, 0));
    CHECK(bytes(DType::kBF16, 0) == std::pair<uint64_t, uint64_t>(1536, 0));
    CHECK(bytes(DType::kQ8, 0) == std::pair<uint64_t, uint64_t>(768, 48));   // 12 rows
    CHECK(bytes(DType::kQ4, 32) == std::pair<uint64_t, uint64_t>(384, 48));  // 24 blocks
    CHECK_FALSE(ComputeTensorBytes(DType::kQ4, dims, 16).ok());
    CHECK_FALSE(ComputeTensorBytes(DType::kQ4, dims, 128).ok());  // does not divide 64
    CHECK_FALSE(ComputeTensorBytes(DType::kQ8, std::span(dims).first(1), 0).ok());
    CHECK_FALSE(ComputeTensorBytes(DType::kF32, {}, 0).ok());
    const uint64_t huge[] = {uint64_t{1} << 40, uint64_t{1} << 40};
    CHECK_FALSE(ComputeTensorBytes(DType::kF32, huge, 0).ok());
    CHECK_FALSE(ComputeTensorBytes(DType::kQ8, huge, 0).ok());
  }

  TEST_CASE("RequiredTensors: order of execution, layer after layer") {
    const std::vector<std::string> expected = {"-1 embedding.token", "0 attention_norm.gain", "0 attention.qkv",
                                               "0 attention.out",    "0 ffn_norm.gain",       "0 ffn.up",
                                               "0 ffn.down",         "1 attention_norm.gain", "1 attention.qkv",
                                               "1 attention.out",    "1 ffn_norm.gain",       "1 ffn.up",
                                               "1 ffn.down",         "-1 final_norm.gain",    "-1 head"};
    CHECK(NamesOf(SmallConfig()) == expected);
    ModelConfig tied = SmallConfig();
    tied.tied_head = true;
    CHECK(NamesOf(tied).back() == "-1 final_norm.gain");
  }

  TEST_CASE("RequiredTensors: norms follow their placement") {
    ModelConfig config = SmallConfig();
    config.n_layers = 1;
    config.layer_block.resize(1);
    BlockSpec& block = config.blocks[0];
    block.norm = {NormKind::kLayerNorm, 1e-5f, true, false, true};
    const auto norms = [&config] {
      std::string order;
      for (const std::string& name : NamesOf(config)) {
        if (name.starts_with("0 ")) order += name.substr(2) + " ";
      }
      return order;
    };
    block.placement = NormPlacement::kSubLayerOutput;
    CHECK(norms() ==
          "attention.qkv attention.out attention_norm.gain attention_norm.bias ffn.up ffn.down "
          "ffn_norm.gain ffn_norm.bias ");
    block.placement = NormPlacement::kBothSides;
    CHECK(norms() ==
          "attention_norm.gain attention_norm.bias attention.qkv attention.out attention_post_norm.gain "
          "attention_post_norm.bias ffn_norm.gain ffn_norm.bias ffn.up ffn.down ffn_post_norm.gain "
          "ffn_post_norm.bias ");
    block.placement = NormPlacement::kPre;
    block.parallel = block.parallel_shared_norm = true;
    CHECK(norms() == "attention_norm.gain attention_norm.bias attention.qkv attention.out ffn.up ffn.down ");
  }

  TEST_CASE("RequiredTensors: shapes of mixtures and of latent attention") {
    for (const TensorRequirement& tensor : RequiredTensors(SmallMixtureConfig())) {
      if (tensor.role == TensorRole::kExpertUp) CHECK(tensor.dims == std::array<uint64_t, 3>{8, 64, 64});
      if (tensor.role == TensorRole::kExpertDown) CHECK(tensor.dims == std::array<uint64_t, 3>{8, 64, 32});
      if (tensor.role == TensorRole::kRouter) CHECK((tensor.dims[0] == 8 && tensor.must_be_f32));
      if (tensor.role == TensorRole::kSharedGate) CHECK((tensor.dims[0] == 1 && tensor.dims[1] == 64));
    }
    for (const TensorRequirement& tensor : RequiredTensors(SmallLatentConfig())) {
      if (tensor.role == TensorRole::kLatentIn) CHECK(tensor.dims[0] == 32 + 48 + 16);
      if (tensor.role == TensorRole::kLatentQ) CHECK((tensor.dims[0] == 128 && tensor.dims[1] == 32));
      if (tensor.role == TensorRole::kLatentKeyUp) CHECK(tensor.dims == std::array<uint64_t, 3>{4, 48, 16});
      if (tensor.role == TensorRole::kLatentValueUp) CHECK(tensor.dims == std::array<uint64_t, 3>{4, 24, 48});
      if (tensor.role == TensorRole::kAttentionOut) CHECK(tensor.dims[1] == 96);
    }
  }

  TEST_CASE("ModelView::Find: by role and layer") {
    const Memory memory;
    const ModelConfig config = SmallConfig();
    const auto views = AllViews(config, DType::kF32, memory);
    const ModelView view(&config, views);
    REQUIRE(view.Find(TensorRole::kQkv, 1) != nullptr);
    CHECK(view.Find(TensorRole::kQkv, 1)->layer == 1);
    CHECK(view.Find(TensorRole::kHead) != nullptr);
    CHECK(view.Find(TensorRole::kSinks, 0) == nullptr);
    CHECK(view.Find(TensorRole::kQkv, 2) == nullptr);
  }

  TEST_CASE("ValidateTensors: whole models of every type are accepted") {
    const Memory memory;
    for (const ModelConfig& config : {SmallConfig(), SmallMixtureConfig()}) {
      for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
        CAPTURE(dtype);
        Diagnostic diagnostic;
        const Status status = ValidateTensors(config, AllViews(config, static_cast<DType>(dtype), memory), &diagnostic);
        CHECK_MESSAGE(status.ok(), std::string(diagnostic.text()));
      }
    }
  }

  TEST_CASE("ValidateTensors: what does not match is refused with the tensor's name") {
    const Memory memory;
    const ModelConfig config = SmallConfig();
    const std::vector<TensorView> good = AllViews(config, DType::kQ4, memory);
    const size_t qkv = 2, norm = 1, embedding = 0;
    REQUIRE(good[qkv].role == TensorRole::kQkv);
    const auto refused = [&](size_t index, const std::function<void(TensorView&)>& change) {
      std::vector<TensorView> views = good;
      change(views[index]);
      Diagnostic diagnostic;
      const Status status = ValidateTensors(config, views, &diagnostic);
      CHECK_FALSE(status.ok());
      const std::string text = diagnostic.text();
      CAPTURE(text);
      CHECK(text.find(TensorRoleName(good[index].role)) != std::string::npos);
    };
    refused(qkv, [](TensorView& t) { t.dims[0] += 1; });
    refused(qkv, [](TensorView& t) { t.rank = 3; });
    refused(qkv, [](TensorView& t) { t.layer = 7; });
    refused(qkv, [](TensorView& t) { t.data = t.data.first(t.data.size() - 1); });
    refused(qkv, [](TensorView& t) { t.scales = {}; });
    refused(qkv, [](TensorView& t) { t.block_size = 16; });
    refused(qkv, [](TensorView& t) { t.block_size = 64; });  // other scales than there are
    refused(qkv, [](TensorView& t) { t.rotation_block = 48; });
    refused(qkv, [](TensorView& t) { t.rotation_block = 128; });
    refused(qkv, [&](TensorView& t) { t.data = std::span(t.data.data() + 4, t.data.size()); });
    refused(qkv, [](TensorView& t) { t.dtype = static_cast<DType>(9); });
    refused(qkv, [](TensorView& t) { t.role = TensorRole::kSinks; });
    refused(norm, [](TensorView& t) { t.dtype = DType::kF16; });
    refused(norm, [](TensorView& t) { t.rotation_block = 64; });
    refused(embedding, [](TensorView& t) { t.layer = 0; });
    std::vector<TensorView> rotated = good;
    rotated[qkv].rotation_block = 64;
    CHECK(ValidateTensors(config, rotated, nullptr).ok());
  }

  TEST_CASE("ValidateTensors: missing, repeated and further tensors are refused") {
    const Memory memory;
    const ModelConfig config = SmallConfig();
    const std::vector<TensorView> good = AllViews(config, DType::kF32, memory);
    for (size_t i = 0; i < good.size(); ++i) {
      CAPTURE(i);
      std::vector<TensorView> views = good;
      views.erase(views.begin() + static_cast<ptrdiff_t>(i));
      CHECK_FALSE(ValidateTensors(config, views, nullptr).ok());
      views = good;
      views.push_back(good[i]);
      CHECK_FALSE(ValidateTensors(config, views, nullptr).ok());
    }
    std::vector<TensorView> more = good;
    more.push_back(good[1]);
    more.back().role = TensorRole::kAttentionNormBias;
    CHECK_FALSE(ValidateTensors(config, more, nullptr).ok());
    more.back().role = static_cast<TensorRole>(200);
    CHECK_FALSE(ValidateTensors(config, more, nullptr).ok());
    std::vector<TensorView> shuffled(good.rbegin(), good.rend());
    CHECK(ValidateTensors(config, shuffled, nullptr).ok());  // order does not matter
  }
}

}  // namespace
}  // namespace linnet
