#include "capi/packed_store.h"

#include <utility>

namespace linnet {
namespace {

// Progress of packing, and the end of the pages that are done with.
struct Report {
  const formats::ModelFile& model;
  const platform::MappedOutput* output;  // null: into memory
  const PackProgress& progress;

  static bool Update(void* context, uint64_t done, uint64_t total) {
    const Report& report = *static_cast<Report*>(context);
    if (report.model.mapping() != nullptr) report.model.mapping()->DropPages(0, report.model.file_bytes());
    if (report.output != nullptr) report.output->DropPages(done);
    return report.progress.function == nullptr || report.progress.function(report.progress.context, done, total);
  }
};

Status PackInto(Report report, const PackedLayout& layout, std::span<std::byte> region, Diagnostic* diagnostic) {
  const Status status = PackWeights(report.model.view(), layout, region, {Report::Update, &report});
  if (status.code() == StatusCode::kCancelled) {
    return Fail(diagnostic, StatusCode::kCancelled, "interrupted", "packing weights: nothing was kept");
  }
  return status;
}

Result<FileMapping> OpenFile(const formats::ModelFile& model, const PackedLayout& layout, const std::string& path,
                             Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(FileMapping mapping, FileMapping::Open(path, diagnostic));
  const auto seeds = OpenPackedWeights(model.view(), layout, mapping.bytes());
  if (!seeds.ok()) return seeds.status();
  platform::MarkUsed(path);
  return mapping;
}

platform::RemovedFiles CleanFolder(const std::string& folder, bool all) {
  constexpr uint64_t kDay = 24 * 60 * 60;
  platform::RemoveUnusedFiles(folder, ".part", kDay);
  return platform::RemoveUnusedFiles(folder, ".packed", all ? 0 : kKeepUnusedDays * kDay);
}

std::string Hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace

Status WritePackedFile(const formats::ModelFile& model, const PackedLayout& layout, const std::string& path,
                       const PackProgress& progress, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(auto output, platform::MappedOutput::Create(path, layout.total_bytes, diagnostic));
  LINNET_RETURN_IF_ERROR(PackInto({model, &output, progress}, layout, output.bytes(), diagnostic));
  return output.Commit(diagnostic);
}

Result<std::string> PackedFilePath(const std::string& cache, const ModelView& model, const PackedLayout& layout,
                                   Diagnostic* diagnostic) {
  LINNET_RETURN_IF_ERROR(platform::MakeFolders(cache + "/packed", diagnostic));
  // Half of the content hash is enough to tell files apart; the region itself holds all of it.
  return cache + "/packed/" + Hex(std::span(model.content_hash).first(16)) + "-" + Hex(layout.fingerprint) + ".packed";
}

platform::RemovedFiles CleanPackedFiles(const std::string& cache, bool all) {
  return CleanFolder(cache + "/packed", all);
}

Result<PackedStore> PackedStore::Open(const formats::ModelFile& model, const PackedLayout& layout,
                                      const std::string& path, const PackedStoreHooks& hooks, Diagnostic* diagnostic) {
  PackedStore store;
  if (!path.empty()) {
    Diagnostic reason;
    auto mapping = OpenFile(model, layout, path, nullptr);
    if (!mapping.ok()) {
      const size_t slash = path.rfind('/');
      if (slash != std::string::npos) CleanFolder(path.substr(0, slash), /*all=*/false);
      const Status written = WritePackedFile(model, layout, path, hooks.progress, &reason);
      // Only what the disk refuses is no fault of the model or the caller.
      if (!written.ok() && written.code() != StatusCode::kIoError) {
        if (diagnostic != nullptr) *diagnostic = reason;
        return written;
      }
      if (written.ok()) mapping = OpenFile(model, layout, path, &reason);
    }
    if (mapping.ok()) {
      store.mapping_ = std::move(mapping).value();
      return store;
    }
    if (hooks.warn != nullptr) hooks.warn(hooks.warn_context, reason.text());
  }
  LINNET_ASSIGN_OR_RETURN(store.memory_, platform::AnonymousMemory::Create(layout.total_bytes, diagnostic));
  LINNET_RETURN_IF_ERROR(PackInto({model, nullptr, hooks.progress}, layout, store.memory_.bytes(), diagnostic));
  return store;
}

}  // namespace linnet
