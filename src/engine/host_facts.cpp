#include "engine/host_facts.h"

#include <fmt/ranges.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/run_configuration.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

// As x86 names it; Arm tells numbers only.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  return "";
}

Json memory_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), bytes = ::sysconf(_SC_PAGE_SIZE);
  return pages > 0 && bytes > 0 ? Json(static_cast<std::int64_t>(pages) * bytes) : Json();
}

std::string system_name() {
  utsname system{};
  return ::uname(&system) == 0 ? fmt::format("{} {} {}", system.sysname, system.release, system.machine) : "";
}

// As the driver writes it: "Model: \t\t NVIDIA H200".
std::string gpu_model(const std::filesystem::path& information) {
  constexpr std::string_view kModel = "Model:";
  std::ifstream file(information);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kModel)) continue;
    const std::size_t first = line.find_first_not_of(" \t", kModel.size());
    return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(" \t") + 1 - first);
  }
  return "";
}

}  // namespace

std::string gpu_names(const std::filesystem::path& folder) {
  std::map<std::string, int> counts;
  std::error_code ignored;
  for (const auto& gpu : std::filesystem::directory_iterator(folder, ignored))
    if (const std::string model = gpu_model(gpu.path() / "information"); !model.empty()) ++counts[model];
  std::vector<std::string> names;
  for (const auto& [model, count] : counts) names.push_back(count == 1 ? model : fmt::format("{} x {}", count, model));
  return fmt::format("{}", fmt::join(names, ", "));
}

Json machine_json() {
  return {{"cpu", text_or_null(cpu_name())},
          {"cores", host_cores()},
          {"memory_bytes", memory_bytes()},
          {"system", text_or_null(system_name())},
          {"gpu", text_or_null(gpu_names())}};
}

std::string program_state() {
  struct stat status {};
  if (::stat("/proc/self/exe", &status) != 0) return "";
  return fmt::format("{} {}.{}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

int host_cores() {
  return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : host_cores();
}

}  // namespace espalier
