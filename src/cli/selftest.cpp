#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output_file.h"
#include "base/utc_time.h"
#include "bench/benchmark.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/screen.h"
#include "device/named_device.h"
#include "engine/answer_json.h"
#include "engine/host_facts.h"
#include "selftest/selftest_page.h"
#include "selftest/selftest_report.h"

namespace espalier {
namespace {

constexpr std::string_view kSpeed = "speed";

struct SelftestFlags {
  EngineOptions engine;  // model and threads
  std::string device = "auto";
  std::vector<std::string> only;  // none: all parts
  std::string json, page;         // files; "": none
  Existing existing = Existing::refuse;
  bool verbose = false;
};

std::vector<std::string> part_names() {
  std::vector<std::string> names;
  for (const SelftestPart& part : selftest_parts()) names.emplace_back(part.name);
  names.emplace_back(kSpeed);
  return names;
}

bool asked_for(const SelftestFlags& flags, std::string_view part) {
  return flags.only.empty() || std::ranges::find(flags.only, part) != flags.only.end();
}

std::vector<SelftestPart> parts_asked_for(const SelftestFlags& flags, const Device& device) {
  std::vector<SelftestPart> parts;
  for (const SelftestPart& part : selftest_parts(device.row_independent()))
    if (asked_for(flags, part.name)) parts.push_back(part);
  return parts;
}

// A GPU that can be used, or the CPU.
std::string device_of(const SelftestFlags& flags, const cuda::Devices& gpus) {
  if (flags.device != "auto") return flags.device;
  for (const cuda::DeviceInfo& gpu : gpus.gpus)
    if (gpu.problem.empty()) return fmt::format("cuda:{}", gpu.index);
  return "cpu";
}

class Selftest {
 public:
  explicit Selftest(const SelftestFlags& flags) : flags_(flags), screen_(flags.verbose) {}

  int run() {
    begin();
    const InterruptGuard interrupt;
    const auto cancelled = [&] { return interrupt.interrupted(); };
    for (const SelftestPart& part : parts_)
      if (!run_tests(part, cancelled)) throw Interrupted();
    if (asked_for(flags_, kSpeed) && !measure(cancelled)) throw Interrupted();
    return end();
  }

 private:
  // Results go to standard output, unless that has the JSON or the page.
  void say(std::string_view text) const {
    if (flags_.json == "-" || flags_.page == "-") return tell(text);
    print(text);
    flush_output();
  }

  void begin() {
    cuda::Devices gpus = cuda::list_devices();
    device_ = device_of(flags_, gpus);
    for (cuda::DeviceInfo& gpu : gpus.gpus)
      if (device_.starts_with("cuda") && gpu.index == device_number(device_) && gpu.problem.empty()) cuda::look_at(gpu);
    const auto device = make_named_device(
        device_, {.threads = thread_count(flags_.engine.threads), .ascend = ascend_library(process_environment)});
    report_.date = utc_text(UtcForm::record);
    report_.device = device_facts(device_, *device, gpus);
    report_.title = device_title(report_.device);
    report_.build = build_facts();
    report_.machine = machine_json();
    parts_ = parts_asked_for(flags_, *device);
    find_programs();
    for (const std::string& name : part_names())
      if (!asked_for(flags_, name) ||
          (name != kSpeed && std::ranges::find(parts_, name, &SelftestPart::name) == parts_.end()))
        report_.left_out.push_back(name);
    say(fmt::format("espalier {} on {}\n", report_.build["version"].get<std::string>(), report_.title));
  }

  void find_programs() {
    const std::optional<SelftestPlaces> places = find_selftest(program_file(), parts_);
    if (places) {
      places_ = *places;
      return;
    }
    std::vector<std::string_view> programs;
    for (const SelftestPart& part : parts_) programs.push_back(part.program);
    device_error("selftest: {} {} not there: make selftest builds them (the target selftest_programs, with GoogleTest)",
                 fmt::join(programs, ", "), programs.size() == 1 ? "is" : "are");
  }

  // False: it was cancelled.
  bool run_tests(const SelftestPart& part, const std::function<bool()>& cancelled) {
    std::optional<PartResult> result;
    {
      ProgressBar bar(part.name);
      result = run_part({.part = part,
                         .places = places_,
                         .device = device_,
                         .environment = process_variables(),
                         .progress = [&](double share) { bar.show(share); },
                         .cancelled = cancelled});
    }
    if (!result) return false;
    say(part_text(*result));
    report_.parts.push_back(std::move(*result));
    return true;
  }

  // Why there is nothing to measure; empty: there is.
  std::string why_no_speed() const {
    if (device_ == "reference") return "the reference device is there to be read, not to be quick";
    if (report_.device["kind"].get<std::string>().ends_with("(fake)")) return "a fake says nothing of a card's speed";
    if (!flags_.engine.model.empty()) return "";
    try {
      find_model("", process_places());
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  bool measure(const std::function<bool()>& cancelled) {
    report_.speed.left_out = why_no_speed();
    if (!report_.speed.left_out.empty()) {
      say(fmt::format("{:<12} not measured: {}\n", kSpeed, report_.speed.left_out));
      return true;
    }
    try {
      report_.speed.result = measured(cancelled);
    } catch (const DeviceError& error) {
      report_.speed.problem = error.what();
      say(fmt::format("{:<12} FAILED: {}\n", kSpeed, error.what()));
      return true;
    }
    if (!report_.speed.result) return false;
    say("\n" + bench_text(*report_.speed.result) + "\n");
    return true;
  }

  std::optional<BenchResult> measured(const std::function<bool()>& cancelled) {
    EngineOptions options = flags_.engine;
    options.places = process_places();
    options.modes.device = AskedMode{device_, "--device"};
    options.ascend = ascend_library(process_environment);
    options.timed_ops = true;
    OpenEngine engine;
    const double load_seconds = seconds_of([&] { engine = open_engine(options, &screen_); });
    const Drafting drafting(plan_drafting({.draft = "none"}, options.places), engine, 0);
    return run_benchmark({.engine = engine,
                          .drafting = drafting,
                          .sizes = cut_to_context({.contexts = {128, 1024}}, engine.decoder.context),
                          .repeats = 3,
                          .load_seconds = load_seconds,
                          .cancelled = cancelled});
  }

  int end() {
    if (!flags_.json.empty()) write_output(flags_.json, flags_.existing, json_text(selftest_json(report_)));
    if (!flags_.page.empty()) write_output(flags_.page, flags_.existing, selftest_page(report_));
    say(verdict_text(report_) + "\n");
    return report_.held() ? 0 : 1;
  }

  const SelftestFlags& flags_;
  SelftestPlaces places_;
  Screen screen_;
  std::string device_;
  std::vector<SelftestPart> parts_;
  SelftestReport report_;
};

void check_flags(const SelftestFlags& flags) {
  if (flags.json == "-" && flags.page == "-") throw InputError("--json and --page: only one of them can be -");
  if (!flags.json.empty()) check_output(flags.json, flags.existing);
  if (!flags.page.empty()) check_output(flags.page, flags.existing);
  ModeRequest asked;
  asked.device = AskedMode{flags.device, "--device"};
  resolve_modes(asked);
}

int run_selftest(const SelftestFlags& flags) {
  check_flags(flags);
  return Selftest(flags).run();
}

}  // namespace

Command add_selftest(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("selftest", "show that a device computes what it should, and how fast (docs/selftest.md)");
  auto flags = std::make_shared<SelftestFlags>();
  command
      ->add_option("--device", flags->device,
                   "what is judged: auto (a GPU, else cpu), cpu, reference, cuda, cuda:N, ascend or ascend:N")
      ->capture_default_str()
      ->type_name("NAME");
  command->add_option("--json", flags->json, "write all results to this file as one JSON object")->type_name("FILE");
  command->add_option("--page", flags->page, "write them to this file as a page that can be sent to somebody")
      ->type_name("FILE");
  command->add_option("--only", flags->only, fmt::format("only these parts: {}", fmt::join(part_names(), ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(part_names()))
      ->type_name("PART,...");
  add_model_flag(*command, flags->engine);
  add_threads_flag(*command, flags->engine.threads, "threads of the speed table");
  add_force_flag(*command, flags->existing);
  command->add_flag("-v,--verbose", flags->verbose, "say more on standard error");
  return [flags] { return run_selftest(*flags); };
}

}  // namespace espalier
