#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <map>
#include <new>

#include "base/error.h"
#include "cli/commands.h"
#include "engine/build_facts.h"

namespace espalier {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr std::string_view kCommands =
    "generate, chat, compare, tree, inspect, tokenize, perplexity, bench, eval, trace, replay or quantize";

int report(std::string_view message, int code) {
  fmt::print(stderr, "espalier: {}\n", message);
  return code;
}

// CLI11's messages can span lines; the first says what is wrong.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

int run(int argc, char** argv) {
  CLI::App app("Espalier: language models on your own machine, the same text every time.", "espalier");
  app.set_version_flag("--version", fmt::format("espalier {}", build_version()));
  app.require_subcommand(0, 1);
  std::map<std::string, Command> commands = {{"generate", add_generate(app)},
                                             {"chat", add_chat(app)},
                                             {"compare", add_compare(app)},
                                             {"tree", add_tree(app)},
                                             {"inspect", add_inspect(app)},
                                             {"tokenize", add_tokenize(app)},
                                             {"perplexity", add_perplexity(app)},
                                             {"bench", add_bench(app)},
                                             {"eval", add_eval(app)},
                                             {"trace", add_trace(app)},
                                             {"replay", add_replay(app)},
                                             {"quantize", add_quantize(app)}};
  app.allow_extras();  // after the commands, which would inherit it: a wrong command can be named, a wrong flag is
                       // refused
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return report(first_line(error.what()) + " (espalier --help tells more)", kUsage);
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
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a failed write, reported like any other
  try {
    return run(argc, argv);
  } catch (const InputError& error) {
    return report(error.what(), kUsage);
  } catch (const std::bad_alloc&) {
    return report("out of memory", kFailure);
  } catch (const std::exception& error) {
    return report(error.what(), kFailure);
  }
}
