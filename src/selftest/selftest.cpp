#include "selftest/selftest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/utc_time.h"
#include "bench/figures.h"
#include "device/named_device.h"
#include "engine/build_facts.h"
#include "engine/drafting.h"
#include "engine/host_facts.h"

namespace espalier {
namespace {

constexpr std::string_view kSpeed = "speed";

// A driver may say what is no UTF-8.
std::string as_text(const nlohmann::ordered_json& object) {
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::vector<std::string> selftest_part_names() {
  std::vector<std::string> names;
  for (const SelftestPart& part : selftest_parts()) names.emplace_back(part.name);
  names.emplace_back(kSpeed);
  return names;
}

Selftest::Selftest(SelftestOptions options, Listener& listener, Say say)
    : options_(std::move(options)), listener_(&listener), say_(std::move(say)) {
  cuda::Devices gpus = cuda::list_devices();
  device_ = device_of(gpus);
  for (cuda::DeviceInfo& gpu : gpus.gpus)
    if (device_.starts_with("cuda") && gpu.index == device_number(device_) && gpu.problem.empty()) cuda::look_at(gpu);
  const auto device =
      make_named_device(device_, {.threads = thread_count(options_.engine.threads), .ascend = options_.engine.ascend});
  report_.date = utc_text(UtcForm::record);
  kind_ = device->name();
  const nlohmann::ordered_json facts = device_facts(device_, *device, gpus);
  report_.device = as_text(facts);
  report_.title = device_title(facts);
  report_.build = as_text(build_facts());
  report_.machine = as_text(machine_json());
  for (const SelftestPart& part : selftest_parts(device->row_independent()))
    if (asked_for(part.name)) parts_.push_back(part);
  find_programs();
  leave_out();
  say_(fmt::format("espalier {} on {}\n", build_version(), report_.title));
}

bool Selftest::run(const std::function<bool()>& cancelled) {
  for (const SelftestPart& part : parts_)
    if (!run_tests(part, cancelled)) return false;
  return !asked_for(kSpeed) || measure(cancelled);
}

bool Selftest::asked_for(std::string_view part) const {
  return options_.only.empty() || std::ranges::find(options_.only, part) != options_.only.end();
}

// A GPU that can be used, or the CPU.
std::string Selftest::device_of(const cuda::Devices& gpus) const {
  if (options_.device != "auto") return options_.device;
  for (const cuda::DeviceInfo& gpu : gpus.gpus)
    if (gpu.problem.empty()) return fmt::format("cuda:{}", gpu.index);
  return "cpu";
}

void Selftest::find_programs() {
  const std::optional<SelftestPlaces> places = find_selftest(options_.program, parts_);
  if (places) {
    places_ = *places;
    return;
  }
  std::vector<std::string_view> programs;
  for (const SelftestPart& part : parts_) programs.push_back(part.program);
  device_error("selftest: {} {} not there: make selftest builds them (the target selftest_programs, with GoogleTest)",
               fmt::join(programs, ", "), programs.size() == 1 ? "is" : "are");
}

void Selftest::leave_out() {
  for (const std::string& name : selftest_part_names())
    if (!asked_for(name) || (name != kSpeed && std::ranges::find(parts_, name, &SelftestPart::name) == parts_.end()))
      report_.left_out.push_back(name);
}

// False: it was cancelled.
bool Selftest::run_tests(const SelftestPart& part, const std::function<bool()>& cancelled) {
  std::optional<PartResult> result = run_part({.part = part,
                                               .places = places_,
                                               .device = device_,
                                               .environment = options_.environment,
                                               .progress = [&](double share) { listener_->progress(part.name, share); },
                                               .cancelled = cancelled});
  listener_->progress(part.name, 1);
  if (!result) return false;
  say_(part_text(*result));
  report_.parts.push_back(std::move(*result));
  return true;
}

// Why there is nothing to measure; empty: there is.
std::string Selftest::why_no_speed() const {
  if (device_ == "reference") return "the reference device is there to be read, not to be quick";
  if (kind_.ends_with("(fake)")) return "a fake says nothing of a card's speed";
  if (!options_.engine.model.empty()) return "";
  try {
    find_model("", options_.engine.places);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

bool Selftest::measure(const std::function<bool()>& cancelled) {
  report_.speed.left_out = why_no_speed();
  if (!report_.speed.left_out.empty()) {
    say_(fmt::format("{:<12} not measured: {}\n", kSpeed, report_.speed.left_out));
    return true;
  }
  try {
    report_.speed.result = measured(cancelled);
  } catch (const DeviceError& error) {
    report_.speed.problem = error.what();
    say_(fmt::format("{:<12} FAILED: {}\n", kSpeed, error.what()));
    return true;
  }
  if (!report_.speed.result) return false;
  say_("\n" + bench_text(*report_.speed.result) + "\n");
  return true;
}

std::optional<BenchResult> Selftest::measured(const std::function<bool()>& cancelled) {
  EngineOptions options = options_.engine;
  options.modes.device = AskedMode{device_, "--device"};
  options.timed_ops = true;
  OpenEngine engine;
  const double load_seconds = seconds_of([&] { engine = open_engine(options, listener_); });
  const Drafting drafting(plan_drafting({.draft = "none"}, options.places), engine, 0);
  return run_benchmark({.engine = engine,
                        .drafting = drafting,
                        .sizes = cut_to_context({.contexts = {128, 1024}}, engine.decoder.context),
                        .repeats = 3,
                        .load_seconds = load_seconds,
                        .cancelled = cancelled});
}

}  // namespace espalier
