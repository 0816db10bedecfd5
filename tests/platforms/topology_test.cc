#include "platforms/posix/topology.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <vector>

#include "tests/platforms/temporary_folder.h"

namespace {

using linnet::platform::ChooseThreadCount;
using linnet::platform::CutToQuota;
using linnet::platform::FindKilobytes;
using linnet::platform::LogicalCpu;
using linnet::platform::ParseNumber;
using linnet::platform::ReadCpuQuota;
using linnet::testing::TemporaryFolder;
using linnet::testing::WriteFile;

std::vector<LogicalCpu> Cores(std::initializer_list<double> speeds) {
  std::vector<LogicalCpu> cpus;
  for (const double speed : speeds) cpus.push_back({static_cast<uint32_t>(cpus.size()), speed, true});
  return cpus;
}

void MakeGroup(const TemporaryFolder& folder, const std::string& path, const std::string& file,
               const std::string& content) {
  std::filesystem::create_directories(folder / path);
  WriteFile(folder / (path + "/" + file), content);
}

}  // namespace

TEST_SUITE("platforms") {
  TEST_CASE("ChooseThreadCount: counts physical cores of the fast cluster") {
    SUBCASE("equal cores of unknown speed") { CHECK(ChooseThreadCount(Cores({0, 0, 0, 0}), 0) == 4); }
    SUBCASE("two threads a core") {
      std::vector<LogicalCpu> cpus;
      for (uint32_t i = 0; i < 8; ++i) cpus.push_back({i / 2, 0.0, true});
      CHECK(ChooseThreadCount(cpus, 0) == 4);
    }
    SUBCASE("a phone: one prime, three big, four little") {
      CHECK(ChooseThreadCount(Cores({1024, 800, 800, 800, 325, 325, 325, 325}), 0) == 4);
    }
    SUBCASE("a phone: two prime, two middle at half the speed, four little") {
      CHECK(ChooseThreadCount(Cores({124, 124, 124, 124, 498, 498, 1024, 1024}), 0) == 2);
    }
    SUBCASE("a process bound to little cores uses those") {
      auto cpus = Cores({1024, 1024, 300, 300, 300});
      cpus[0].allowed = cpus[1].allowed = false;
      CHECK(ChooseThreadCount(cpus, 0) == 3);
    }
    SUBCASE("no CPU known") { CHECK(ChooseThreadCount({}, 0) == 1); }
  }

  TEST_CASE("ChooseThreadCount: never more than the mask or the quota allows, never less than one") {
    auto cpus = Cores({0, 0, 0, 0, 0, 0, 0, 0});
    CHECK(ChooseThreadCount(cpus, 3.99) == 3);
    CHECK(ChooseThreadCount(cpus, 0.5) == 1);
    CHECK(ChooseThreadCount(cpus, 100.0) == 8);
    for (size_t i = 2; i < 8; ++i) cpus[i].allowed = false;
    CHECK(ChooseThreadCount(cpus, 3.0) == 2);
  }

  TEST_CASE("CutToQuota: whole CPUs of the quota, at least one") {
    CHECK(CutToQuota(4, 0.0) == 4);
    CHECK(CutToQuota(4, 2.9) == 2);
    CHECK(CutToQuota(4, 0.5) == 1);
    CHECK(CutToQuota(4, 8.0) == 4);
  }

  TEST_CASE("ReadCpuQuota: version 2 takes the smallest of the group and those above it") {
    TemporaryFolder folder;
    MakeGroup(folder, "proc/self", "mountinfo", "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
    WriteFile(folder / "proc/self/cgroup", "0::/a.slice/b.service\n");
    SUBCASE("none") {
      MakeGroup(folder, "sys/fs/cgroup/a.slice/b.service", "cpu.max", "max 100000\n");
      CHECK(ReadCpuQuota(folder.path()) == 0.0);
    }
    SUBCASE("of the group") {
      MakeGroup(folder, "sys/fs/cgroup/a.slice/b.service", "cpu.max", "150000 100000\n");
      CHECK(ReadCpuQuota(folder.path()) == doctest::Approx(1.5));
    }
    SUBCASE("of the group above") {
      MakeGroup(folder, "sys/fs/cgroup/a.slice/b.service", "cpu.max", "800000 100000\n");
      WriteFile(folder / "sys/fs/cgroup/a.slice/cpu.max", "200000 100000\n");
      CHECK(ReadCpuQuota(folder.path()) == doctest::Approx(2.0));
    }
    SUBCASE("in a container, at the mount itself") {
      WriteFile(folder / "proc/self/cgroup", "0::/\n");
      MakeGroup(folder, "sys/fs/cgroup", "cpu.max", "50000 100000\n");
      CHECK(ReadCpuQuota(folder.path()) == doctest::Approx(0.5));
    }
    SUBCASE("text that is no number") {
      MakeGroup(folder, "sys/fs/cgroup/a.slice/b.service", "cpu.max", "\n");
      CHECK(ReadCpuQuota(folder.path()) == 0.0);
    }
  }

  TEST_CASE("ReadCpuQuota: version 1 finds the cpu controller among others") {
    TemporaryFolder folder;
    MakeGroup(folder, "proc/self", "mountinfo",
              "33 32 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
              "34 32 0:30 /docker/1234 /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
    WriteFile(folder / "proc/self/cgroup", "5:memory:/docker/1234\n4:cpu,cpuacct:/docker/1234\n");
    MakeGroup(folder, "sys/fs/cgroup/cpu,cpuacct", "cpu.cfs_quota_us", "250000\n");
    WriteFile(folder / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    CHECK(ReadCpuQuota(folder.path()) == doctest::Approx(2.5));
    WriteFile(folder / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    CHECK(ReadCpuQuota(folder.path()) == 0.0);
  }

  TEST_CASE("ReadCpuQuota: a system without these files has none") {
    TemporaryFolder folder;
    CHECK(ReadCpuQuota(folder.path()) == 0.0);
  }

  TEST_CASE("FindKilobytes: finds whole keys only") {
    const std::string text = "VmRSSX:\t 7 kB\nVmRSS:\t    1676 kB\nRssAnon:\t bad\nNoColon 5\nLast:9";
    CHECK(FindKilobytes(text, "VmRSS") == 1676u * 1024);
    CHECK(FindKilobytes(text, "RssAnon") == 0);
    CHECK(FindKilobytes(text, "NoColon") == 0);
    CHECK(FindKilobytes(text, "Last") == 9u * 1024);
    CHECK(FindKilobytes("", "VmRSS") == 0);
  }

  TEST_CASE("ParseNumber: -1 for what is no number") {
    CHECK(ParseNumber("123\n") == 123);
    CHECK(ParseNumber("-1") == -1);
    CHECK(ParseNumber("max") == -1);
    CHECK(ParseNumber("") == -1);
  }
}
