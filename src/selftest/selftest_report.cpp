#include "selftest/selftest_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/arithmetic.h"
#include "device/ascend/ascend_device.h"
#include "device/named_device.h"
#include "engine/build_facts.h"
#include "engine/run_configuration.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLinesOfAFailure = 6;

Json gpu_json(const cuda::DeviceInfo& gpu) {
  return {{"name", gpu.name},
          {"capability", gpu.capability},
          {"processors", gpu.processors},
          {"memory_bytes", gpu.memory},
          {"free_bytes", gpu.free_memory}};
}

// With what was found out when it opened.
Json npu_json(const ascend::CardFacts& card) {
  return {{"name", card.chip},
          {"memory_bytes", card.memory},
          {"free_bytes", card.free_memory},
          {"fused_attention", card.fused_version == 0 ? Json() : Json(fmt::format("V{}", card.fused_version))},
          {"probes",
           {{"f32_from_f16", card.f32_from_f16},
            {"f32_from_bf16", card.f32_from_bf16},
            {"fused_over_f16", card.fused_f16},
            {"fused_over_bf16", card.fused_bf16}}}};
}

// Null: the part compares none.
Json answers_json(const TestResults& tests) {
  if (!tests.compares_answers()) return nullptr;
  return {{"equal", tests.answers_equal},
          {"near_ties", tests.near_tie_margins.size()},
          {"margins", tests.near_tie_margins}};
}

Json part_json(const PartResult& part) {
  Json failed = Json::array();
  for (const FailedTest& test : part.tests.failed) failed.push_back({{"name", test.name}, {"message", test.message}});
  return {{"name", part.name},
          {"shows", part.shows},
          {"held", part.held()},
          {"tests", part.tests.tests},
          {"skipped", part.tests.skipped},
          {"failed", failed},
          {"answers", answers_json(part.tests)},
          {"seconds", part.seconds},
          {"problem", text_or_null(part.problem)}};
}

// Figures of the file by its name alone: where it lies is nobody's business.
Json speed_json(const SelftestSpeed& speed) {
  Json figures;
  if (speed.result) {
    figures = bench_json(*speed.result);
    figures["model"] = std::filesystem::path(speed.result->model).filename().string();
  }
  return {{"figures", figures}, {"left_out", text_or_null(speed.left_out)}, {"problem", text_or_null(speed.problem)}};
}

std::string first_lines(const std::string& text, std::size_t most) {
  std::string shown;
  std::size_t begin = 0;
  for (std::size_t lines = 0; begin < text.size() && lines < most; ++lines) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    shown += fmt::format("      {}\n", text.substr(begin, end - begin));
    begin = end + 1;
  }
  return shown;
}

}  // namespace

bool SelftestReport::held() const {
  return speed.problem.empty() && std::ranges::all_of(parts, &PartResult::held);
}

Json device_facts(const std::string& name, const Device& device, const cuda::Devices& gpus) {
  Json facts = {{"device", name},
                {"kind", device.name()},
                {"isa", device.isa()},
                {"row_independent", device.row_independent()},
                {"float_order", device.float_order()},
                {"activations", device.activations()},
                {"gpu", nullptr},
                {"npu", nullptr},
                {"driver", nullptr},
                {"runtime", nullptr}};
  if (const auto card = ascend::card_facts(device)) {
    facts["npu"] = npu_json(*card);
    facts["driver"] = text_or_null(card->driver);
    facts["runtime"] = text_or_null(card->runtime);
  }
  if (!name.starts_with("cuda")) return facts;
  facts["driver"] = text_or_null(gpus.driver);
  facts["runtime"] = text_or_null(gpus.runtime);
  for (const cuda::DeviceInfo& gpu : gpus.gpus)
    if (gpu.index == device_number(name)) facts["gpu"] = gpu_json(gpu);
  return facts;
}

std::string device_title(const Json& facts) {
  auto name = facts.at("device").get<std::string>();
  const auto kind = facts.at("kind").get<std::string>();
  const auto plain = name.substr(0, name.find(':'));
  if (kind.starts_with(plain)) name += kind.substr(plain.size());  // "ascend (fake)"
  if (!facts.at("gpu").is_null()) return fmt::format("{}, {}", name, facts["gpu"]["name"].get<std::string>());
  const auto isa = facts.at("isa").get<std::string>();
  return isa == "portable" ? name : fmt::format("{}, {}", name, isa);
}

Json build_facts() {
  return {{"version", build_version()},
          {"commit", text_or_null(build_commit())},
          {"compiler", build_compiler()},
          {"flags", build_flags()},
          {"arithmetic", kArithmetic}};
}

Json selftest_json(const SelftestReport& report) {
  Json parts = Json::array();
  for (const PartResult& part : report.parts) parts.push_back(part_json(part));
  return {{"schema", kSelftestSchema},
          {"kind", "espalier selftest"},
          {"date", report.date},
          {"held", report.held()},
          {"device", Json::parse(report.device)},
          {"build", Json::parse(report.build)},
          {"machine", Json::parse(report.machine)},
          {"parts", parts},
          {"left_out", report.left_out},
          {"speed", speed_json(report.speed)}};
}

std::string answers_text(const TestResults& tests) {
  if (!tests.compares_answers()) return "";
  std::string text = fmt::format("{} answers equal", tests.answers_equal);
  if (!tests.near_tie_margins.empty())
    text += fmt::format(", {} part at near-ties (margins up to {:.4f})", tests.near_tie_margins.size(),
                        std::ranges::max(tests.near_tie_margins));
  return text;
}

std::string part_text(const PartResult& part) {
  const TestResults& tests = part.tests;
  std::string words = !part.problem.empty()   ? "FAILED: " + part.problem
                      : !tests.failed.empty() ? fmt::format("FAILED: {} of {} tests", tests.failed.size(), tests.tests)
                                              : fmt::format("{} tests held", tests.tests - tests.skipped);
  if (tests.skipped > 0 && part.problem.empty()) words += fmt::format(", {} do not apply", tests.skipped);
  if (tests.compares_answers()) words += ": " + answers_text(tests);
  std::string text = fmt::format("{:<12} {:<40} {:>7.1f} s\n", part.name, words, part.seconds);
  for (const FailedTest& test : tests.failed)
    text += fmt::format("  {}\n{}", test.name, first_lines(test.message, kLinesOfAFailure));
  return text;
}

std::string verdict_text(const SelftestReport& report) {
  std::vector<std::string> failed;
  for (const PartResult& part : report.parts)
    if (!part.held()) failed.push_back(part.name);
  if (!report.speed.problem.empty()) failed.emplace_back("speed");
  const bool judged = !report.parts.empty();
  std::string text = failed.empty()
                         ? fmt::format("{} on {}", judged ? "everything held" : "nothing was judged", report.title)
                         : fmt::format("FAILED on {}: {}", report.title, fmt::join(failed, ", "));
  if (!report.left_out.empty()) text += fmt::format(" (left out: {})", fmt::join(report.left_out, ", "));
  return text;
}

}  // namespace espalier
