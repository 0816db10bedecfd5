// What the writer and the reader of the tokenizer section agree on. Internal to formats/linnet.
#ifndef LINNET_FORMATS_LINNET_TOKENIZER_LAYOUT_H_
#define LINNET_FORMATS_LINNET_TOKENIZER_LAYOUT_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace linnet::formats {

// The arrays are used where they are mapped, so the file's byte order is the machine's.
static_assert(std::endian::native == std::endian::little);

/// Changes when the hash functions or the meaning of the schema change; files of other versions are refused.
inline constexpr uint32_t kTokenizerLayoutVersion = 1;

/// How often the writer doubles a table whose probes are too long; real vocabularies need none.
inline constexpr int kMaxTableDoublings = 3;

}  // namespace linnet::formats

#endif  // LINNET_FORMATS_LINNET_TOKENIZER_LAYOUT_H_
