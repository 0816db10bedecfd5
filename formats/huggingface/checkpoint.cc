#include "formats/huggingface/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/file_mapping.h"
#include "formats/huggingface/config.h"
#include "formats/huggingface/families/families.h"
#include "formats/huggingface/tokenizer_json.h"
#include "formats/huggingface/weight_reader.h"
#include "formats/safetensors/safetensors_set.h"

namespace linnet::formats {
namespace {

constexpr uint64_t kMaxLicenseBytes = uint64_t{1} << 20;  // the longest licences have some 50 KiB
constexpr size_t kMaxDirectoryEntries = 100'000;          // looked at for a licence

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// LICENSE, LICENSE.txt, LICENCE.md, license.txt, ...: the first of the directory's by name; empty: none.
std::string FindLicenseName(const std::string& directory) {
  std::string found;
  std::error_code error;
  std::filesystem::directory_iterator it(directory, error), end;
  for (size_t count = 0; !error && it != end && count < kMaxDirectoryEntries; it.increment(error), ++count) {
    const std::string name = it->path().filename().string();
    std::string start = name.substr(0, 7);
    for (char& c : start) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    std::error_code ignored;
    if ((start != "license" && start != "licence") || !it->is_regular_file(ignored)) continue;
    if (found.empty() || name < found) found = name;
  }
  return found;
}

/// The last folder's name.
std::string NameOf(const std::string& directory) {
  std::filesystem::path path = std::filesystem::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  return name == "." || name == ".." ? "" : name;
}

class HuggingFaceCheckpoint final : public Checkpoint {
 public:
  static Result<std::unique_ptr<Checkpoint>> Open(const std::string& directory, Diagnostic* diagnostic);

  const CheckpointInfo& info() const override { return info_; }
  std::span<const SourceFile> files() const override { return source_files_; }

  SourceType TypeOf(const TensorRequirement& tensor) const override {
    const Result<std::vector<SourcePart>> parts = weights_.Resolve(tensor, 0, nullptr);
    if (!parts.ok() || parts->empty()) return {};
    return parts->front().type();
  }

  uint32_t Q4GridBlock(const TensorRequirement& tensor) const override { return weights_.Q4GridBlock(tensor); }

  Status ReadQ4Grid(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                    const Q4GridRows& out, Diagnostic* diagnostic) const override {
    return weights_.ReadQ4Grid(tensor, group, row_begin, row_count, out, diagnostic);
  }

  Status ReadRows(const TensorRequirement& tensor, uint64_t group, uint64_t row_begin, uint64_t row_count,
                  std::span<float> out, Diagnostic* diagnostic) const override {
    return weights_.ReadRows(tensor, group, row_begin, row_count, out, diagnostic);
  }

  void Release(const TensorRequirement& tensor) const override {
    const uint64_t groups = tensor.rank == 3 ? tensor.dims[0] : 1;
    for (uint64_t group = 0; group < groups; ++group) {
      const Result<std::vector<SourcePart>> parts = weights_.Resolve(tensor, group, nullptr);
      if (!parts.ok()) return;
      for (const SourcePart& part : *parts) {
        part.ForEachTensor([this](const SafetensorsTensor& one) { tensors_.Release(one); });
      }
    }
  }

 private:
  HuggingFaceCheckpoint(CheckpointInfo info, const WeightNames& names, const WeightPacking& packing,
                        SafetensorsSet tensors)
      : info_(std::move(info)), tensors_(std::move(tensors)), weights_(info_.config, names, packing, tensors_) {}

  /// Maps `directory`/`name` where it exists. A file that exists and cannot be opened is an error.
  Result<std::optional<std::string_view>> MapText(const std::string& directory, const char* name,
                                                  Diagnostic* diagnostic) {
    std::error_code ignored;
    const std::string path = directory + "/" + name;
    if (!std::filesystem::exists(path, ignored)) return std::optional<std::string_view>();
    LINNET_ASSIGN_OR_RETURN(FileMapping mapping, FileMapping::Open(path, diagnostic));
    texts_.push_back(std::move(mapping));
    source_files_.push_back({name, texts_.back().bytes()});
    return std::optional<std::string_view>(TextOf(texts_.back().bytes()));
  }

  Status ReadTextFiles(const std::string& directory, std::string_view config_text, Diagnostic* diagnostic);
  Status ReadLicense(const std::string& directory, Diagnostic* diagnostic);

  CheckpointInfo info_;
  SafetensorsSet tensors_;
  WeightReader weights_;
  std::vector<FileMapping> texts_;
  std::vector<SourceFile> source_files_;
};

Result<std::unique_ptr<Checkpoint>> HuggingFaceCheckpoint::Open(const std::string& directory, Diagnostic* diagnostic) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    return Fail(diagnostic, StatusCode::kIoError, "not a directory",
                "%s: expected a directory with a config.json, found none", directory.c_str());
  }
  LINNET_ASSIGN_OR_RETURN(FileMapping config_file, FileMapping::Open(directory + "/config.json", diagnostic));
  const std::string_view config_text = TextOf(config_file.bytes());
  CheckpointInfo info;
  WeightPacking packing;
  LINNET_ASSIGN_OR_RETURN(info.config, ReadHuggingFaceConfig(config_text, diagnostic, StoredWeights::kRead, &packing));
  info.name = NameOf(directory);
  const Family* family = FindFamily(info.config.family);
  LINNET_CHECK(family != nullptr);
  LINNET_ASSIGN_OR_RETURN(SafetensorsSet tensors, SafetensorsSet::Open(directory, diagnostic));

  std::unique_ptr<HuggingFaceCheckpoint> checkpoint(
      new HuggingFaceCheckpoint(std::move(info), *family->names, packing, std::move(tensors)));
  LINNET_RETURN_IF_ERROR(checkpoint->weights_.Open(diagnostic));
  checkpoint->source_files_.push_back({"config.json", config_file.bytes()});
  checkpoint->texts_.push_back(std::move(config_file));
  for (const SafetensorsSet::File& file : checkpoint->tensors_.files()) {
    checkpoint->source_files_.push_back({file.name, file.mapping.bytes(), &file.mapping});
  }
  LINNET_RETURN_IF_ERROR(checkpoint->ReadTextFiles(directory, config_text, diagnostic));
  LINNET_RETURN_IF_ERROR(checkpoint->ReadLicense(directory, diagnostic));
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

Status HuggingFaceCheckpoint::ReadTextFiles(const std::string& directory, std::string_view config_text,
                                            Diagnostic* diagnostic) {
  HuggingFaceFiles files;
  files.config_json = config_text;
  files.vocab_size = info_.config.vocab_size;
  const std::pair<const char*, std::optional<std::string_view>*> optional_files[] = {
      {"generation_config.json", &files.generation_config_json},
      {"tokenizer.json", &files.tokenizer_json},
      {"tokenizer_config.json", &files.tokenizer_config_json},
      {"special_tokens_map.json", &files.special_tokens_map_json},
      {"chat_template.jinja", &files.chat_template_jinja},
      {"tokenizer.model", &files.tokenizer_model},
  };
  for (const auto& [name, target] : optional_files) {
    LINNET_ASSIGN_OR_RETURN(*target, MapText(directory, name, diagnostic));
  }
  return ReadHuggingFaceTokenizer(files, &info_.tokenizer, &info_.chat_template, &info_.generation, diagnostic);
}

Status HuggingFaceCheckpoint::ReadLicense(const std::string& directory, Diagnostic* diagnostic) {
  const std::string name = FindLicenseName(directory);
  if (name.empty()) return Status::Ok();
  LINNET_ASSIGN_OR_RETURN(const FileMapping license, FileMapping::Open(directory + "/" + name, diagnostic));
  if (license.bytes().size() > kMaxLicenseBytes) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a licence file is too long",
                "%s/%s: expected at most %llu bytes, found %zu", directory.c_str(), name.c_str(),
                static_cast<unsigned long long>(kMaxLicenseBytes), license.bytes().size());
  }
  info_.license = std::string(TextOf(license.bytes()));
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> OpenHuggingFaceCheckpoint(const std::string& directory, Diagnostic* diagnostic) {
  return HuggingFaceCheckpoint::Open(directory, diagnostic);
}

}  // namespace linnet::formats
