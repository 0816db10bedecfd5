#include "examples/cli/packed_store.h"

#include <utility>

#include "examples/cli/output.h"
#include "platforms/console.h"
#include "platforms/files.h"

namespace linnet::cli {
namespace {

struct PackReport {
  Progress progress{"packing weights"};
  static bool Update(void* context, uint64_t done, uint64_t total) {
    static_cast<PackReport*>(context)->progress.Update(done, total, "of " + HumanBytes(total));
    return !platform::InterruptScope::Requested();
  }
};

Status PackInto(const ModelView& model, const PackedLayout& layout, std::span<std::byte> region,
                Diagnostic* diagnostic) {
  platform::InterruptScope interrupt;
  PackReport report;
  const Status status = PackWeights(model, layout, region, {PackReport::Update, &report});
  if (status.code() == StatusCode::kCancelled) {
    return Fail(diagnostic, StatusCode::kCancelled, "interrupted", "packing weights: nothing was kept");
  }
  return status;
}

bool Fits(const ModelView& model, const PackedLayout& layout, std::span<const std::byte> region) {
  return OpenPackedWeights(model, layout, region).ok();
}

}  // namespace

Status WritePackedFile(const ModelView& model, const PackedLayout& layout, const std::string& path,
                       Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(platform::MappedOutput output,
                          platform::MappedOutput::Create(path, layout.total_bytes, diagnostic));
  LINNET_RETURN_IF_ERROR(PackInto(model, layout, output.bytes(), diagnostic));
  return output.Commit(diagnostic);
}

Result<std::string> PackedFilePath(const ModelView& model, const PackedLayout& layout, Diagnostic* diagnostic) {
  LINNET_ASSIGN_OR_RETURN(const std::string folder, platform::CacheFolderPath(diagnostic));
  LINNET_RETURN_IF_ERROR(platform::MakeFolders(folder + "/packed", diagnostic));
  // Half of the content hash is enough to tell files apart; the region itself holds all of it.
  return folder + "/packed/" + Hex(model.content_hash.data(), 16) + "-" +
         Hex(layout.fingerprint.data(), layout.fingerprint.size()) + ".packed";
}

Result<PackedStore> PackedStore::Open(const ModelView& model, const PackedLayout& layout, const std::string& path,
                                      Diagnostic* diagnostic) {
  PackedStore store;
  if (!path.empty()) {
    Diagnostic reason;
    auto mapping = FileMapping::Open(path, &reason);
    bool fits = mapping.ok() && Fits(model, layout, mapping->bytes());
    if (!fits) {
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
      store.mapping_ = std::move(mapping).value();
      return store;
    }
    Note("packed weights stay in memory this time: %s", reason.text());
  }
  LINNET_ASSIGN_OR_RETURN(store.memory_, platform::AnonymousMemory::Create(layout.total_bytes, diagnostic));
  LINNET_RETURN_IF_ERROR(PackInto(model, layout, store.memory_.bytes(), diagnostic));
  return store;
}

}  // namespace linnet::cli
