#include "engine/step_times_file.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/arithmetic.h"
#include "base/sha256.h"
#include "engine/cache_file.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kHeadBytes = std::size_t{256} << 10;

void update(Sha256& hash, std::string_view text) {
  hash.update(std::as_bytes(std::span(text)));
}

// Name, size and first bytes: those hold the configuration, and the shapes and types of all tensors.
void update_with_file(Sha256& hash, const std::filesystem::path& path) {
  std::error_code ignored;
  update(hash, fmt::format("{} {}\n", path.filename().string(), std::filesystem::file_size(path, ignored)));
  std::vector<char> head(kHeadBytes);
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  update(hash, std::string_view(head.data(), static_cast<std::size_t>(file.gcount())));
}

// Tells models apart without reading all of their weights.
std::string model_fingerprint(const std::filesystem::path& model) {
  std::error_code ignored;
  std::vector<std::filesystem::path> files = {model};
  if (std::filesystem::is_directory(model, ignored)) {
    files.clear();
    for (const auto& entry : std::filesystem::directory_iterator(model, ignored))
      if (entry.path().extension() == ".json" || entry.path().extension() == ".safetensors")
        files.push_back(entry.path());
    std::ranges::sort(files);
  }
  Sha256 hash;
  for (const auto& file : files) update_with_file(hash, file);
  return hash.finish();
}

// As the kernel names it: one line on x86, the numbers of the core on Arm.
std::string cpu_identity() {
  std::ifstream info("/proc/cpuinfo");
  std::string line, name;
  while (std::getline(info, line) && !line.empty()) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    for (const char* field : {"model name", "CPU implementer", "CPU part", "CPU variant"})
      if (line.starts_with(field)) name += fmt::format("{}{}", name.empty() ? "" : " ", line.substr(colon + 2));
  }
  return name.empty() ? "unknown" : name;
}

// Whatever was compiled again may have other kernels.
std::string build_name() {
  std::error_code ignored;
  const std::filesystem::path program = "/proc/self/exe";
  const auto written = std::filesystem::last_write_time(program, ignored).time_since_epoch().count();
  return fmt::format("{} {}", std::filesystem::file_size(program, ignored), written);
}

}  // namespace

StepTimesKey step_times_key(const OpenEngine& engine, bool taps, std::int64_t rows) {
  const ModeOptions& modes = engine.modes;
  return {.way = {{"arithmetic", std::to_string(kArithmetic)},
                  {"model", model_fingerprint(engine.path)},
                  {"weights", std::to_string(static_cast<int>(engine.weights))},
                  {"device", std::string(engine.device->name())},
                  {"isa", std::string(engine.device->isa())},
                  {"activations", std::string(engine.device->activations())},
                  {"threads", std::to_string(engine.threads)},
                  {"kv", std::string(name(engine.decoder.kv_type))},
                  {"attention", modes.attention},
                  {"mask", modes.mask},
                  {"checked", modes.checked},
                  {"context", std::to_string(engine.decoder.context)},
                  {"taps", taps ? "yes" : "no"},
                  {"rows", std::to_string(rows)}},
          .machine = {{"cpu", cpu_identity()},
                      {"cores", std::to_string(std::thread::hardware_concurrency())},
                      {"build", build_name()}}};
}

StepTimesFile::StepTimesFile(std::filesystem::path folder, StepTimesKey key) : key_(std::move(key)) {
  Sha256 hash;
  update(hash, key_text(key_.way));
  path_ = folder / ("step-times-" + hash.finish().substr(0, 16) + ".json");
}

std::optional<StepTimes> StepTimesFile::load() const {
  const std::optional<Json> read = read_cache_file(path_);
  if (!read) return std::nullopt;
  try {
    const Json& object = *read;
    if (object.at("way") != Json(key_.way) || object.at("machine") != Json(key_.machine)) return std::nullopt;
    StepTimes times{.rows = object.at("rows").get<std::vector<std::int32_t>>(),
                    .contexts = object.at("contexts").get<std::vector<std::int64_t>>(),
                    .seconds = object.at("seconds").get<std::vector<double>>()};
    return times.usable() ? std::optional(std::move(times)) : std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

bool StepTimesFile::save(const StepTimes& times) const {
  return write_cache_file(path_, {{"way", key_.way},
                                  {"machine", key_.machine},
                                  {"rows", times.rows},
                                  {"contexts", times.contexts},
                                  {"seconds", times.seconds}});
}

}  // namespace espalier
