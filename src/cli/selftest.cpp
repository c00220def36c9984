#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "engine/answer_json.h"
#include "selftest/selftest.h"
#include "selftest/selftest_page.h"
#include "selftest/selftest_report.h"

namespace espalier {
namespace {

struct SelftestFlags {
  EngineOptions engine;  // model and threads
  std::string device = "auto";
  std::vector<std::string> only;  // none: all parts
  std::string json, page;         // files; "": none
  Existing existing = Existing::refuse;
  bool verbose = false;
};

void check_flags(const SelftestFlags& flags) {
  if (flags.json == "-" && flags.page == "-") throw InputError("--json and --page: only one of them can be -");
  if (!flags.json.empty()) check_output(flags.json, flags.existing);
  if (!flags.page.empty()) check_output(flags.page, flags.existing);
  ModeRequest asked;
  asked.device = AskedMode{flags.device, "--device"};
  resolve_modes(asked);
}

SelftestOptions options_of(const SelftestFlags& flags) {
  SelftestOptions options{.engine = flags.engine,
                          .device = flags.device,
                          .only = flags.only,
                          .program = program_file(),
                          .environment = process_variables()};
  options.engine.places = process_places();
  options.engine.ascend = ascend_library(process_environment);
  return options;
}

int run_selftest(const SelftestFlags& flags) {
  check_flags(flags);
  // Results go to standard output, unless that has the JSON or the page.
  const auto say = [&](std::string_view text) {
    if (flags.json == "-" || flags.page == "-") return tell(text);
    print(text);
    flush_output();
  };
  Screen screen(flags.verbose);
  Selftest selftest(options_of(flags), screen, say);
  const InterruptGuard interrupt;
  if (!selftest.run([&] { return interrupt.interrupted(); })) throw Interrupted();
  const SelftestReport& report = selftest.report();
  if (!flags.json.empty()) write_output(flags.json, flags.existing, json_text(selftest_json(report)));
  if (!flags.page.empty()) write_output(flags.page, flags.existing, selftest_page(report));
  say(verdict_text(report) + "\n");
  return report.held() ? 0 : 1;
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
  command
      ->add_option("--only", flags->only, fmt::format("only these parts: {}", fmt::join(selftest_part_names(), ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(selftest_part_names()))
      ->type_name("PART,...");
  add_model_flag(*command, flags->engine);
  add_threads_flag(*command, flags->engine.threads, "threads of the speed table");
  add_force_flag(*command, flags->existing);
  command->add_flag("-v,--verbose", flags->verbose, "say more on standard error");
  return [flags] { return run_selftest(*flags); };
}

}  // namespace espalier
