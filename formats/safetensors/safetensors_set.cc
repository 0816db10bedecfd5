#include "formats/safetensors/safetensors_set.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace linnet::formats {
namespace {

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr size_t kMaxFileNameBytes = 255;

/// A plain file name: no folder, no way up, nothing that some system reads as a path.
bool IsPlainFileName(std::string_view name) {
  if (name.empty() || name.size() > kMaxFileNameBytes || name == "." || name == "..") return false;
  return name.find_first_of(std::string_view("/\\:\0", 4)) == std::string_view::npos;
}

/// Which shard each tensor is promised in.
using WeightMap = std::map<std::string, std::string>;

/// Builds the weight map while reading; only the top object's "weight_map" is kept, whatever else is skipped.
class IndexHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  WeightMap& weight_map() { return weight_map_; }
  const std::string& error() const { return error_; }
  bool has_weight_map() const { return has_weight_map_; }

  bool start_object(size_t) override {
    if (depth_ == 1 && top_key_ == "weight_map") has_weight_map_ = true;
    return Open();
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return depth_ == 0 ? Reject("expected an object") : Open(); }
  bool end_array() override { return Close(); }
  bool key(string_t& key) override {
    if (depth_ == 1) top_key_ = key;
    if (depth_ == 2) tensor_ = key;
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ != 2 || top_key_ != "weight_map") return NotInMap();
    if (weight_map_.size() >= kMaxSafetensorsTensors) return Reject("too many tensors");
    if (!weight_map_.emplace(tensor_, value).second) return Reject("tensor " + tensor_ + " occurs twice");
    return true;
  }
  bool null() override { return NotInMap(); }
  bool boolean(bool) override { return NotInMap(); }
  bool number_integer(number_integer_t) override { return NotInMap(); }
  bool number_unsigned(number_unsigned_t) override { return NotInMap(); }
  bool number_float(number_float_t, const string_t&) override { return NotInMap(); }
  bool binary(binary_t&) override { return NotInMap(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    return Reject("no valid JSON at byte " + std::to_string(position));
  }

 private:
  static constexpr int kMaxDepth = 16;  // metadata may hold anything; nothing deeper is published

  bool Open() { return ++depth_ <= kMaxDepth ? (depth_ <= 2 || NotInMap()) : Reject("too deeply nested"); }
  bool Close() {
    --depth_;
    return true;
  }
  bool NotInMap() {
    if (depth_ == 0) return Reject("expected an object");
    if (top_key_ != "weight_map") return true;
    return Reject("weight_map: tensor " + tensor_ + " has no file name");
  }
  bool Reject(std::string error) {
    if (error_.empty()) error_ = std::move(error);
    return false;
  }

  int depth_ = 0;
  bool has_weight_map_ = false;
  std::string top_key_, tensor_, error_;
  WeightMap weight_map_;
};

Result<WeightMap> ParseIndex(std::span<const std::byte> bytes, Diagnostic* diagnostic) {
  if (bytes.size() > kMaxSafetensorsIndexBytes) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a safetensors index is too long",
                "%s: expected at most %llu bytes, found %zu", kIndexName,
                static_cast<unsigned long long>(kMaxSafetensorsIndexBytes), bytes.size());
  }
  IndexHandler handler;
  const char* const text = reinterpret_cast<const char*>(bytes.data());
  const bool parsed = nlohmann::json::sax_parse(text, text + bytes.size(), &handler);
  if (!parsed || !handler.has_weight_map()) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a malformed safetensors index", "%s: malformed: %s", kIndexName,
                !handler.error().empty() ? handler.error().c_str() : "no object \"weight_map\"");
  }
  for (const auto& [tensor, file] : handler.weight_map()) {
    if (IsPlainFileName(file)) continue;
    return Fail(diagnostic, StatusCode::kInvalidModel, "an index names a file outside its directory",
                "%s: tensor %s: expected the name of a file in this directory, found \"%s\"", kIndexName,
                tensor.c_str(), file.c_str());
  }
  return std::move(handler.weight_map());
}

}  // namespace

Result<SafetensorsSet> SafetensorsSet::Open(const std::string& directory, Diagnostic* diagnostic) {
  SafetensorsSet set;
  Diagnostic single_reason, index_reason;
  Result<FileMapping> single = FileMapping::Open(directory + "/" + kSingleName, &single_reason);
  if (single.ok()) {
    LINNET_RETURN_IF_ERROR(set.AddFile(kSingleName, std::move(single).value(), diagnostic));
  } else {
    Result<FileMapping> index = FileMapping::Open(directory + "/" + kIndexName, &index_reason);
    if (!index.ok()) {
      return Fail(diagnostic, StatusCode::kIoError, "no safetensors weights",
                  "%s: expected %s or %s, found neither (%s)", directory.c_str(), kSingleName, kIndexName,
                  single_reason.text());
    }
    LINNET_RETURN_IF_ERROR(set.AddShards(directory, std::move(index).value(), diagnostic));
  }
  LINNET_RETURN_IF_ERROR(set.IndexNames(diagnostic));
  return set;
}

Status SafetensorsSet::AddFile(const std::string& name, FileMapping mapping, Diagnostic* diagnostic) {
  files_.push_back({name, std::move(mapping)});
  const File& file = files_.back();
  LINNET_ASSIGN_OR_RETURN(std::vector<SafetensorsTensor> tensors,
                          ParseSafetensors(file.mapping.bytes(), file.name, diagnostic));
  for (SafetensorsTensor& tensor : tensors) {
    tensors_.push_back(std::move(tensor));
    file_of_tensor_.push_back(files_.size() - 1);
  }
  return Status::Ok();
}

Status SafetensorsSet::AddShards(const std::string& directory, FileMapping index, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const WeightMap weight_map, ParseIndex(index.bytes(), diagnostic));
  std::set<std::string> shards;
  for (const auto& [tensor, file] : weight_map) shards.insert(file);
  if (shards.size() > kMaxSafetensorsShards) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "an index names too many files",
                "%s: expected at most %zu files, found %zu", kIndexName, kMaxSafetensorsShards, shards.size());
  }
  for (const std::string& shard : shards) {
    Diagnostic reason;
    Result<FileMapping> mapping = FileMapping::Open(directory + "/" + shard, &reason);
    if (!mapping.ok()) {
      return Fail(diagnostic, mapping.status().code(), "a shard cannot be opened", "%s names the file %s: %s",
                  kIndexName, shard.c_str(), reason.text());
    }
    LINNET_RETURN_IF_ERROR(AddFile(shard, std::move(mapping).value(), diagnostic));
  }
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
  for (const auto& [tensor, file] : weight_map) {
    const auto it = by_name_.find(tensor);
    if (it != by_name_.end() && files_[file_of_tensor_[it->second]].name == file) continue;
    return Fail(diagnostic, StatusCode::kInvalidModel, "a shard lacks a tensor",
                "%s: expected tensor %s in %s, found none", kIndexName, tensor.c_str(), file.c_str());
  }
  files_.push_back({kIndexName, std::move(index)});
  return Status::Ok();
}

Status SafetensorsSet::IndexNames(Diagnostic* diagnostic) {
  by_name_.clear();
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (by_name_.emplace(tensors_[i].name, i).second) continue;
    return Fail(diagnostic, StatusCode::kInvalidModel, "a tensor is in two files",
                "%s: tensor %s is also in another file", files_[file_of_tensor_[i]].name.c_str(),
                tensors_[i].name.c_str());
  }
  return Status::Ok();
}

const SafetensorsTensor* SafetensorsSet::Find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

const SafetensorsSet::File& SafetensorsSet::FileOf(const SafetensorsTensor& tensor) const {
  const size_t index = static_cast<size_t>(&tensor - tensors_.data());
  LINNET_DCHECK(index < tensors_.size());
  return files_[file_of_tensor_[index]];
}

const std::string& SafetensorsSet::FileNameOf(const SafetensorsTensor& tensor) const { return FileOf(tensor).name; }

void SafetensorsSet::Release(const SafetensorsTensor& tensor) const {
  const FileMapping& mapping = FileOf(tensor).mapping;
  if (tensor.bytes.empty()) return;
  mapping.DropPages(static_cast<uint64_t>(tensor.bytes.data() - mapping.bytes().data()), tensor.bytes.size());
}

}  // namespace linnet::formats
