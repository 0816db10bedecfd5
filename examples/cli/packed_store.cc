#include "examples/cli/packed_store.h"

#include "examples/cli/output.h"
#include "platforms/console.h"
#include "platforms/files.h"

namespace linnet::cli {
namespace {

struct PackReport {
  Progress progress{"packing weights"};

  static bool Update(void* context, uint64_t done, uint64_t total) {
    auto* report = static_cast<PackReport*>(context);
    report->progress.Update(done, total, "of " + HumanBytes(total));
    return !platform::InterruptScope::Requested();
  }
};

void NoteInMemory(void*, const char* reason) { Note("packed weights stay in memory this time: %s", reason); }

}  // namespace

Result<PackedStore> OpenPackedStore(const formats::ModelFile& model, const PackedLayout& layout,
                                    const std::string& path, Diagnostic* diagnostic) {
  platform::InterruptScope interrupt;
  PackReport report;
  PackedStoreHooks hooks;
  hooks.progress = {PackReport::Update, &report};
  hooks.warn = NoteInMemory;
  return PackedStore::Open(model, layout, path, hooks, diagnostic);
}

Status WritePackedFile(const formats::ModelFile& model, const PackedLayout& layout, const std::string& path,
                       Diagnostic* diagnostic) {
  platform::InterruptScope interrupt;
  PackReport report;
  return linnet::WritePackedFile(model, layout, path, {PackReport::Update, &report}, diagnostic);
}

platform::RemovedFiles CleanPackedFiles(bool all) {
  Diagnostic ignored;
  const auto cache = platform::CacheFolderPath(&ignored);
  return cache.ok() ? linnet::CleanPackedFiles(*cache, all) : platform::RemovedFiles{};
}

Result<std::string> PackedFilePath(const ModelView& model, const PackedLayout& layout, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const std::string cache, platform::CacheFolderPath(diagnostic));
  return linnet::PackedFilePath(cache, model, layout, diagnostic);
}

}  // namespace linnet::cli
