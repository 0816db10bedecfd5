// Next-token distributions of one model on a text, kept in a file so that another model can be compared with it.
//
// Little-endian. A header of 64 bytes: the text "LINNETKL", then u32 version (1), vocab_size, context, windows,
// first_scored, and zeros. Then i32 tokens [windows, context]. Then a row for each scored position (first_scored to
// context - 2 of every window): f32 top, f32 step, u16 q [vocab_size], zeros up to a multiple of 4. The logarithm of a
// token's probability is top - q * step; step covers what lies at most 32 nats below the top, so that it is at most
// 0.0005 nats, and rows are normalized again when they are read.
#ifndef LINNET_EXAMPLES_CLI_KL_FILE_H_
#define LINNET_EXAMPLES_CLI_KL_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/diagnostic.h"
#include "core/base/file_mapping.h"
#include "core/base/status.h"

namespace linnet::cli {

struct KlShape {
  uint32_t vocab_size = 0;
  uint32_t context = 0;
  uint32_t windows = 0;
  uint32_t first_scored = 0;
  uint64_t rows() const { return uint64_t{windows} * (context - 1 - first_scored); }
};

class KlWriter {
 public:
  /// `tokens` are [windows, context].
  static Result<KlWriter> Create(const std::string& path, const KlShape& shape, std::span<const int32_t> tokens,
                                 Diagnostic* diagnostic);
  /// Appends a row of logarithms of probabilities, [vocab_size].
  Status Append(std::span<const float> log_probs, Diagnostic* diagnostic);
  Status Finish(Diagnostic* diagnostic) { return file_.Commit(diagnostic); }

 private:
  AtomicFileWriter file_;
  std::vector<std::byte> row_;
};

class KlReader {
 public:
  /// Errors: kIoError; kInvalidModel where the file is none of ours or truncated.
  static Result<KlReader> Open(const std::string& path, Diagnostic* diagnostic);

  const KlShape& shape() const { return shape_; }
  std::span<const int32_t> tokens() const;  // [windows, context]
  /// Logarithms of probabilities of row `index` < shape().rows() into out [vocab_size].
  void Read(uint64_t index, std::span<float> out) const;

 private:
  FileMapping file_;
  KlShape shape_;
};

}  // namespace linnet::cli

#endif  // LINNET_EXAMPLES_CLI_KL_FILE_H_
