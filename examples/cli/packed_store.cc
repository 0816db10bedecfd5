#include "examples/cli/packed_store.h"

#include <utility>

#include "examples/cli/output.h"
#include "platforms/console.h"
#include "platforms/files.h"

namespace linnet::cli {
namespace {

// Progress of packing, and the end of the pages that are done with.
struct PackReport {
  const formats::ModelFile& model;
  const platform::MappedOutput* output;  // null: into memory
  Progress progress{"packing weights"};

  static bool Update(void* context, uint64_t done, uint64_t total) {
    auto* report = static_cast<PackReport*>(context);
    report->progress.Update(done, total, "of " + HumanBytes(total));
    if (report->model.mapping() != nullptr) report->model.mapping()->DropPages(0, report->model.file_bytes());
    if (report->output != nullptr) report->output->DropPages(done);
    return !platform::InterruptScope::Requested();
  }
};

Status PackInto(const formats::ModelFile& model, const PackedLayout& layout, std::span<std::byte> region,
                const platform::MappedOutput* output, Diagnostic* diagnostic) {
  platform::InterruptScope interrupt;
  PackReport report = {.model = model, .output = output};
  const Status status = PackWeights(model.view(), layout, region, {PackReport::Update, &report});
  if (status.code() == StatusCode::kCancelled) {
    return Fail(diagnostic, StatusCode::kCancelled, "interrupted", "packing weights: nothing was kept");
  }
  return status;
}

bool Fits(const formats::ModelFile& model, const PackedLayout& layout, std::span<const std::byte> region) {
  return OpenPackedWeights(model.view(), layout, region).ok();
}

std::string PackedFolder(const std::string& cache) { return cache + "/packed"; }

}  // namespace

Status WritePackedFile(const formats::ModelFile& model, const PackedLayout& layout, const std::string& path,
                       Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(platform::MappedOutput output,
                          platform::MappedOutput::Create(path, layout.total_bytes, diagnostic));
  LINNET_RETURN_IF_ERROR(PackInto(model, layout, output.bytes(), &output, diagnostic));
  return output.Commit(diagnostic);
}

platform::RemovedFiles CleanPackedFiles(bool all) {
  constexpr uint64_t kDay = 24 * 60 * 60;
  Diagnostic ignored;
  const auto cache = platform::CacheFolderPath(&ignored);
  if (!cache.ok()) return {};
  platform::RemoveUnusedFiles(PackedFolder(*cache), ".part", kDay);
  return platform::RemoveUnusedFiles(PackedFolder(*cache), ".packed", all ? 0 : kKeepUnusedDays * kDay);
}

Result<std::string> PackedFilePath(const ModelView& model, const PackedLayout& layout, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const std::string folder, platform::CacheFolderPath(diagnostic));
  LINNET_RETURN_IF_ERROR(platform::MakeFolders(PackedFolder(folder), diagnostic));
  // Half of the content hash is enough to tell files apart; the region itself holds all of it.
  return PackedFolder(folder) + "/" + Hex(model.content_hash.data(), 16) + "-" +
         Hex(layout.fingerprint.data(), layout.fingerprint.size()) + ".packed";
}

Result<PackedStore> PackedStore::Open(const formats::ModelFile& model, const PackedLayout& layout,
                                      const std::string& path, Diagnostic* diagnostic) {
  PackedStore store;
  if (!path.empty()) {
    Diagnostic reason;
    auto mapping = FileMapping::Open(path, &reason);
    bool fits = mapping.ok() && Fits(model, layout, mapping->bytes());
    if (!fits) {
      CleanPackedFiles(/*all=*/false);
      const Status written = WritePackedFile(model, layout, path, &reason);
      if (written.ok()) {
        mapping = FileMapping::Open(path, &reason);
        fits = mapping.ok() && Fits(model, layout, mapping->bytes());
      } else if (written.code() != StatusCode::kIoError) {
        if (diagnostic != nullptr) *diagnostic = reason;
        return written;
      }
    }
    if (fits) {
      platform::MarkUsed(path);
      store.mapping_ = std::move(mapping).value();
      return store;
    }
    Note("packed weights stay in memory this time: %s", reason.text());
  }
  LINNET_ASSIGN_OR_RETURN(store.memory_, platform::AnonymousMemory::Create(layout.total_bytes, diagnostic));
  LINNET_RETURN_IF_ERROR(PackInto(model, layout, store.memory_.bytes(), nullptr, diagnostic));
  return store;
}

}  // namespace linnet::cli
