#include "examples/cli/quality_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "examples/cli/output.h"
#include "examples/cli/svg_plot.h"

namespace linnet::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kQuantilePoints = 100;  // of the plot of divergences

std::string TypeText(const TensorView& tensor) {
  std::string text = DTypeName(tensor.dtype);
  if (tensor.block_size != 0) text += "/" + std::to_string(tensor.block_size);
  if (tensor.rotation_block != 0) text += " rotated";
  return text;
}

Json FactsJson(const ModelFacts& facts) {
  Json types = Json::array();
  for (const StoredType& type : facts.types) {
    types.push_back({{"type", type.type}, {"tensors", type.tensors}, {"weights", type.weights}, {"bytes", type.bytes}});
  }
  return {{"model", facts.path},
          {"kv", facts.kv},
          {"file_bytes", facts.file_bytes},
          {"weight_bytes", facts.weight_bytes},
          {"parameters", facts.parameters},
          {"bits_per_weight", facts.bits_per_weight},
          {"perplexity", facts.perplexity},
          {"types", types}};
}

std::string FactsLine(const char* label, const ModelFacts& facts) {
  return Formatted("%-10s %s: %s, %.3f bits per weight, KV %s, perplexity %.4f\n", label, facts.path.c_str(),
                   HumanBytes(facts.file_bytes).c_str(), facts.bits_per_weight, facts.kv, facts.perplexity);
}

std::string TypesHtml(const ModelFacts& facts) {
  std::vector<std::vector<std::string>> rows = {{"stored as", "tensors", "weights", "bytes", "bits per weight"}};
  for (const StoredType& type : facts.types) {
    const double bits = static_cast<double>(type.bytes) * 8 / static_cast<double>(std::max<uint64_t>(type.weights, 1));
    rows.push_back({type.type, std::to_string(type.tensors), std::to_string(type.weights), std::to_string(type.bytes),
                    Formatted("%.3f", bits)});
  }
  return HtmlTable(rows);
}

std::string SummaryHtml(const QualityReport& report) {
  const ModelFacts &a = report.reference, &b = report.model;
  return HtmlTable({
      {"", "reference", "model"},
      {"file", a.path, b.path},
      {"bytes of the file", std::to_string(a.file_bytes), std::to_string(b.file_bytes)},
      {"bits per weight", Formatted("%.3f", a.bits_per_weight), Formatted("%.3f", b.bits_per_weight)},
      {"KV cache", a.kv, b.kv},
      {"perplexity", Formatted("%.4f", a.perplexity), Formatted("%.4f", b.perplexity)},
      {"KL divergence, mean", "", Formatted("%.6f", report.kl.mean)},
      {"KL divergence, median", "", Formatted("%.6f", report.kl.median)},
      {"KL divergence, 99th percentile", "", Formatted("%.6f", report.kl.p99)},
      {"KL divergence, largest", "", Formatted("%.6f", report.kl.max)},
      {"same top token", "", Formatted("%.3f %%", report.top1_agreement * 100)},
  });
}

std::string StreamHtml(const QualityReport& report) {
  if (report.stream_error.empty()) {
    return "<p>The models have other shapes, so their layers are not compared.</p>\n";
  }
  Plot plot = {.title = "Error of the residual stream by layer",
               .x_label = "layers passed (0: the embedding)",
               .y_label = "relative error",
               .series = {{"relative error", {}}}};
  for (size_t i = 0; i < report.stream_error.size(); ++i) {
    plot.series[0].points.emplace_back(static_cast<double>(i), report.stream_error[i]);
  }
  return SvgPlot(plot) +
         "<p>Mean over the first window's positions of |model - reference| / |reference|, both on the same "
         "tokens.</p>\n";
}

std::string DivergenceHtml(const QualityReport& report) {
  Plot plot = {.title = "KL divergence of the positions",
               .x_label = "positions with less, %",
               .y_label = "nats",
               .log_y = true,
               .series = {{"KL divergence", {}}}};
  const size_t last = report.kl_values.size() - 1;
  for (size_t i = 0; i <= kQuantilePoints; ++i) {
    const double share = static_cast<double>(i) / kQuantilePoints;
    plot.series[0].points.emplace_back(share * 100, report.kl_values[static_cast<size_t>(share * double(last))]);
  }
  return SvgPlot(plot);
}

}  // namespace

ModelFacts FactsOf(const std::string& path, const formats::ModelFile& file) {
  ModelFacts facts;
  facts.path = path;
  facts.file_bytes = file.file_bytes();
  facts.weight_bytes = file.weight_bytes();
  facts.parameters = ParameterCount(file);
  facts.bits_per_weight = BitsPerWeight(file);
  for (const TensorView& tensor : file.view().tensors()) {
    const std::string type = TypeText(tensor);
    auto at = std::find_if(facts.types.begin(), facts.types.end(), [&](const auto& t) { return t.type == type; });
    if (at == facts.types.end()) at = facts.types.insert(at, {type});
    ++at->tensors;
    at->weights += tensor.elements();
    at->bytes += tensor.data.size() + tensor.scales.size();
  }
  std::stable_sort(facts.types.begin(), facts.types.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
  return facts;
}

std::string QualityText(const QualityReport& report) {
  std::string text = FactsLine("reference", report.reference) + FactsLine("model", report.model);
  text += Formatted(
      "KL divergence over %llu positions (%u windows of %u): mean %.6f, median %.6f, 99th percentile %.6f, "
      "largest %.6f nats; same top token %.3f %%\n",
      static_cast<unsigned long long>(report.tokens), report.windows, report.context, report.kl.mean, report.kl.median,
      report.kl.p99, report.kl.max, report.top1_agreement * 100);
  if (report.stream_error.empty()) return text + "the models have other shapes, so their layers are not compared\n";
  text += "relative error of the residual stream, after\n";
  for (size_t i = 0; i < report.stream_error.size(); ++i) {
    const std::string layer = i == 0 ? "embedding" : "layer " + std::to_string(i - 1);
    text += Formatted("  %-10s %.5f\n", layer.c_str(), report.stream_error[i]);
  }
  return text;
}

std::string QualityJson(const QualityReport& report) {
  const Json json = {{"reference", FactsJson(report.reference)},
                     {"model", FactsJson(report.model)},
                     {"text", report.text},
                     {"context", report.context},
                     {"windows", report.windows},
                     {"tokens", report.tokens},
                     {"bits_per_weight", report.model.bits_per_weight},
                     {"perplexity_reference", report.reference.perplexity},
                     {"perplexity", report.model.perplexity},
                     {"kl_mean", report.kl.mean},
                     {"kl_median", report.kl.median},
                     {"kl_p99", report.kl.p99},
                     {"kl_max", report.kl.max},
                     {"top1_agreement", report.top1_agreement},
                     {"stream_error", report.stream_error}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string QualityHtml(const QualityReport& report) {
  std::string body = "<p>" + HtmlEscape(report.text) +
                     Formatted(": %u windows of %u tokens, %llu positions scored.</p>\n", report.windows,
                               report.context, static_cast<unsigned long long>(report.tokens));
  body += SummaryHtml(report) + "<h2>Layers</h2>\n" + StreamHtml(report);
  body += "<h2>Positions</h2>\n" + DivergenceHtml(report);
  body += "<h2>How the model's weights are stored</h2>\n" + TypesHtml(report.model);
  return HtmlPage("Quality of " + report.model.path, body);
}

}  // namespace linnet::cli
