#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <new>
#include <system_error>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "device/ascend/library.h"
#include "engine/build_facts.h"

namespace espalier {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr std::string_view kCommands =
    "generate, chat, serve, compare, tree, inspect, tokenize, perplexity, bench, eval, trace, replay, quantize, "
    "verify or selftest";

int report(std::string_view message, int code) {
  tell(fmt::format("espalier: {}\n", message));
  return code;
}

int show(std::string_view text) {
  print(text);
  flush_output();
  return 0;
}

// The last thing that is done, whatever came before.
class AtExit {
 public:
  explicit AtExit(std::function<void()> act) : act_(std::move(act)) {}
  ~AtExit() { act_(); }
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;

 private:
  std::function<void()> act_;
};

int run(int argc, char** argv) {
  CLI::App app("Espalier: language models on your own machine, the same text every time.", "espalier");
  app.set_version_flag("--version", fmt::format("espalier {}", build_version()), "the version");
  app.set_help_flag("-h,--help", "the options that are used most");
  app.set_help_all_flag("--help-all", "all options");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // commands inherit it
  app.require_subcommand(0, 1);
  std::map<std::string, Command> commands = {{"generate", add_generate(app)}, {"chat", add_chat(app)},
                                             {"serve", add_serve(app)},       {"compare", add_compare(app)},
                                             {"tree", add_tree(app)},         {"inspect", add_inspect(app)},
                                             {"tokenize", add_tokenize(app)}, {"perplexity", add_perplexity(app)},
                                             {"bench", add_bench(app)},       {"eval", add_eval(app)},
                                             {"trace", add_trace(app)},       {"replay", add_replay(app)},
                                             {"quantize", add_quantize(app)}, {"verify", add_verify(app)},
                                             {"selftest", add_selftest(app)}};
  app.allow_extras();  // after the commands, which would inherit it: a wrong command can be named, a wrong flag is
                       // refused
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return show(help_text(app, HelpExtent::usual));
  } catch (const CLI::CallForAllHelp&) {
    return show(help_text(app, HelpExtent::all));
  } catch (const CLI::CallForVersion&) {
    return show(fmt::format("espalier {}\n", build_version()));
  } catch (const CLI::ParseError& error) {
    return report(usage_problem(app, error), kUsage);
  }
  if (app.get_subcommands().empty()) {
    const std::vector<std::string> words = app.remaining();
    return report(words.empty() ? fmt::format("a command is missing: {} (--help tells more)", kCommands)
                                : fmt::format("unknown command '{}', expected {}", words[0], kCommands),
                  kUsage);
  }
  return commands.at(app.get_subcommands().front()->get_name())();
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  using namespace espalier;
  open_missing_descriptors();
  end_on_signals();
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a failed write; the work is given up in good order
  const AtExit close_npus([] { ascend::shut_down(ascend_library(process_environment)); });
  try {
    return run(argc, argv);
  } catch (const OutputClosed&) {
    std::signal(SIGPIPE, SIG_DFL);  // the end that pipes expect, without a word
    return std::raise(SIGPIPE);
  } catch (const Interrupted&) {
    return report("interrupted", kInterrupted);
  } catch (const InputError& error) {
    return report(error.what(), kUsage);
  } catch (const std::filesystem::filesystem_error& error) {
    const bool ours = error.code() == std::errc::no_space_on_device || error.code() == std::errc::io_error;
    return report(fmt::format("{}: {}", error.path1().string(), error.code().message()), ours ? kFailure : kUsage);
  } catch (const std::bad_alloc&) {
    return report("out of memory", kFailure);
  } catch (const std::exception& error) {
    return report(error.what(), kFailure);
  }
}
