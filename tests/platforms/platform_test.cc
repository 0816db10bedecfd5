#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <vector>

#include "platforms/clock.h"
#include "platforms/console.h"
#include "platforms/cpu.h"
#include "platforms/dot_product_peak.h"
#include "platforms/files.h"
#include "platforms/memory.h"
#include "tests/platforms/temporary_folder.h"

namespace {

using namespace linnet::platform;
using linnet::Diagnostic;
using linnet::StatusCode;
using linnet::testing::TemporaryFolder;

// Sets an environment variable (null: removes it) and puts the old value back.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    const char* old = std::getenv(name);
    had_ = old != nullptr;
    if (had_) old_ = old;
    value != nullptr ? setenv(name, value, 1) : unsetenv(name);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ~ScopedVariable() { had_ ? setenv(name_, old_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  bool had_ = false;
  std::string old_;
};

// Feeds `text` to standard input while it lives.
class ScopedInput {
 public:
  explicit ScopedInput(const std::string& text) : saved_(dup(0)) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    REQUIRE(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    close(ends[1]);
    dup2(ends[0], 0);
    close(ends[0]);
  }
  ScopedInput(const ScopedInput&) = delete;
  ~ScopedInput() {
    dup2(saved_, 0);
    close(saved_);
  }

 private:
  int saved_;
};

}  // namespace

TEST_SUITE("platforms") {
  TEST_CASE("DescribeCpu: the parts agree with each other") {
    const CpuInfo info = DescribeCpu();
    CHECK(info.logical_cpus >= 1);
    CHECK(info.cores >= 1);
    CHECK(info.cores <= info.logical_cpus);
    CHECK(info.allowed_cpus <= info.logical_cpus);
    CHECK(info.default_threads >= 1);
    CHECK(info.default_threads <= info.allowed_cpus);
    CHECK(info.default_threads == DefaultThreadCount());
    if (info.quota_cpus >= 1.0) CHECK(info.default_threads <= info.quota_cpus);
    uint32_t cores = 0;
    for (const CpuCluster& cluster : info.clusters) cores += cluster.cores;
    if (!info.clusters.empty()) {
      CHECK(cores == info.cores);
      CHECK(info.clusters[0].fast);
    }
  }

  TEST_CASE("DefaultThreadCount: follows the affinity mask") {
    cpu_set_t old;
    REQUIRE(sched_getaffinity(0, sizeof(old), &old) == 0);
    int first = 0;
    while (!CPU_ISSET(first, &old)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0) {
      MESSAGE("skipped: the affinity mask cannot be set here");
      return;
    }
    CHECK(DefaultThreadCount() == 1);
    CHECK(DescribeCpu().allowed_cpus == 1);
    sched_setaffinity(0, sizeof(old), &old);
  }

  TEST_CASE("BindToCpus: binds to allowed CPUs and names one that is not") {
    cpu_set_t old;
    REQUIRE(sched_getaffinity(0, sizeof(old), &old) == 0);
    uint32_t first = 0, outside = 0;
    while (!CPU_ISSET(first, &old)) ++first;
    while (CPU_ISSET(outside, &old)) ++outside;
    Diagnostic diagnostic;
    CHECK(BindToCpus({}, &diagnostic).code() == StatusCode::kInvalidArgument);
    const uint32_t mixed[] = {first, outside};
    CHECK(BindToCpus(mixed, &diagnostic).code() == StatusCode::kInvalidArgument);
    CHECK(std::string(diagnostic.text()).find("found " + std::to_string(outside)) != std::string::npos);
    const uint32_t beyond[] = {100'000};
    CHECK(BindToCpus(beyond, &diagnostic).code() == StatusCode::kInvalidArgument);
    cpu_set_t now;
    REQUIRE(sched_getaffinity(0, sizeof(now), &now) == 0);
    CHECK(CPU_EQUAL(&now, &old));  // nothing changed
    const uint32_t twice[] = {first, first};
    if (!BindToCpus(twice, &diagnostic).ok()) {
      MESSAGE("skipped: the affinity mask cannot be set here");
      return;
    }
    REQUIRE(sched_getaffinity(0, sizeof(now), &now) == 0);
    CHECK(CPU_COUNT(&now) == 1);
    CHECK(CPU_ISSET(first, &now));
    CHECK(DefaultThreadCount() == 1);
    sched_setaffinity(0, sizeof(old), &old);
  }

  TEST_CASE("LockMemory: locks whole pages, and a limit that is too small is told with what is needed") {
    struct rlimit old = {};
    REQUIRE(getrlimit(RLIMIT_MEMLOCK, &old) == 0);
    std::vector<std::byte> small(100), large(1 << 20);
    const std::span<const std::byte> one[] = {small}, both[] = {small, large, {}};
    Diagnostic diagnostic;
    if (old.rlim_cur >= 65536) CHECK(LockMemory(one, &diagnostic).ok());
    // A process with CAP_IPC_LOCK is not limited: the child gives every privilege up.
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const struct rlimit limit = {65536, 65536};
      if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (geteuid() == 0 && setuid(65534) != 0)) _exit(2);
      const bool refused = LockMemory(both, &diagnostic).code() == StatusCode::kOutOfMemory;
      const std::string text = diagnostic.text();
      const bool told = text.find("found 65536") != std::string::npos && text.find("ulimit -l") != std::string::npos;
      _exit(refused && told ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2) {
      MESSAGE("skipped: the limit cannot be set here");
    } else {
      CHECK(WEXITSTATUS(status) == 0);
    }
  }

  TEST_CASE("MonotonicNanoseconds: does not go back and counts nanoseconds") {
    const uint64_t start = MonotonicNanoseconds();
    usleep(2000);
    const uint64_t end = MonotonicNanoseconds();
    CHECK(end - start >= 2'000'000);
    CHECK(SecondsSince(start) >= 0.002);
  }

  TEST_CASE("ReadMemoryCounters: sees memory come, and the peak start again") {
    auto before = ReadMemoryCounters();
    if (!before.ok()) {
      MESSAGE("skipped: this system does not count memory");
      return;
    }
    constexpr size_t kBytes = size_t{32} << 20;
    {
      std::vector<char> block(kBytes, 1);
      auto during = ReadMemoryCounters();
      REQUIRE(during.ok());
      // Half: the kernel batches these counters per CPU, and sanitizers reuse freed memory.
      CHECK(during->anonymous_bytes >= before->anonymous_bytes + kBytes / 2);
      CHECK(during->peak_resident_bytes >= during->anonymous_bytes);
      CHECK(block[kBytes / 2] == 1);
    }
    if (!ResetPeakMemory()) {
      MESSAGE("skipped: the peak cannot be reset here");
      return;
    }
    auto after = ReadMemoryCounters();
    REQUIRE(after.ok());
    CHECK(after->peak_resident_bytes < after->resident_bytes + kBytes / 2);
  }

  TEST_CASE("ResidentProgramBytes: is part of the resident files") {
    const uint64_t program = ResidentProgramBytes();
    if (program == 0) {
      MESSAGE("skipped: this system does not list mappings");
      return;
    }
    auto counters = ReadMemoryCounters();
    REQUIRE(counters.ok());
    CHECK(program >= 64 << 10);  // this code and the C library's
    CHECK(program <= counters->file_bytes + (1 << 20));
  }

  TEST_CASE("MeasureReadBandwidth: gives a possible figure and refuses no threads") {
    Diagnostic diagnostic;
    auto measured = MeasureReadBandwidth(1, &diagnostic);
    REQUIRE_MESSAGE(measured.ok(), diagnostic.text());
    CHECK(measured->bytes_per_s > 1e8);
    CHECK(measured->bytes_per_s < 1e13);
    CHECK(measured->spread >= 0.0);
    CHECK(measured->threads == 1);
    if (measured->beyond_cache) CHECK(measured->buffer_bytes >= 4 * DescribeCpu().last_level_cache_bytes());
    auto two = MeasureReadBandwidth(2, &diagnostic);
    REQUIRE_MESSAGE(two.ok(), diagnostic.text());
    CHECK(two->threads == 2);
    CHECK(MeasureReadBandwidth(0, &diagnostic).status().code() == StatusCode::kInvalidArgument);
  }

  TEST_CASE("MeasureDotProductPeak: names the instruction, gives a possible figure and refuses no threads") {
    Diagnostic diagnostic;
    auto one = MeasureDotProductPeak(1, &diagnostic);
    REQUIRE_MESSAGE(one.ok(), diagnostic.text());
    // From a sixteenth of a multiply-add a cycle (an emulator) to more than any core has.
    CHECK(one->multiply_adds_per_s > 1e7);
    CHECK(one->multiply_adds_per_s < 1e13);
    CHECK(one->spread >= 0.0);
    CHECK(one->threads == 1);
    CHECK(std::string(one->instruction).find("bits") != std::string::npos);
    auto two = MeasureDotProductPeak(2, &diagnostic);
    REQUIRE_MESSAGE(two.ok(), diagnostic.text());
    CHECK(two->threads == 2);
    CHECK(MeasureDotProductPeak(0, &diagnostic).status().code() == StatusCode::kInvalidArgument);
  }

  TEST_CASE("CacheFolderPath: takes the first variable that is set") {
    ScopedVariable home("HOME", "/home/x");
    ScopedVariable xdg("XDG_CACHE_HOME", "/caches");
    ScopedVariable own("LINNET_CACHE", "own");
    Diagnostic diagnostic;
    CHECK(*CacheFolderPath(&diagnostic) == "own");
    unsetenv("LINNET_CACHE");
    CHECK(*CacheFolderPath(&diagnostic) == "/caches/linnet");
    setenv("XDG_CACHE_HOME", "relative", 1);
    CHECK(*CacheFolderPath(&diagnostic) == "/home/x/.cache/linnet");
    unsetenv("HOME");
    CHECK(CacheFolderPath(&diagnostic).status().code() == StatusCode::kIoError);
    CHECK(std::string(diagnostic.text()).find("LINNET_CACHE") != std::string::npos);
  }

  TEST_CASE("MakeFolders: makes what is missing and names what is in the way") {
    TemporaryFolder folder;
    Diagnostic diagnostic;
    CHECK(MakeFolders(folder / "a/b/c", &diagnostic).ok());
    CHECK(MakeFolders(folder / "a/b/c/", &diagnostic).ok());
    CHECK(IsFolder(folder / "a/b/c"));
    linnet::testing::WriteFile(folder / "file", "");
    CHECK_FALSE(IsFolder(folder / "file"));
    CHECK(MakeFolders(folder / "file/x", &diagnostic).code() == StatusCode::kIoError);
    CHECK(std::string(diagnostic.text()).find(folder / "file") != std::string::npos);
  }

  TEST_CASE("RemoveUnusedFiles: removes what has the suffix and was neither used nor written lately") {
    TemporaryFolder folder;
    const auto make = [&](const std::string& name, time_t age) {
      linnet::testing::WriteFile(folder / name, "four");
      const timespec times[2] = {{time(nullptr) - age, 0}, {time(nullptr) - age, 0}};
      REQUIRE(utimensat(AT_FDCWD, (folder / name).c_str(), times, 0) == 0);
    };
    make("old.packed", 1000);
    make("new.packed", 10);
    make("used.packed", 1000);
    make("future.packed", -100'000);
    make("old.other", 1000);
    linnet::testing::WriteFile(folder / "target", "x");
    REQUIRE(symlink((folder / "target").c_str(), (folder / "link.packed").c_str()) == 0);
    REQUIRE(mkdir((folder / "folder.packed").c_str(), 0777) == 0);
    MarkUsed(folder / "used.packed");
    RemovedFiles removed = RemoveUnusedFiles(folder.path(), ".packed", 500);
    CHECK(removed.count == 1);
    CHECK(removed.bytes == 4);
    CHECK(access((folder / "old.packed").c_str(), F_OK) != 0);
    removed = RemoveUnusedFiles(folder.path(), ".packed", 0);
    CHECK(removed.count == 3);
    CHECK(folder.count() == 4);  // the other suffix, the link, its target, the folder
    CHECK(RemoveUnusedFiles(folder / "none", ".packed", 0).count == 0);
    MarkUsed(folder / "none");  // nothing happens
  }

  TEST_CASE("InterruptScope: a signal raises the flag and old handlers come back") {
    struct sigaction before = {};
    sigaction(SIGINT, nullptr, &before);
    {
      InterruptScope scope;
      CHECK_FALSE(InterruptScope::Requested());
      raise(SIGINT);
      CHECK(InterruptScope::Requested());
      CHECK_FALSE(InterruptScope::TerminateRequested());
      InterruptScope::Clear();
      CHECK_FALSE(InterruptScope::Requested());
      {
        InterruptScope inner;
        raise(SIGINT);
      }
      CHECK(InterruptScope::Requested());
    }
    struct sigaction after = {};
    sigaction(SIGINT, nullptr, &after);
    CHECK(after.sa_handler == before.sa_handler);
  }

  TEST_CASE("LineReader: gives lines, a last one without newline, and skips one that is too long") {
    LineReader reader;
    std::string line;
    ScopedInput input("one\n\nlonger line\nlast");
    CHECK(reader.Read(100, &line) == LineStatus::kLine);
    CHECK(line == "one");
    CHECK(reader.Read(100, &line) == LineStatus::kLine);
    CHECK(line.empty());
    CHECK(reader.Read(10, &line) == LineStatus::kTooLong);
    CHECK(line.empty());
    CHECK(reader.Read(100, &line) == LineStatus::kLine);
    CHECK(line == "last");
    CHECK(reader.Read(100, &line) == LineStatus::kEnd);
    CHECK_FALSE(IsTerminal(Stream::kInput));
  }
}
