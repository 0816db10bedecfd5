#include "platforms/posix/topology.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "platforms/posix/descriptor.h"

namespace linnet::platform {
namespace {

constexpr size_t kMaxMounts = 10'000;   // lines of mountinfo looked at
constexpr size_t kMaxGroupDepth = 256;  // nested control groups

std::string_view NextLine(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::vector<std::string_view> Split(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t end = line.find(separator);
    fields.push_back(line.substr(0, end));
    if (end == std::string_view::npos) return fields;
    line.remove_prefix(end + 1);
  }
}

bool HasItem(std::string_view list, std::string_view item) {
  const auto items = Split(list, ',');
  return std::find(items.begin(), items.end(), item) != items.end();
}

// The quota of one group in CPUs, 0 for none. v2: cpu.max holds "QUOTA PERIOD" or "max PERIOD".
double GroupQuota(const std::string& folder, bool v2) {
  long long quota = -1;
  long long period = -1;
  if (v2) {
    const std::string text = ReadSystemFile(folder + "/cpu.max");
    quota = ParseNumber(text);
    const size_t space = text.find(' ');
    if (space != std::string::npos) period = ParseNumber(std::string_view(text).substr(space + 1));
  } else {
    quota = ParseNumber(ReadSystemFile(folder + "/cpu.cfs_quota_us"));
    period = ParseNumber(ReadSystemFile(folder + "/cpu.cfs_period_us"));
  }
  return quota > 0 && period > 0 ? static_cast<double>(quota) / static_cast<double>(period) : 0.0;
}

double Smaller(double a, double b) { return a == 0.0 ? b : b == 0.0 ? a : std::min(a, b); }

// The group at `mount` + `path` and every one above it up to the mount.
double SmallestQuota(const std::string& mount, std::string path, bool v2) {
  double quota = GroupQuota(mount, v2);
  for (size_t depth = 0; depth < kMaxGroupDepth && !path.empty() && path != "/"; ++depth) {
    quota = Smaller(quota, GroupQuota(mount + path, v2));
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
  return quota;
}

// The process's group in the hierarchy that holds the cpu controller: "4:cpu,cpuacct:/a" (v1) or "0::/a" (v2).
std::string GroupPath(std::string_view groups, bool v2) {
  while (!groups.empty()) {
    const auto fields = Split(NextLine(groups), ':');
    if (fields.size() < 3) continue;
    const bool match = v2 ? fields[0] == "0" && fields[1].empty() : HasItem(fields[1], "cpu");
    if (match) return std::string(fields[2]);
  }
  return "/";
}

}  // namespace

long long ParseNumber(std::string_view text) {
  long long value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

bool IsFast(double speed, double best_speed) { return speed >= kFastCoreShare * best_speed; }

uint32_t ChooseThreadCount(std::span<const LogicalCpu> cpus, double quota_cpus) {
  double best = 0.0;
  for (const LogicalCpu& cpu : cpus) {
    if (cpu.allowed) best = std::max(best, cpu.speed);
  }
  std::vector<uint32_t> cores;
  for (const LogicalCpu& cpu : cpus) {
    if (cpu.allowed && IsFast(cpu.speed, best)) cores.push_back(cpu.core);
  }
  std::sort(cores.begin(), cores.end());
  return CutToQuota(static_cast<uint32_t>(std::unique(cores.begin(), cores.end()) - cores.begin()), quota_cpus);
}

uint32_t CutToQuota(uint32_t threads, double quota_cpus) {
  if (quota_cpus > 0.0 && quota_cpus < threads) threads = static_cast<uint32_t>(quota_cpus);
  return std::max(threads, 1u);
}

double ReadCpuQuota(const std::string& root) {
  const std::string mounts = ReadSystemFile(root + "/proc/self/mountinfo", 1 << 20);
  const std::string groups = ReadSystemFile(root + "/proc/self/cgroup");
  std::string_view rest = mounts;
  double quota = 0.0;
  for (size_t line_index = 0; line_index < kMaxMounts && !rest.empty(); ++line_index) {
    // "36 35 98:0 ROOT MOUNT options [tags...] - TYPE SOURCE SUPER_OPTIONS"
    const std::string_view line = NextLine(rest);
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto head = Split(line.substr(0, dash), ' ');
    const auto tail = Split(line.substr(dash + 3), ' ');
    if (head.size() < 5 || tail.size() < 3) continue;
    const bool v2 = tail[0] == "cgroup2";
    if (!v2 && !(tail[0] == "cgroup" && HasItem(tail[2], "cpu"))) continue;
    std::string path = GroupPath(groups, v2);
    // A container sees its own group as the mount's root, under the path that the host gave it.
    if (head[3] != "/" && path.compare(0, head[3].size(), head[3]) == 0) path.erase(0, head[3].size());
    quota = Smaller(quota, SmallestQuota(root + std::string(head[4]), path, v2));
  }
  return quota;
}

uint64_t FindKilobytes(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = NextLine(text);
    if (line.size() <= key.size() || line.substr(0, key.size()) != key || line[key.size()] != ':') continue;
    line.remove_prefix(key.size() + 1);
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
    const long long kilobytes = ParseNumber(line);
    return kilobytes > 0 ? static_cast<uint64_t>(kilobytes) * 1024 : 0;
  }
  return 0;
}

}  // namespace linnet::platform
