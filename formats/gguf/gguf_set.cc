#include "formats/gguf/gguf_set.h"

#include <cstdio>
#include <utility>

namespace linnet::formats {
namespace {

std::string_view BaseName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// "-00001-of-00004.gguf"
std::string SplitSuffix(uint64_t number, uint64_t count) {
  char text[64];
  std::snprintf(text, sizeof(text), "-%05llu-of-%05llu.gguf", static_cast<unsigned long long>(number),
                static_cast<unsigned long long>(count));
  return text;
}

uint64_t UnsignedOr(const GgufFile& file, std::string_view key, uint64_t fallback) {
  const GgufValue* value = file.Find(key);
  return value == nullptr ? fallback : value->AsUnsigned().value_or(fallback);
}

}  // namespace

Result<GgufSet> GgufSet::FromBytes(std::span<const std::byte> bytes, std::string_view name, Diagnostic* diagnostic) {
  GgufSet set;
  LINNET_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Parse(bytes, name, diagnostic));
  set.files_.push_back(std::move(file));
  return set;
}

Result<GgufSet> GgufSet::Open(const std::string& path, Diagnostic* diagnostic) {
  GgufSet set;
  LINNET_RETURN_IF_ERROR(set.OpenOne(path, diagnostic));
  const uint64_t count = UnsignedOr(set.files_.front(), "split.count", 1);
  if (count > 1) LINNET_RETURN_IF_ERROR(set.OpenOthers(path, count, diagnostic));
  return set;
}

Status GgufSet::OpenOne(const std::string& path, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(FileMapping mapping, FileMapping::Open(path, diagnostic));
  LINNET_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Parse(mapping.bytes(), BaseName(path), diagnostic));
  mappings_.push_back(std::move(mapping));
  files_.push_back(std::move(file));
  return Status::Ok();
}

Status GgufSet::OpenOthers(const std::string& path, uint64_t count, Diagnostic* diagnostic) {
  if (count > kMaxGgufSplits) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a GGUF model has too many parts",
                "%s: split.count is %llu, expected at most %u", name(), static_cast<unsigned long long>(count),
                kMaxGgufSplits);
  }
  const std::string suffix = SplitSuffix(1, count);
  if (path.size() < suffix.size() || path.compare(path.size() - suffix.size(), suffix.size(), suffix) != 0 ||
      UnsignedOr(files_.front(), "split.no", 0) != 0) {
    return Fail(diagnostic, StatusCode::kInvalidArgument, "not the first part of a split GGUF model",
                "%s: a part of a model of %llu files; expected the first one, whose name ends in \"%s\"", name(),
                static_cast<unsigned long long>(count), suffix.c_str());
  }
  const std::string stem = path.substr(0, path.size() - suffix.size());
  for (uint64_t number = 2; number <= count; ++number) {
    LINNET_RETURN_IF_ERROR(OpenOne(stem + SplitSuffix(number, count), diagnostic));
    const GgufFile& part = files_.back();
    if (UnsignedOr(part, "split.count", 1) == count && UnsignedOr(part, "split.no", 0) == number - 1) continue;
    return Fail(diagnostic, StatusCode::kInvalidModel, "a part of a split GGUF model does not fit",
                "%s: expected part %llu of %llu of the model, split.no and split.count say otherwise",
                part.name().c_str(), static_cast<unsigned long long>(number), static_cast<unsigned long long>(count));
  }
  const uint64_t total = UnsignedOr(files_.front(), "split.tensors.count", tensor_count());
  if (total != tensor_count()) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a split GGUF model lacks tensors",
                "%s: split.tensors.count is %llu, found %llu in %llu files", name(),
                static_cast<unsigned long long>(total), static_cast<unsigned long long>(tensor_count()),
                static_cast<unsigned long long>(count));
  }
  return Status::Ok();
}

const GgufTensor* GgufSet::FindTensor(std::string_view tensor_name) const {
  for (const GgufFile& file : files_) {
    if (const GgufTensor* tensor = file.FindTensor(tensor_name)) return tensor;
  }
  return nullptr;
}

size_t GgufSet::tensor_count() const {
  size_t count = 0;
  for (const GgufFile& file : files_) count += file.tensors().size();
  return count;
}

void GgufSet::DropPages(std::span<const std::byte> bytes) const {
  for (const FileMapping& mapping : mappings_) {
    const std::byte* begin = mapping.bytes().data();
    if (bytes.data() < begin || bytes.data() >= begin + mapping.bytes().size()) continue;
    mapping.DropPages(static_cast<uint64_t>(bytes.data() - begin), bytes.size());
  }
}

}  // namespace linnet::formats
