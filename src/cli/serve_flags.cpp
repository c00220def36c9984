#include "cli/serve_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text_stream.h"
#include "base/untrusted_text.h"
#include "cli/draft_flags.h"
#include "text/jinja/date.h"

namespace espalier {
namespace {

constexpr double kLongestSeconds = 1e6;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1e3));
}

void add_seconds(CLI::App& app, const char* flag, double& seconds, const char* what) {
  app.add_option(flag, seconds, what)
      ->check(CLI::Range(0.0, kLongestSeconds))
      ->capture_default_str()
      ->type_name("SECONDS");
}

void add_count(CLI::App& app, const char* flag, int& count, int least, int most, const char* what) {
  app.add_option(flag, count, what)->check(CLI::Range(least, most))->capture_default_str()->type_name("N");
}

void add_address_flags(CLI::App& app, ServeFlags& flags) {
  const HelpGroup group(app, "Address and keys");
  HttpOptions& http = flags.options.http;
  app.add_option("--host", http.host, "the address to listen on, or a name")->capture_default_str()->type_name("HOST");
  app.add_option("--port", http.port, "the port; 0: any that is free")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--api-key", flags.keys, "a key that clients must have; may be repeated; others see it in ps")
      ->type_name("KEY")
      ->allow_extra_args(false);
  app.add_option("--api-key-file", flags.key_file,
                 "a file with one key a line; without both, ESPALIER_API_KEY may have one")
      ->type_name("FILE");
  app.add_flag("--no-auth", flags.options.no_auth, "let other machines in without a key");
  app.add_option("--cors-origins", flags.cors,
                 "web pages that may use the server: localhost, * or a list of origins; without it none")
      ->type_name("LIST");
  app.add_option("--allow-host", flags.allow_hosts,
                 "a name that requests may give in Host besides the loopback ones; may be repeated")
      ->type_name("NAME")
      ->allow_extra_args(false);
}

void add_limit_flags(CLI::App& app, ServeFlags& flags) {
  const HelpGroup group(app, "Limits");
  ServerOptions& options = flags.options;
  add_count(app, "--parallel", options.model.parallel, 1, 256, "answers at once; others wait");
  add_count(app, "--queue", options.service.queue, 1, 100'000, "requests that may wait");
  add_count(app, "--max-per-key", options.service.per_key, 0, 100'000, "requests of one key at once; 0: any number");
  add_seconds(app, "--queue-timeout", flags.queue_seconds, "that a request may wait");
  add_seconds(app, "--request-timeout", flags.request_seconds, "that a request may take in all");
  add_seconds(app, "--drain-seconds", flags.drain_seconds, "that running requests have when the server is ended");
  app.add_option("--kv-memory", flags.kv_memory,
                 "for keys and values, as in 2G; without it what --parallel whole contexts need, at most a quarter of "
                 "the RAM, or what is free on a GPU")
      ->type_name("BYTES");
  app.add_option("--stall-ms", flags.stall_ms, "that reading somebody's prompt may delay the others' next tokens")
      ->check(CLI::Range(1.0, 60'000.0))
      ->capture_default_str()
      ->type_name("MS");
  add_count(app, "--max-connections", options.http.limits.connections, 1, 100'000, "then accepting waits");
  app.add_option("--body-limit", flags.body_limit, "the largest request")->default_str("4M")->type_name("BYTES");
}

void add_endpoint_flags(CLI::App& app, ServeFlags& flags) {
  const HelpGroup group(app, "Endpoints");
  ServerOptions& options = flags.options;
  app.add_option("--alias", options.model.alias, "the model's name; without it that of its file")->type_name("NAME");
  app.add_flag("--strict-model", options.model.strict_model, "refuse requests for a model of another name");
  app.add_flag("--priorities", options.model.priorities, "let requests say how urgent they are");
  app.add_flag("--metrics", options.application.metrics, "answer /metrics, for Prometheus");
  app.add_flag("--public-metrics", options.application.public_metrics, "also to those who have no key");
  ApplicationOptions& application = options.application;
  app.add_flag_callback(
      "--no-slots", [&application] { application.slots = false; }, "no /slots");
  app.add_flag_callback(
      "--no-ui", [&application] { application.page = false; }, "no page at /");
  app.add_option("--cache-scope", flags.cache_scope,
                 "who finds what a prompt has cost already: requests with the same key, or all (shared)")
      ->check(CLI::IsMember({"key", "shared"}))
      ->capture_default_str()
      ->type_name("SCOPE");
  app.add_flag("--allow-batch-variance", options.model.allow_batch_variance,
               "serve on a device where an answer depends on its company");
  app.add_option("--dump-dir", options.model.dump_folder,
                 "where to leave a dump of an answer that fails, for espalier replay; without it here")
      ->type_name("DIR");
}

void add_text_flags(CLI::App& app, ServedModelOptions& options) {
  const HelpGroup group(app, "Texts, where requests do not say");
  SamplingFields& sampling = options.sampling;
  const auto number = [&](const char* flag, std::optional<double>& value, double least, double most, const char* what) {
    app.add_option(flag, value, what)->check(CLI::Range(least, most))->type_name("X");
  };
  number("--temperature", sampling.temperature, 0, 2, "0: the most probable token, always");
  number("--top-p", sampling.top_p, 1e-9, 1, "draw from the most probable tokens that together reach p; 1: all");
  app.add_option("--top-k", sampling.top_k, "draw from the k most probable tokens; 0: all")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30))
      ->type_name("N");
  number("--min-p", sampling.min_p, 0, 1, "leave out tokens below this share of the largest probability; 0: none");
  number("--repeat-penalty", sampling.repetition_penalty, 0.01, 100, "for tokens of prompt and answer; 1: off");
  number("--presence-penalty", sampling.presence_penalty, -2, 2, "once for a token of the answer; 0: off");
  number("--frequency-penalty", sampling.frequency_penalty, -2, 2, "each time a token was in the answer; 0: off");
  app.add_option("--seed", options.seed, "without it each request gets one of its own, and is told")
      ->check(CLI::Range(std::uint64_t{0}, UINT64_MAX))
      ->type_name("N");
  app.add_option("--system", options.chat.system,
                 "the system message that the page sends; requests get none but theirs")
      ->type_name("TEXT");
  app.add_flag("--system-default", options.chat.template_system,
               "the system message of the model's own template, where a request has none, also for a model that is "
               "known to answer better without (docs/first-answers.md)");
  app.add_option_function<std::string>(
         "--chat-template",
         [&options](const std::string& file) { options.chat.chat_template = read_text_stream(file); },
         "a file with a chat template (Jinja) to use in place of the model's own")
      ->type_name("FILE");
  app.add_option("--template-variables", options.chat.variables,
                 "variables of the chat template, for example {\"enable_thinking\": false}")
      ->type_name("JSON");
  app.add_option("--date", options.chat.date, "the day that templates which tell the date are given; without it today")
      ->type_name("YYYY-MM-DD");
}

ApiKeys keys_of(const ServeFlags& flags, const Environment& environment) {
  ApiKeys keys;
  for (const std::string& key : flags.keys) keys.add(key, "--api-key");
  if (!flags.key_file.empty()) keys.add_file(flags.key_file);
  const bool given = !flags.keys.empty() || !flags.key_file.empty();
  if (!flags.key_file.empty() && keys.empty()) input_error("{}: no key in it, expected one a line", flags.key_file);
  const std::string variable = environment("ESPALIER_API_KEY").value_or("");
  if (!given && !variable.empty()) keys.add(variable, "ESPALIER_API_KEY");
  return keys;
}

}  // namespace

std::int64_t parse_bytes(std::string_view text, std::string_view flag) {
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  if (unit.ends_with("iB")) unit.remove_suffix(2);
  if (unit.ends_with("B")) unit.remove_suffix(1);
  const std::size_t power = unit.empty() ? 0 : std::string_view("KMGT").find(unit[0]) + 1;  // npos + 1 is 0
  const double bytes = number * std::pow(1024.0, static_cast<double>(power));
  if (error != std::errc() || unit.size() > 1 || (power == 0) != unit.empty() || !(bytes >= 1 && bytes < 0x1p62))
    input_error("{}: expected a number of bytes, as in 512M or 2G, got {}", flag, in_quotes(text));
  return static_cast<std::int64_t>(bytes);
}

void add_serve_flags(CLI::App& app, ServeFlags& flags) {
  add_address_flags(app, flags);
  add_limit_flags(app, flags);
  add_endpoint_flags(app, flags);
  add_engine_flags(app, flags.engine);
  add_draft_flags(app, flags.drafting, Oracle::left_out);
  add_text_flags(app, flags.options.model);
}

ServerOptions server_options(const ServeFlags& flags, const Environment& environment) {
  ServerOptions options = flags.options;
  if (!options.model.chat.date.empty()) jinja::parse_date(options.model.chat.date);
  options.http.keys = keys_of(flags, environment);
  options.http.browsers.cors = parse_cors_origins(flags.cors);
  for (const std::string& host : flags.allow_hosts) options.http.browsers.allow_hosts.push_back(parse_allow_host(host));
  if (!flags.body_limit.empty())
    options.http.limits.body_bytes = static_cast<std::size_t>(parse_bytes(flags.body_limit, "--body-limit"));
  if (!flags.kv_memory.empty()) options.model.kv_bytes = parse_bytes(flags.kv_memory, "--kv-memory");
  options.shared_cache = flags.cache_scope == "shared";
  options.service.queue_time = milliseconds_of(flags.queue_seconds);
  options.service.request_time = milliseconds_of(flags.request_seconds);
  options.model.stall_seconds = flags.stall_ms / 1e3;
  options.model.engine = engine_options(flags.engine);
  options.model.drafting = plan_drafting(flags.drafting, options.model.engine.places);
  if (options.application.public_metrics && !options.application.metrics)
    throw InputError("--public-metrics: only with --metrics");
  return options;
}

}  // namespace espalier
