#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "formats/convert/report_builder.h"

namespace linnet::formats {
namespace {

using Json = nlohmann::ordered_json;

// "q4/32 rotated", "q4/128 kept", "f32".
std::string TypeText(DType dtype, uint32_t block_size, bool rotated, bool kept = false) {
  std::string text = DTypeName(dtype);
  if (block_size != 0) {
    text += '/';
    text += std::to_string(block_size);
  }
  if (rotated) text += " rotated";
  if (kept) text += " kept";
  return text;
}

void AddSourceType(const char* name, std::string* list) {
  std::string padded = ", ", wanted = ", ";
  padded.append(*list).append(",");
  wanted.append(name).append(",");
  if (padded.find(wanted) != std::string::npos) return;
  if (!list->empty()) *list += ", ";
  *list += name;
}

__attribute__((format(printf, 2, 3))) void AppendLine(std::string* text, const char* format, ...) {
  std::array<char, 256> line;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  *text += line.data();
  *text += '\n';
}

unsigned long long Printed(uint64_t value) { return value; }

double BitsPerWeight(uint64_t bytes, uint64_t elements) {
  return elements == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(elements);
}

// Fallbacks that differ in the layer only are one line.
bool SameFallback(const ConvertFallback& a, const ConvertFallback& b) {
  return a.role == b.role && a.used == b.used && a.used_block_size == b.used_block_size && a.columns == b.columns;
}

void AppendFallbacks(const std::vector<ConvertFallback>& fallbacks, std::string* text) {
  for (size_t i = 0; i < fallbacks.size(); ++i) {
    const ConvertFallback& fallback = fallbacks[i];
    const auto same = [&fallback](const ConvertFallback& other) { return SameFallback(fallback, other); };
    const auto begin = fallbacks.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::any_of(fallbacks.begin(), begin, same)) continue;
    AppendLine(text, "fallback: %s (%td tensors, first in layer %d): %s does not divide its width %llu, stored as %s",
               TensorRoleName(fallback.role), std::count_if(begin, fallbacks.end(), same), fallback.layer,
               TypeText(fallback.wanted, fallback.wanted_block_size, false).c_str(), Printed(fallback.columns),
               TypeText(fallback.used, fallback.used_block_size, false).c_str());
  }
}

// One line for every role and form, the first layers that have it, and what is expected of all together.
void AppendChoices(const std::vector<ConvertChoice>& choices, std::string* text) {
  if (choices.empty()) return;
  AppendLine(text,
             "chosen by measured loss (nats of KL divergence a token; alone: each by itself, in q4/32 or the type "
             "asked for):");
  AppendLine(text, "%-26s %-8s %8s %14s %12s %12s", "tensor", "type", "tensors", "bytes", "alone", "expected");
  double total = 0.0;
  for (size_t i = 0; i < choices.size(); ++i) {
    const ConvertChoice& choice = choices[i];
    const auto same = [&choice](const ConvertChoice& other) {
      return other.role == choice.role && other.dtype == choice.dtype && other.block_size == choice.block_size;
    };
    const auto begin = choices.begin() + static_cast<std::ptrdiff_t>(i);
    total += choice.loss;
    if (std::any_of(choices.begin(), begin, same)) continue;
    uint64_t bytes = 0;
    double alone = 0.0, loss = 0.0;
    for (auto other = begin; other != choices.end(); ++other) {
      if (!same(*other)) continue;
      bytes += other->bytes;
      alone += other->probe_loss;
      loss += other->loss;
    }
    AppendLine(text, "%-26s %-8s %8td %14llu %12.5f %12.5f", TensorRoleName(choice.role),
               TypeText(choice.dtype, choice.block_size, false).c_str(), std::count_if(begin, choices.end(), same),
               Printed(bytes), alone, loss);
  }
  AppendLine(text, "expected KL divergence of all: %.4f", total);
}

}  // namespace

void ReportBuilder::Add(const TensorPlan& plan, const char* source_type, const CalibratedErrors& errors) {
  const char* const group_name = TensorGroupName(plan.group);
  const bool rotated = plan.spec.rotation_block != 0;
  size_t i = 0;
  for (; i < report_.groups.size(); ++i) {
    const ConvertGroup& group = report_.groups[i];
    if (std::string_view(group.group) == group_name && group.dtype == plan.spec.dtype &&
        group.block_size == plan.spec.block_size && group.rotated == rotated && group.kept == plan.keeps_grid) {
      break;
    }
  }
  if (i == report_.groups.size()) {
    report_.groups.push_back(
        {group_name, plan.spec.dtype, plan.spec.block_size, rotated, plan.keeps_grid, {}, 0, 0, 0, 0.0, 0.0});
    errors_.emplace_back();
  }
  ConvertGroup& group = report_.groups[i];
  const Result<TensorBytes> bytes = ComputeTensorBytes(plan.spec.dtype, plan.spec.shape(), plan.spec.block_size);
  LINNET_CHECK(bytes.ok());  // the layout has computed it before
  AddSourceType(source_type, &group.source_types);
  ++group.tensors;
  group.elements += plan.elements();
  group.bytes += bytes->data + bytes->scales;
  errors_[i].Add(errors);
  if (plan.rounded_before) ++(plan.spec.dtype == DType::kQ4 ? report_.rounded_again : report_.widened);
  if (plan.wanted == plan.spec.dtype && plan.wanted_block_size == plan.spec.block_size) return;
  report_.fallbacks.push_back({plan.spec.role, plan.spec.layer, plan.wanted, plan.wanted_block_size, plan.spec.dtype,
                               plan.spec.block_size, plan.columns()});
}

ConvertReport ReportBuilder::Take(uint64_t file_bytes, double seconds) {
  for (size_t i = 0; i < report_.groups.size(); ++i) {
    ConvertGroup& group = report_.groups[i];
    group.relative_rms_error = errors_[i].weights.RelativeRms();
    group.output_rms_error = errors_[i].RelativeOutputRms();
    report_.tensors += group.tensors;
    report_.parameters += group.elements;
    report_.weight_bytes += group.bytes;
  }
  report_.file_bytes = file_bytes;
  report_.bits_per_weight = BitsPerWeight(report_.weight_bytes, report_.parameters);
  report_.seconds = seconds;
  return std::move(report_);
}

std::string ConvertReportText(const ConvertReport& report) {
  std::string text;
  AppendLine(&text, "%-10s %-14s %-16s %8s %14s %14s %6s %10s %10s", "group", "type", "source", "tensors", "weights",
             "bytes", "bits", "rms error", "of outputs");
  for (const ConvertGroup& group : report.groups) {
    AppendLine(&text, "%-10s %-14s %-16s %8u %14llu %14llu %6.2f %10.2e %10.2e", group.group,
               TypeText(group.dtype, group.block_size, group.rotated, group.kept).c_str(), group.source_types.c_str(),
               group.tensors, Printed(group.elements), Printed(group.bytes), BitsPerWeight(group.bytes, group.elements),
               group.relative_rms_error, group.output_rms_error);
  }
  AppendFallbacks(report.fallbacks, &text);
  if (report.rounded_again > 0) {
    AppendLine(&text,
               "note: matrices that had been rounded to about 4 bits on another grid and were rounded again: %u "
               "(--weights q8 keeps their values)",
               report.rounded_again);
  }
  if (report.widened > 0) {
    AppendLine(
        &text,
        "note: matrices that had been rounded to about 4 bits and became q8, which keeps their values and not their "
        "size: %u",
        report.widened);
  }
  AppendChoices(report.choices, &text);
  if (report.unseen_matrices > 0) {
    AppendLine(&text, "%u matrices got too few inputs from the calibration text and were rounded to nearest",
               report.unseen_matrices);
  }
  AppendLine(&text, "%u tensors, %llu parameters, %.3f bits per weight, file of %llu bytes, %.1f s", report.tensors,
             Printed(report.parameters), report.bits_per_weight, Printed(report.file_bytes), report.seconds);
  return text;
}

std::string ConvertReportJson(const ConvertReport& report) {
  Json groups = Json::array(), fallbacks = Json::array();
  for (const ConvertGroup& group : report.groups) {
    groups.push_back(Json{{"group", group.group},
                          {"type", DTypeName(group.dtype)},
                          {"block_size", group.block_size},
                          {"rotated", group.rotated},
                          {"kept", group.kept},
                          {"source_types", group.source_types},
                          {"tensors", group.tensors},
                          {"elements", group.elements},
                          {"bytes", group.bytes},
                          {"relative_rms_error", group.relative_rms_error},
                          {"output_rms_error", group.output_rms_error}});
  }
  for (const ConvertFallback& fallback : report.fallbacks) {
    fallbacks.push_back(Json{{"tensor", TensorRoleName(fallback.role)},
                             {"layer", fallback.layer},
                             {"wanted", DTypeName(fallback.wanted)},
                             {"wanted_block_size", fallback.wanted_block_size},
                             {"used", DTypeName(fallback.used)},
                             {"used_block_size", fallback.used_block_size},
                             {"columns", fallback.columns}});
  }
  Json choices = Json::array();
  for (const ConvertChoice& choice : report.choices) {
    choices.push_back(Json{{"tensor", TensorRoleName(choice.role)},
                           {"layer", choice.layer},
                           {"type", DTypeName(choice.dtype)},
                           {"block_size", choice.block_size},
                           {"bytes", choice.bytes},
                           {"probe_loss", choice.probe_loss},
                           {"loss", choice.loss}});
  }
  const Json json = {{"tensors", report.tensors},
                     {"parameters", report.parameters},
                     {"weight_bytes", report.weight_bytes},
                     {"file_bytes", report.file_bytes},
                     {"bits_per_weight", report.bits_per_weight},
                     {"seconds", report.seconds},
                     {"rounded_again", report.rounded_again},
                     {"widened", report.widened},
                     {"groups", std::move(groups)},
                     {"fallbacks", std::move(fallbacks)},
                     {"choices", std::move(choices)},
                     {"unseen_matrices", report.unseen_matrices}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace linnet::formats
