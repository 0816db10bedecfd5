#include "examples/cli/npy.h"

#include <bit>
#include <utility>

namespace linnet::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "values are written as they are in memory");

constexpr size_t kPrefixBytes = 10;  // magic, version, length of the header text
constexpr size_t kAlignment = 64;    // of the first value

std::string Header(std::span<const uint64_t> shape) {
  std::string dims;
  for (const uint64_t dim : shape) dims += (dims.empty() ? "" : ", ") + std::to_string(dim);
  if (shape.size() == 1) dims += ",";  // a Python tuple of one
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + dims + "), }";
  while ((kPrefixBytes + text.size() + 1) % kAlignment != 0) text += ' ';
  text += '\n';
  std::string header = "\x93NUMPY";
  header += '\x01';
  header += '\x00';
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace

Result<NpyWriter> NpyWriter::Create(const std::string& path, std::span<const uint64_t> shape, Diagnostic* diagnostic) {
  NpyWriter writer;
  LINNET_ASSIGN_OR_RETURN(writer.file_, AtomicFileWriter::Create(path, diagnostic));
  const std::string header = Header(shape);
  LINNET_RETURN_IF_ERROR(writer.file_.Append(std::as_bytes(std::span(header)), diagnostic));
  writer.values_left_ = 1;
  for (const uint64_t dim : shape) writer.values_left_ *= dim;
  return writer;
}

Status NpyWriter::Append(std::span<const float> values, Diagnostic* diagnostic) {
  LINNET_CHECK(values.size() <= values_left_);
  values_left_ -= values.size();
  return file_.Append(std::as_bytes(values), diagnostic);
}

Status NpyWriter::Finish(Diagnostic* diagnostic) {
  LINNET_CHECK(values_left_ == 0);
  return file_.Commit(diagnostic);
}

}  // namespace linnet::cli
