// Runs a fuzzer without libFuzzer: every file of a folder, then deterministic mutations of them.
//
//   NAME_fuzz CORPUS MUTATIONS [KEEP]   KEEP: a file that always holds the input being run, so that a crash leaves it
//   NAME_fuzz FILE                      one input, as libFuzzer's programs take it
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

constexpr size_t kMaxMutations = 4;  // of one input
constexpr size_t kMaxRun = 16;       // bytes that one mutation inserts, copies or removes

class XorShift {
 public:
  size_t Below(size_t limit) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<size_t>(state_ % limit);
  }

 private:
  uint64_t state_ = 0x9e3779b97f4a7c15u;
};

Bytes ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

/// Sorted by name, since folders are read in any order.
std::vector<Bytes> ReadCorpus(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const fs::path& path : paths) corpus.push_back(ReadFile(path));
  return corpus;
}

/// Sizes and offsets that checks get wrong.
uint64_t EdgeValue(XorShift& random) {
  constexpr uint64_t kValues[] = {
      0,          1,          2,           31,          64,          127,          255,
      65535,      0x7fffffff, 0x80000000u, 0xffffffffu, 0x100000000, ~uint64_t{0}, ~uint64_t{63},
      1ull << 40, 1ull << 62, 1ull << 63};
  return kValues[random.Below(std::size(kValues))];
}

/// Overwrites 1, 2, 4 or 8 bytes.
void Overwrite(Bytes& bytes, size_t at, XorShift& random) {
  const uint64_t value = EdgeValue(random);
  const size_t width = std::min(size_t{1} << random.Below(4), bytes.size() - at);
  std::memcpy(bytes.data() + at, &value, width);
}

/// Puts a copy of some of the bytes somewhere else, or a number in decimal: text formats have no other.
void Insert(Bytes& bytes, size_t at, XorShift& random) {
  if (random.Below(2) == 0) {
    const std::string digits = std::to_string(EdgeValue(random));
    bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), digits.begin(), digits.end());
    return;
  }
  const size_t from = random.Below(bytes.size());
  const size_t count = std::min(1 + random.Below(kMaxRun), bytes.size() - from);
  const Bytes copy(bytes.begin() + static_cast<ptrdiff_t>(from), bytes.begin() + static_cast<ptrdiff_t>(from + count));
  bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), copy.begin(), copy.end());
}

void Mutate(Bytes& bytes, XorShift& random) {
  if (bytes.empty()) return;
  const size_t at = random.Below(bytes.size());
  switch (random.Below(8)) {
    case 0:
    case 1:
      bytes[at] ^= static_cast<uint8_t>(1u << random.Below(8));
      return;
    case 2:
      bytes[at] = static_cast<uint8_t>(random.Below(256));
      return;
    case 3:
    case 4:
      return Overwrite(bytes, at, random);
    case 5:
      return Insert(bytes, at, random);
    case 6: {
      const size_t count = std::min(1 + random.Below(kMaxRun), bytes.size() - at);
      bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.begin() + static_cast<ptrdiff_t>(at + count));
      return;
    }
    default:
      if (random.Below(8) == 0) bytes.resize(at);  // rarely: a cut file is mostly the same finding
  }
}

/// From a buffer of exactly the input's size, so that a read behind it is seen.
void RunOne(const Bytes& bytes, const char* keep) {
  if (keep != nullptr) {
    std::ofstream(keep, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  const Bytes exact(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

int Replay(const fs::path& folder, size_t mutations, const char* keep) {
  const std::vector<Bytes> corpus = ReadCorpus(folder);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: expected files of a corpus, found none\n", folder.c_str());
    return 1;
  }
  for (const Bytes& bytes : corpus) RunOne(bytes, keep);
  XorShift random;
  for (size_t i = 0; i < mutations; ++i) {
    Bytes bytes = corpus[i % corpus.size()];
    const size_t changes = 1 + random.Below(kMaxMutations);
    for (size_t change = 0; change < changes; ++change) Mutate(bytes, random);
    RunOne(bytes, keep);
  }
  std::printf("%zu inputs, %zu mutations\n", corpus.size(), mutations);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) {
    RunOne(ReadFile(argv[1]), nullptr);
    return 0;
  }
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s CORPUS MUTATIONS [KEEP] | FILE\n", argv[0]);
    return 2;
  }
  return Replay(argv[1], std::strtoull(argv[2], nullptr, 10), argc > 3 ? argv[3] : nullptr);
}
