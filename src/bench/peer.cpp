#include "bench/peer.h"

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/error.h"
#include "bench/figures.h"

namespace espalier {
namespace {

constexpr int kRepeatsPerRun = 3;

}  // namespace

PeerAnswer read_peer_answer(std::string_view json, const PeerTest& test) {
  const auto parsed = nlohmann::json::parse(json, nullptr, false);
  if (parsed.is_discarded() || !parsed.is_array() || parsed.size() != 1 || !parsed[0].is_object())
    return {.problem = "printed no JSON list with one test"};
  const auto samples = parsed[0].find("samples_ns");
  if (samples == parsed[0].end() || !samples->is_array() || samples->empty())
    return {.problem = "printed no samples_ns"};
  std::vector<double> seconds;
  for (const auto& sample : *samples) {
    if (!sample.is_number() || sample.get<double>() <= 0) return {.problem = "printed a samples_ns that is no time"};
    seconds.push_back(sample.get<double>() * 1e-9 / static_cast<double>(std::max<std::int64_t>(1, test.generated)));
  }
  return {.seconds = spread_of(seconds).median};
}

LlamaBench::LlamaBench(std::string program, PeerOptions options)
    : program_(std::move(program)), options_(std::move(options)) {
  if (!std::filesystem::is_regular_file(program_) || access(program_.c_str(), X_OK) != 0)
    input_error("--against {}: expected the path of a llama-bench program", program_);
}

PeerAnswer LlamaBench::run(const PeerTest& test, const std::function<bool()>& cancelled) const {
  std::vector<std::string> command = {program_,
                                      "-m",
                                      options_.model,
                                      "-t",
                                      std::to_string(options_.threads),
                                      "-p",
                                      std::to_string(test.prompt),
                                      "-n",
                                      std::to_string(test.generated),
                                      "-d",
                                      std::to_string(test.depth),
                                      "-r",
                                      std::to_string(kRepeatsPerRun),
                                      "-o",
                                      "json"};
  if (options_.kv != "f16") command.insert(command.end(), {"-ctk", options_.kv, "-ctv", options_.kv});
  const ChildResult result = run_child({.words = command, .cancelled = cancelled});
  if (!result.problem.empty()) input_error("--against {}: cannot start: {}", program_, result.problem);
  if (result.cancelled) return {.interrupted = true};
  if (!result.succeeded()) return {.problem = end_of_child(result)};
  return read_peer_answer(result.output, test);
}

PeerAnswer LlamaBench::measure(PeerTest test, const std::function<bool()>& cancelled, std::int64_t& depth_used) const {
  depth_used = test.depth;
  const PeerAnswer answer = run(test, cancelled);
  if (answer.seconds || answer.interrupted || test.depth == 0) return answer;
  test.depth = depth_used = 0;
  PeerAnswer shallow = run(test, cancelled);
  if (!shallow.seconds && !shallow.interrupted) shallow.problem = answer.problem;
  return shallow;
}

}  // namespace espalier
