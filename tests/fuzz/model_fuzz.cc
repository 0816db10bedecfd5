// Model file: the bytes are one file without its weights, the header and then the metadata. The weights are zeros, put
// between them here, so that inputs stay small.
#include "core/plan.h"
#include "formats/linnet/describe.h"
#include "formats/linnet/file_layout.h"
#include "formats/linnet/model_file.h"
#include "tests/fuzz/aligned.h"
#include "tests/fuzz/fuzz.h"

namespace linnet::fuzz {
namespace {

constexpr size_t kMaxWeights = size_t{1} << 20;
constexpr uint32_t kContextTokens = 64;

void Use(const formats::ModelFile& file) {
  for (const TensorView& tensor : file.view().tensors()) {
    Touch(tensor.data);
    Touch(tensor.scales);
  }
  Touch(file.tokenizer_bytes());
  LINNET_CHECK(!formats::DescribeModel(file, {true}).empty());
  LINNET_CHECK(!formats::DescribeModelJson(file).empty());
  Diagnostic diagnostic;
  const Status content = file.CheckContent(&diagnostic);
  if (!content.ok()) CheckRefusal(diagnostic.text());
  SessionOptions options;
  options.context_tokens = kContextTokens;
  const auto plan = MakePlan(file.view(), options);
  if (plan.ok()) LINNET_CHECK(plan->memory.session >= plan->memory.kv_cache);
}

void Run(Input input) {
  const std::span<const std::byte> header = input.TakeBytes(sizeof(formats::FileHeader));
  const std::span<const std::byte> metadata = input.Rest();
  formats::FileHeader fields;
  if (header.size() == sizeof(fields)) std::memcpy(&fields, header.data(), sizeof(fields));
  const size_t begin = std::clamp<uint64_t>(fields.metadata_offset, header.size(), kMaxWeights);
  Aligned bytes(begin + metadata.size());
  bytes.Place(0, header);
  bytes.Place(begin, metadata);
  Diagnostic diagnostic;
  const auto file = formats::ModelFile::FromBytes(bytes.bytes(), &diagnostic);
  if (!file.ok()) return CheckRefusal(diagnostic.text());
  Use(*file);
}

}  // namespace
}  // namespace linnet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  linnet::fuzz::Run({data, size});
  return 0;
}
