#include "eval/process_life.h"

#include <unistd.h>

#include <array>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace espalier {
namespace {

// Fields of /proc/PID/stat behind the program's name, which may hold anything.
constexpr std::size_t kState = 0;
constexpr std::size_t kStarted = 19;

// When a process started, in ticks since the host did; nothing: it is not there, or a zombie.
std::optional<std::string> start_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  const std::vector<std::string> fields(std::istream_iterator<std::string>(rest), {});
  if (fields.size() <= kStarted || fields[kState] == "Z" || fields[kState] == "X") return std::nullopt;
  return fields[kStarted];
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

nlohmann::ordered_json this_process() {
  const pid_t process = ::getpid();
  return {{"host", host_name()}, {"pid", process}, {"started", start_of(process).value_or("")}};
}

bool has_ended(const nlohmann::json& process) {
  static const bool can_tell = start_of(::getpid()).has_value();
  if (!can_tell || !process.is_object() || process.value("host", nlohmann::json()) != host_name()) return false;
  const auto number = process.find("pid");
  if (number == process.end() || !number->is_number_integer()) return false;
  const auto start = start_of(number->get<pid_t>());
  return !start || process.value("started", nlohmann::json()) != *start;
}

}  // namespace espalier
