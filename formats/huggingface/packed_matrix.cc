#include "formats/huggingface/packed_matrix.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/check.h"
#include "core/base/checked.h"

namespace linnet::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in the file");

enum Part : size_t { kLevels = 0, kZeros = 1, kScales = 2, kGroupIndex = 3 };
constexpr const char* kPartNames[] = {"qweight", "qzeros", "scales", "g_idx"};

// Bits of a word where AWQ keeps column n % 8.
constexpr uint32_t kAwqShifts[8] = {0, 16, 4, 20, 8, 24, 12, 28};

constexpr uint32_t kMiddle = 8;  // the zero point of a symmetric grid of 4 bits
constexpr uint32_t kQ4Blocks[] = {128, 64, 32};

std::string ShapeText(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

Status PackedMatrix::CheckShape(const SafetensorsSet& source, const SafetensorsTensor& tensor,
                                std::vector<uint64_t> expected, Diagnostic* diagnostic) const {
  const bool is_scale = &tensor == tensors_[kScales];
  const bool type_fits = is_scale ? IsReadableAsF32(tensor.type)
                                  : tensor.type == SafetensorsType::kI32 || tensor.type == SafetensorsType::kU32;
  if (type_fits && tensor.shape == expected) return Status::Ok();
  return Fail(diagnostic, StatusCode::kInvalidModel, "a packed tensor has another shape or type than expected",
              "%s: tensor %s: expected %s %s, found %s %s", source.FileNameOf(tensor).c_str(), tensor.name.c_str(),
              is_scale ? "F16, BF16 or F32" : "I32", ShapeText(expected).c_str(), SafetensorsTypeName(tensor.type),
              ShapeText(tensor.shape).c_str());
}

Result<PackedMatrix> PackedMatrix::Open(const SafetensorsSet& source, const std::string& stem,
                                        const WeightPacking& packing, uint64_t rows, uint64_t columns,
                                        Diagnostic* diagnostic) {
  PackedMatrix matrix;
  matrix.packing_ = packing;
  matrix.rows_ = rows;
  matrix.columns_ = columns;
  matrix.per_word_ = 32 / packing.bits;
  matrix.group_size_ = packing.group_size == 0 ? columns : std::min<uint64_t>(packing.group_size, columns);
  matrix.groups_ = CeilDiv(columns, matrix.group_size_);
  const bool gptq = packing.method == PackingMethod::kGptq;
  for (const Part part : {kLevels, kZeros, kScales, kGroupIndex}) {
    matrix.tensors_[part] = source.Find(stem + kPartNames[part]);
    if (matrix.tensors_[part] != nullptr || part == kGroupIndex) continue;
    return Fail(diagnostic, StatusCode::kInvalidModel, "a packed tensor is missing",
                "%s: tensor %s%s is missing beside %sqweight", source.listing_name().c_str(), stem.c_str(),
                kPartNames[part], stem.c_str());
  }
  if (!gptq) matrix.tensors_[kGroupIndex] = nullptr;
  const uint64_t per_word = matrix.per_word_, along_columns = gptq ? columns : rows;
  if (along_columns % per_word != 0 || rows % per_word != 0) {
    return Fail(diagnostic, StatusCode::kInvalidModel, "a packed matrix does not fill its words",
                "%s: tensor %sqweight: expected rows and columns in multiples of %llu, found %llu and %llu",
                source.FileNameOf(*matrix.tensors_[kLevels]).c_str(), stem.c_str(),
                static_cast<unsigned long long>(per_word), static_cast<unsigned long long>(rows),
                static_cast<unsigned long long>(columns));
  }
  const auto check = [&](Part part, std::vector<uint64_t> shape) {
    return matrix.CheckShape(source, *matrix.tensors_[part], std::move(shape), diagnostic);
  };
  LINNET_RETURN_IF_ERROR(check(kLevels, gptq ? std::vector<uint64_t>{columns / per_word, rows}
                                             : std::vector<uint64_t>{columns, rows / per_word}));
  LINNET_RETURN_IF_ERROR(check(kZeros, {matrix.groups_, rows / per_word}));
  LINNET_RETURN_IF_ERROR(check(kScales, {matrix.groups_, rows}));
  LINNET_RETURN_IF_ERROR(matrix.CheckGroups(source, diagnostic));
  return matrix;
}

Status PackedMatrix::CheckGroups(const SafetensorsSet& source, Diagnostic* diagnostic) {
  const SafetensorsTensor* index = tensors_[kGroupIndex];
  if (index == nullptr) return Status::Ok();
  LINNET_RETURN_IF_ERROR(CheckShape(source, *index, {columns_}, diagnostic));
  for (uint64_t k = 0; k < columns_; ++k) {
    const uint32_t group = Word(kGroupIndex, k);
    in_order_ = in_order_ && group == k / group_size_;
    if (group < groups_) continue;
    return Fail(diagnostic, StatusCode::kInvalidModel, "a column's group does not exist",
                "%s: tensor %s: expected groups below %llu, found %d for column %llu",
                source.FileNameOf(*index).c_str(), index->name.c_str(), static_cast<unsigned long long>(groups_),
                static_cast<int>(group), static_cast<unsigned long long>(k));
  }
  return Status::Ok();
}

const char* PackedMatrix::type_name() const {
  if (packing_.method == PackingMethod::kAwq) return "AWQ4";
  return packing_.bits == 4 ? "GPTQ4" : packing_.bits == 8 ? "GPTQ8" : "GPTQ2";
}

double PackedMatrix::bits_per_weight() const {
  const double scale_bits = 8.0 * static_cast<double>(SafetensorsTypeBytes(tensors_[kScales]->type));
  return packing_.bits + (scale_bits + packing_.bits) / static_cast<double>(group_size_);
}

uint32_t PackedMatrix::Word(size_t tensor, uint64_t index) const {
  uint32_t word;
  std::memcpy(&word, tensors_[tensor]->bytes.data() + index * sizeof(word), sizeof(word));
  return word;
}

uint32_t PackedMatrix::ShiftAlongRows(uint64_t n) const {
  const auto place = static_cast<uint32_t>(n % per_word_);
  return packing_.method == PackingMethod::kAwq ? kAwqShifts[place] : packing_.bits * place;
}

uint32_t PackedMatrix::Level(uint64_t n, uint64_t k) const {
  const uint32_t mask = (1u << packing_.bits) - 1;
  if (packing_.method == PackingMethod::kAwq) {
    return Word(kLevels, k * (rows_ / per_word_) + n / per_word_) >> ShiftAlongRows(n) & mask;
  }
  return Word(kLevels, k / per_word_ * rows_ + n) >> packing_.bits * static_cast<uint32_t>(k % per_word_) & mask;
}

uint32_t PackedMatrix::Zero(uint64_t n, uint64_t group) const {
  const uint32_t mask = (1u << packing_.bits) - 1;
  const uint32_t stored = Word(kZeros, group * (rows_ / per_word_) + n / per_word_) >> ShiftAlongRows(n);
  return (stored + (packing_.zeros_less_one ? 1 : 0)) & mask;
}

float PackedMatrix::Scale(uint64_t n, uint64_t group) const {
  float scale;
  formats::ReadAsF32(*tensors_[kScales], {group * rows_ + n, 1, 1, 1}, &scale);
  return scale;
}

uint64_t PackedMatrix::GroupOf(uint64_t k) const { return in_order_ ? k / group_size_ : Word(kGroupIndex, k); }

void PackedMatrix::ReadAsF32(const ElementRun& run, float* out) const {
  uint64_t n = run.first / columns_, k = run.first % columns_;
  uint64_t group = UINT64_MAX;  // whose scale and zero point are at hand
  int32_t zero = 0;
  float scale = 0.0f;
  for (uint64_t i = 0; i < run.count; ++i) {
    LINNET_DCHECK(n < rows_);
    if (const uint64_t now = GroupOf(k); now != group) {
      group = now;
      zero = static_cast<int32_t>(Zero(n, group));
      scale = Scale(n, group);
    }
    out[i * run.out_step] = scale * static_cast<float>(static_cast<int32_t>(Level(n, k)) - zero);
    k += run.step;
    if (k < columns_) continue;
    n += k / columns_;
    k %= columns_;
    group = UINT64_MAX;
  }
}

uint32_t PackedMatrix::Q4GridBlock() const {
  if (packing_.bits != 4 || !in_order_ || columns_ % group_size_ != 0) return 0;
  // Four bits of 8 eight times over, or less one: every word is the same.
  const uint32_t word = packing_.zeros_less_one ? 0x11111111u * (kMiddle - 1) : 0x11111111u * kMiddle;
  for (uint64_t i = 0; i < groups_ * (rows_ / per_word_); ++i) {
    if (Word(kZeros, i) != word) return 0;
  }
  for (const uint32_t block : kQ4Blocks) {
    if (group_size_ % block == 0) return block;
  }
  return 0;
}

void PackedMatrix::ReadQ4GridRow(uint64_t n, uint32_t block, uint8_t* levels, float* scales) const {
  for (uint64_t k = 0; k < columns_; k += 2) {
    levels[k / 2] = static_cast<uint8_t>(Level(n, k) | Level(n, k + 1) << 4);
  }
  for (uint64_t b = 0; b < columns_ / block; ++b) scales[b] = Scale(n, b * block / group_size_);
}

}  // namespace linnet::formats
