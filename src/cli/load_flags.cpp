#include "cli/load_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cli/flags.h"

namespace espalier {
namespace {

constexpr int kMostUsers = 64;
constexpr std::int64_t kUsualTokens = 128;
constexpr std::int64_t kUsualInterruptedTokens = 512;  // answers that last while a long prompt is read
constexpr std::int64_t kUsualRequests = 4, kUsualOpenRequests = 32;
constexpr int kUsualRounds = 3;

void add_server_flags(CLI::App& app, LoadFlags& flags) {
  const HelpGroup group(app, "Servers");
  app.add_option("--url", flags.url, "the server to measure")->capture_default_str()->type_name("URL");
  app.add_option("--against", flags.against, "another server, which gets the same load in turn")->type_name("URL");
  app.add_option("--api-key", flags.key, "the server's key; others see it in ps; without it ESPALIER_API_KEY")
      ->type_name("KEY");
  app.add_option("--against-api-key", flags.against_key, "the other's; without it ESPALIER_AGAINST_API_KEY")
      ->type_name("KEY");
  app.add_option("--speculation", flags.speculation,
                 "who drafts for the requests: auto, none or a drafter, of an Espalier server")
      ->type_name("NAME");
  app.add_option("--against-speculation", flags.against_speculation, "the same for the other server")
      ->type_name("NAME");
}

void add_shape_flags(CLI::App& app, LoadFlags& flags) {
  const HelpGroup group(app, "Load");
  app.add_option("--users", flags.users, "users at once, each with the next request when the last has ended; 1,2,4,8")
      ->delimiter(',')
      ->check(CLI::Range(1, kMostUsers))
      ->type_name("N,N,...");
  app.add_option("--rate", flags.rates, "instead: requests a second that wait for nobody, at random times")
      ->delimiter(',')
      ->check(CLI::Range(1e-3, 1e4))
      ->type_name("R,R,...");
  app.add_option("--requests", flags.requests, "requests of each user, 4; with --rate in all, 32")
      ->check(CLI::Range(1, 100'000))
      ->type_name("N");
  app.add_option("--seconds", flags.settings.seconds, "instead: requests begin for so long")
      ->check(CLI::Range(0.1, 1e6))
      ->type_name("S");
  app.add_option("--repeat", flags.rounds, "rounds of every load, the servers in turn; 3, with --interrupt 1")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  app.add_option("--interrupt", flags.settings.interrupt_tokens,
                 "let prompts of so many tokens arrive while users decode, and measure what they notice")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("TOKENS");
  app.add_option("--gaps", flags.settings.interrupt_gaps, "with --interrupt: until so many gaps were disturbed")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->type_name("N");
}

void add_request_flags(CLI::App& app, LoadFlags& flags) {
  const HelpGroup group(app, "Requests");
  app.add_option("--prompts", flags.prompts.kind,
                 "short, long (a thousand tokens), or a file with one JSON object a line, as for eval run")
      ->capture_default_str()
      ->type_name("WHAT");
  app.add_flag("--shared-prefix", flags.prompts.shared_prefix, "all prompts begin with the same thousand tokens");
  app.add_option("-n,--max-tokens", flags.tokens, "tokens of every answer; 128, with --interrupt 512")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  app.add_option("--api", flags.api, "chat or completions")
      ->check(CLI::IsMember({"chat", "completions"}))
      ->capture_default_str()
      ->type_name("NAME");
  app.add_option("--seed", flags.seed, "of prompts and arrivals; without it another one each time, which is told")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{UINT32_MAX}))
      ->type_name("N");
  app.add_option("--timeout", flags.patience_seconds, "a server that is silent for so long has failed")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str()
      ->type_name("S");
}

void add_output_flags(CLI::App& app, LoadFlags& flags) {
  const HelpGroup group(app, "Results");
  app.add_option("--json", flags.json, "write everything to this file too; -: to standard output, alone")
      ->type_name("FILE");
  app.add_option("--chart", flags.chart, "draw it into this SVG file; -: to standard output, alone")->type_name("FILE");
  add_force_flag(app, flags.existing);
}

std::string key_of(const std::string& given, const char* flag, const char* variable, const Environment& environment) {
  std::string key = given.empty() ? environment(variable).value_or("") : given;
  const auto visible = [](char c) { return c > ' ' && c < 0x7f; };
  if (!std::ranges::all_of(key, visible))
    input_error("{}: an API key consists of visible ASCII characters without spaces, and this one does not",
                given.empty() ? variable : flag);
  return key;
}

void check_together(const LoadFlags& flags) {
  if (flags.against.empty() && !(flags.against_key.empty() && flags.against_speculation.empty()))
    throw InputError("--against-api-key and --against-speculation: only with --against");
  if (!flags.rates.empty() && !flags.users.empty()) throw InputError("--rate: not with --users");
  if (flags.settings.seconds > 0 && flags.requests) throw InputError("--seconds: not with --requests");
  const bool interrupted = flags.settings.interrupt_tokens > 0;
  if (interrupted && !flags.rates.empty()) throw InputError("--interrupt: not with --rate");
  if (interrupted && (flags.requests || flags.settings.seconds > 0))
    throw InputError("--interrupt: not with --requests or --seconds; --gaps says how long");
  if (flags.json == "-" && flags.chart == "-") throw InputError("--json and --chart: only one of them can be -");
}

std::vector<LoadShape> shapes_of(const LoadFlags& flags) {
  std::vector<LoadShape> shapes;
  for (const double rate : flags.rates) shapes.push_back({.rate = rate});
  for (const int users : flags.users) shapes.push_back({.users = users});
  if (!shapes.empty()) return shapes;
  if (flags.settings.interrupt_tokens > 0) return {{.users = 4}};
  return {{.users = 1}, {.users = 2}, {.users = 4}, {.users = 8}};
}

}  // namespace

void add_load_flags(CLI::App& app, LoadFlags& flags) {
  add_server_flags(app, flags);
  add_shape_flags(app, flags);
  add_request_flags(app, flags);
  add_output_flags(app, flags);
}

LoadPlan load_plan(const LoadFlags& flags, const Environment& environment, std::uint64_t any_seed) {
  check_together(flags);
  const bool interrupted = flags.settings.interrupt_tokens > 0;
  LoadPlan plan{.shapes = shapes_of(flags), .settings = flags.settings, .prompts = flags.prompts};
  plan.targets.push_back({.url = parse_server_url(flags.url, "--url"),
                          .key = key_of(flags.key, "--api-key", "ESPALIER_API_KEY", environment),
                          .speculation = flags.speculation});
  if (!flags.against.empty())
    plan.targets.push_back(
        {.url = parse_server_url(flags.against, "--against"),
         .key = key_of(flags.against_key, "--against-api-key", "ESPALIER_AGAINST_API_KEY", environment),
         .speculation = flags.against_speculation});
  plan.settings.api = flags.api == "chat" ? LoadApi::chat : LoadApi::completions;
  plan.settings.tokens = flags.tokens.value_or(interrupted ? kUsualInterruptedTokens : kUsualTokens);
  plan.settings.requests = flags.requests.value_or(flags.rates.empty() ? kUsualRequests : kUsualOpenRequests);
  plan.settings.patience = std::chrono::milliseconds(std::llround(flags.patience_seconds * 1e3));
  plan.prompts.seed = flags.seed.value_or(any_seed);
  plan.rounds = flags.rounds.value_or(interrupted ? 1 : kUsualRounds);
  return plan;
}

}  // namespace espalier
