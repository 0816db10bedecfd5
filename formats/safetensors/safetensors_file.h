// One safetensors file: a JSON header with names, types, shapes and offsets, then the tensors' bytes.
#ifndef LINNET_FORMATS_SAFETENSORS_SAFETENSORS_FILE_H_
#define LINNET_FORMATS_SAFETENSORS_SAFETENSORS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/status.h"

namespace linnet::formats {

/// Every element type of the format whose elements are whole bytes.
enum class SafetensorsType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
};

/// The type's name in a file ("BF16") and its bytes per element.
const char* SafetensorsTypeName(SafetensorsType type);
size_t SafetensorsTypeBytes(SafetensorsType type);

struct SafetensorsTensor {
  std::string name;
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<uint64_t> shape;       // outermost first; empty: a scalar
  std::span<const std::byte> bytes;  // inside the file; not aligned in general
};

/// Limits of a header; the first is the format's own, the others exceed any published checkpoint several times.
constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;
constexpr size_t kMaxSafetensorsTensors = size_t{1} << 20;
constexpr size_t kMaxSafetensorsRank = 8;
constexpr size_t kMaxSafetensorsNameBytes = 1024;

/// Reads and checks the header of `file`; the tensors view into it, in the header's order.
/// `file_name` is for messages. Errors: kInvalidModel (no header, truncated, malformed, a shape that does not fit its
/// bytes, overlapping tensors, a name given twice), kUnsupported (an unknown element type).
Result<std::vector<SafetensorsTensor>> ParseSafetensors(std::span<const std::byte> file, std::string_view file_name,
                                                        Diagnostic* diagnostic);

/// True where ReadAsF32 can read the type: F32, F16, BF16.
bool IsReadableAsF32(SafetensorsType type);

/// Elements first, first + step, ... of `tensor`, as f32, into out[0], out[out_step], ...
struct ElementRun {
  uint64_t first = 0;
  uint64_t count = 0;
  uint64_t step = 1;
  uint64_t out_step = 1;
};
/// The run lies inside the tensor and inside `out`, and the type is readable: the caller has checked that.
/// Numerics: widening is exact.
void ReadAsF32(const SafetensorsTensor& tensor, const ElementRun& run, float* out);

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_SAFETENSORS_SAFETENSORS_FILE_H_
