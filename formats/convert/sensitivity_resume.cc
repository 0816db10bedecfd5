// What a sensitivity run keeps in the resume folder: its streams behind a block, and how far the logits are.
#include <array>
#include <utility>

#include "formats/convert/sensitivity.h"

namespace linnet::formats {

// A run that cannot save goes on, and cannot be resumed from here.
void SensitivityRun::Save(const char* name, std::span<const std::span<const std::byte>> parts) {
  const auto begin = SavePace::Clock::now();
  if (!store_->Save(name, parts)) store_ = nullptr;
  pace_.Saved(begin);
}

// Tensors before `next` are done. What the logits need is always kept, since the head of a small model is most of it.
void SensitivityRun::SaveBlocks(size_t next) {
  const bool is_last = next == plans_.size() || plans_[next].spec.layer < 0;
  if (store_ == nullptr || (!is_last && !pace_.IsDue())) return;
  PieceWriter head, streams;
  head.Value(static_cast<uint64_t>(next));
  head.Value(work_done_);
  head.Value(static_cast<uint64_t>(n_probes()));
  for (size_t i = 0; i < n_probes(); ++i) {
    head.Value(static_cast<uint64_t>(result_[i].index));
    head.Bytes(std::as_bytes(std::span(errors_[i])));
  }
  const auto moments = std::as_bytes(std::span(moments_stream_)), probes = std::as_bytes(std::span(streams_));
  head.Value(static_cast<uint64_t>(moments.size()));
  streams.Value(static_cast<uint64_t>(probes.size()));
  Save(kLossesPiece, std::array{head.content(), moments, streams.content(), probes});
}

// The tensor to go on with; 0: with the embedding.
size_t SensitivityRun::RestoreBlocks() {
  if (store_ == nullptr) return 0;
  const auto piece = store_->Load(kLossesPiece);
  if (!piece) return 0;
  PieceReader reader(piece->content);
  const auto next = reader.Value<uint64_t>();
  const auto work_done = reader.Value<double>();
  const auto n = reader.Value<uint64_t>();
  moments_stream_.resize(ids_.size() * config().model_dim);
  streams_.resize(stream_size());
  for (uint64_t i = 0; i < n && reader.ok(); ++i) {
    const auto index = reader.Value<uint64_t>();
    if (index >= plans_.size()) break;
    Add(index);
    reader.Fill(std::as_writable_bytes(std::span(errors_.back())));
  }
  const bool fits = n_probes() == n && next <= plans_.size() &&
                    reader.Fill(std::as_writable_bytes(std::span(moments_stream_))) &&
                    reader.Fill(std::as_writable_bytes(std::span(streams_))) && reader.at_end();
  if (fits) {
    work_done_ = work_done;
    return next;
  }
  result_.clear();
  errors_.clear();
  return 0;
}

void SensitivityRun::SaveLogits(const HeadPlace& next, const LogitsComparison& comparison) {
  if (store_ == nullptr || !pace_.IsDue()) return;
  PieceWriter piece;
  piece.Value(static_cast<uint8_t>(next.comparing));
  piece.Value(next.first);
  piece.Value(work_done_);
  comparison.Save(&piece);
  const std::span<const std::byte> content = piece.content();
  Save(kLogitsPiece, std::span(&content, 1));
}

HeadPlace SensitivityRun::RestoreLogits(LogitsComparison* comparison) {
  if (store_ == nullptr) return {};
  const auto piece = store_->Load(kLogitsPiece);
  if (!piece) return {};
  PieceReader reader(piece->content);
  HeadPlace place;
  place.comparing = reader.Value<uint8_t>() != 0;
  place.first = reader.Value<uint64_t>();
  const auto work_done = reader.Value<double>();
  if (!comparison->Restore(&reader) || !reader.at_end()) {
    *comparison = LogitsComparison(comparison->n_rows(), n_probes());
    return {};
  }
  work_done_ = work_done;
  return place;
}

}  // namespace linnet::formats
