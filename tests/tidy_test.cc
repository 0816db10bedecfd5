// Rules of the tree that a compiler does not check: include arrows, sizes, characters, no family in the executor.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace linnet {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxLines = 800;
constexpr size_t kMaxColumns = 120;

struct SourceFile {
  std::string name;  // from the project's folder
  std::vector<std::string> lines;

  bool In(const std::string& folder) const { return name.starts_with(folder + "/"); }
};

std::vector<SourceFile> Sources() {
  std::vector<SourceFile> sources;
  const fs::path root = LINNET_SOURCE_DIR;
  for (const char* folder : {"core", "ops", "formats", "platforms", "capi", "examples", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cc" && extension != ".c") continue;
      SourceFile file = {.name = fs::relative(entry.path(), root).string(), .lines = {}};
      std::ifstream stream(entry.path());
      for (std::string line; std::getline(stream, line);) file.lines.push_back(line);
      sources.push_back(std::move(file));
    }
  }
  return sources;
}

// The folder that an #include line of the project's own names, "" for any other line.
std::string IncludedFolder(const std::string& line) {
  constexpr char kStart[] = "#include \"";
  if (!line.starts_with(kStart)) return "";
  const std::string path = line.substr(sizeof(kStart) - 1);
  if (path.starts_with("core/base/")) return "core/base";
  return path.substr(0, path.find('/'));
}

struct Arrow {
  const char* from;
  std::vector<std::string> to;
};

// style.md's arrows, and one more: formats use the kernels that conversion and run share (the rotation).
const std::vector<Arrow>& Arrows() {
  static const std::vector<Arrow> arrows = {{"core/base", {"core/base"}},
                                            {"core", {"core/base", "core", "ops"}},
                                            {"ops", {"core/base", "ops", "hwy"}},
                                            {"formats", {"core/base", "formats", "ops"}},
                                            {"platforms", {"core/base", "platforms"}},
                                            {"capi", {"core/base", "core", "ops", "formats", "platforms", "capi"}}};
  return arrows;
}

const Arrow* ArrowOf(const SourceFile& file) {
  for (const Arrow& arrow : Arrows()) {
    if (file.In(arrow.from)) return &arrow;  // core/base comes before core
  }
  return nullptr;
}

bool IsHeader(const SourceFile& file) { return file.name.ends_with(".h"); }

std::string Where(const SourceFile& file, size_t line) {
  return file.name + ":" + std::to_string(line + 1) + ": " + file.lines[line];
}

void CheckArrows(const SourceFile& file) {
  const Arrow* arrow = ArrowOf(file);
  if (arrow == nullptr) return;
  for (size_t i = 0; i < file.lines.size(); ++i) {
    const std::string folder = IncludedFolder(file.lines[i]);
    // Generated headers have no folder.
    if (folder.empty() || folder.find('.') != std::string::npos) continue;
    CAPTURE(Where(file, i));
    CHECK(std::find(arrow->to.begin(), arrow->to.end(), folder) != arrow->to.end());
  }
}

void CheckThirdParty(const SourceFile& file) {
  for (size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    if (!line.starts_with("#include <")) continue;
    CAPTURE(Where(file, i));
    const bool library = !file.In("tests") && !file.In("examples");
    if (library && line.find("xnnpack") != std::string::npos) CHECK(file.name.starts_with("ops/xnn_"));
    if (library && line.find("pthreadpool") != std::string::npos) CHECK(file.name == "ops/thread_pool.cc");
    if (line.find("flatbuffers/") != std::string::npos)
      CHECK_FALSE((IsHeader(file) && file.name.find("_file.h") != std::string::npos));
    if (library && (line.find("unistd.h") != std::string::npos || line.find("sys/") != std::string::npos)) {
      CHECK(file.In("platforms"));
    }
  }
}

// Patterns and JSON in raw strings stay as they are.
bool IsQuotedText(const std::string& line) {
  const size_t first = line.find_first_not_of(' ');
  return line.find("R\"(") != std::string::npos || (first != std::string::npos && line[first] == '"');
}

void CheckShape(const SourceFile& file) {
  CAPTURE(file.name);
  CHECK(file.lines.size() <= kMaxLines);
  for (size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    CAPTURE(Where(file, i));
    CHECK((line.size() <= kMaxColumns || IsQuotedText(line)));
    CHECK(std::all_of(line.begin(), line.end(), [](char c) { return c == '\t' || (c >= ' ' && c <= '~'); }));
    CHECK(line.find(std::string("TO") + "DO") == std::string::npos);
  }
}

// Comments may name a family as an example; code may not.
std::string WithoutComment(const std::string& line) { return line.substr(0, line.find("//")); }

}  // namespace

TEST_SUITE("tidy") {
  TEST_CASE("Tree: includes follow the arrows") {
    const std::vector<SourceFile> sources = Sources();
    REQUIRE(sources.size() > 100);
    for (const SourceFile& file : sources) {
      CheckArrows(file);
      CheckThirdParty(file);
    }
  }

  TEST_CASE("Tree: files are of readable size, plain ASCII, and finished") {
    for (const SourceFile& file : Sources()) CheckShape(file);
  }

  TEST_CASE("Tree: the executor and the kernels know no family") {
    for (const SourceFile& file : Sources()) {
      const bool runtime = (file.In("core") && !file.In("core/base") && !file.In("core/jinja")) || file.In("ops");
      if (!runtime) continue;
      for (size_t i = 0; i < file.lines.size(); ++i) {
        std::string line = WithoutComment(file.lines[i]);
        std::transform(line.begin(), line.end(), line.begin(), [](unsigned char c) { return std::tolower(c); });
        for (const char* family :
             {"llama", "qwen", "gemma", "mistral", "mixtral", "falcon", "deepseek", "gpt2", "gpt_oss", "olmo",
              "stablelm", "starcoder", "granite", "smollm", "cohere", "bloom", "phi3"}) {
          // Llama 3's scaling of rotary frequencies is a part of the description.
          if (line.find("kllama3") != std::string::npos || line.find("llama3scaled") != std::string::npos) continue;
          CAPTURE(Where(file, i));
          CHECK(line.find(family) == std::string::npos);
        }
      }
    }
  }
}

}  // namespace linnet
