// Speed of a tokenizer on 1 MB of text of many kinds: tokenizer_bench TOKENIZER.JSON [SECONDS_LIMIT]
// One JSON line a text. Exit status 1 where a text takes longer than the limit (2 s unless given).
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/utf8.h"
#include "core/tokenizer.h"
#include "formats/huggingface/tokenizer_json.h"
#include "formats/linnet/tokenizer_section.h"

namespace linnet {
namespace {

constexpr size_t kTextBytes = 1'000'000;

std::string Repeat(const std::string& unit) {
  std::string text;
  while (text.size() < kTextBytes) text += unit;
  return text;
}

/// Words of random letters: `space` between them, or none.
std::string RandomLetters(bool spaces) {
  std::mt19937 random(1);
  std::string text;
  while (text.size() < kTextBytes) {
    const size_t length = 1 + random() % 9;
    for (size_t i = 0; i < length; ++i) text.push_back(static_cast<char>('a' + random() % 26));
    if (spaces) text.push_back(' ');
  }
  return text;
}

std::string RandomCodePoints() {
  std::mt19937 random(2);
  std::string text;
  while (text.size() < kTextBytes) AppendUtf8(static_cast<uint32_t>(0x4e00 + random() % 0x5000), &text);
  return text;
}

/// Combining marks in the wrong order: the worst case of canonical ordering.
std::string Marks() {
  std::string text = "a";
  while (text.size() < kTextBytes) text += text.size() % 4 == 1 ? "\xcc\x81" : "\xcc\xa3";
  return text;
}

double Seconds(const std::chrono::steady_clock::time_point& start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int Run(const char* path, double limit) {
  std::ifstream file(path, std::ios::binary);
  const std::string json((std::istreambuf_iterator<char>(file)), {});
  Diagnostic diagnostic;
  TokenizerSpec spec;
  std::string chat_template;
  GenerationDefaults generation;
  formats::HuggingFaceFiles files;
  files.tokenizer_json = json;
  const auto fail = [&] {
    std::fprintf(stderr, "%s: %s\n", path, diagnostic.text());
    return 1;
  };
  auto start = std::chrono::steady_clock::now();
  if (!formats::ReadHuggingFaceTokenizer(files, &spec, &chat_template, &generation, &diagnostic).ok()) return fail();
  const double read_seconds = Seconds(start);
  start = std::chrono::steady_clock::now();
  const auto section = formats::WriteTokenizerSection(spec, &diagnostic);
  if (!section.ok()) return fail();
  const double write_seconds = Seconds(start);
  start = std::chrono::steady_clock::now();
  auto view = formats::ReadTokenizerSection(*section, &diagnostic);
  if (!view.ok()) return fail();
  auto tokenizer = Tokenizer::Create(std::move(view).value(), &diagnostic);
  if (!tokenizer.ok()) return fail();
  std::printf(
      "{\"test\":\"open\",\"read_json_ms\":%.1f,\"write_section_ms\":%.1f,\"open_ms\":%.2f,\"section_bytes\":%zu,"
      "\"memory_bytes\":%zu}\n",
      1e3 * read_seconds, 1e3 * write_seconds, 1e3 * Seconds(start), section->size(), tokenizer->memory_bytes());

  const std::pair<const char*, std::string> texts[] = {
      {"english",
       Repeat("The quick brown fox jumps over the lazy dog, and it's 1234 times faster than you'd think.\n")},
      {"code", Repeat("for (int i = 0; i < n; ++i) {\n    values[i] = Compute(i, 3.25) + offset;\n}\n")},
      {"random_words", RandomLetters(true)},
      {"random_letters", RandomLetters(false)},
      {"one_letter", Repeat("a")},
      {"newlines", Repeat("\n")},
      {"spaces", Repeat(" ")},
      {"spaces_then_letter", Repeat("                               a")},
      {"digits", Repeat("7")},
      {"punctuation", Repeat("<")},
      {"upper_case", Repeat("A")},
      {"chinese", RandomCodePoints()},
      {"marks", Marks()},
      {"alternating", Repeat("ab ")},
  };
  bool slow = false;
  for (const auto& [name, text] : texts) {
    std::vector<int32_t> ids;
    start = std::chrono::steady_clock::now();
    if (!tokenizer->Encode(text, {.parse_special = true}, &ids, &diagnostic).ok()) return fail();
    const double encode_seconds = Seconds(start);
    start = std::chrono::steady_clock::now();
    const std::string decoded = tokenizer->Decode(ids, false);
    std::printf(
        "{\"test\":\"%s\",\"bytes\":%zu,\"tokens\":%zu,\"encode_s\":%.3f,\"decode_s\":%.3f,\"round_trip\":%s}\n", name,
        text.size(), ids.size(), encode_seconds, Seconds(start), decoded == text ? "true" : "false");
    slow = slow || encode_seconds > limit;
  }
  return slow ? 1 : 0;
}

}  // namespace
}  // namespace linnet

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: tokenizer_bench TOKENIZER.JSON [SECONDS_LIMIT]\n");
    return 2;
  }
  return linnet::Run(argv[1], argc > 2 ? std::atof(argv[2]) : 2.0);
}
