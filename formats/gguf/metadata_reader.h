// Typed reading of an architecture's metadata, with a record of what was read.
#ifndef LINNET_FORMATS_GGUF_METADATA_READER_H_
#define LINNET_FORMATS_GGUF_METADATA_READER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"
#include "formats/gguf/gguf_set.h"

namespace linnet::formats {

/// Reads "<architecture>.<suffix>" keys. A value of another type or out of range is an error that names the key;
/// an absent key leaves `out` as it is, so that the caller's initial value is the default.
class MetadataReader {
 public:
  MetadataReader(const GgufSet& files, std::string_view architecture, Diagnostic* diagnostic)
      : files_(files), prefix_(std::string(architecture) + "."), diagnostic_(diagnostic) {}

  Status Unsigned(const char* suffix, uint32_t limit, uint32_t& out);
  Status Number(const char* suffix, double& out);
  Status Number(const char* suffix, float& out);
  Status Bool(const char* suffix, bool& out);
  Status Text(const char* suffix, std::string_view& out);
  /// One number for all layers or an array with one for each; `out` has n_layers entries or, where the key is absent,
  /// stays as it is.
  Status PerLayer(const char* suffix, uint32_t limit, uint32_t n_layers, std::vector<uint32_t>& out);
  /// A period (every n-th layer is without) or an array of bool; `out` as above.
  Status LayerPattern(const char* suffix, uint32_t n_layers, std::vector<bool>& out);

  bool Has(const char* suffix) const { return files_.Find(prefix_ + suffix) != nullptr; }
  /// kInvalidModel naming the key where it is absent.
  Status Require(const char* suffix) const;
  /// Fails for this key: "NAME: llama.SUFFIX: TEXT".
  Status Refuse(const char* suffix, StatusCode code, const char* text) const;
  /// kUnsupported naming the first key of the architecture that nobody read and that is not known to be without effect.
  Status RefuseUnread() const;

 private:
  const GgufValue* Take(const char* suffix);
  Status WrongType(const char* suffix, const GgufValue& value, const char* expected) const;

  const GgufSet& files_;
  std::string prefix_;
  Diagnostic* diagnostic_;
  std::vector<std::string> read_;
};

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_GGUF_METADATA_READER_H_
