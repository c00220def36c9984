#include "cli/help.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

namespace espalier {
namespace {

constexpr std::size_t kHelpWidth = 80;
constexpr std::size_t kHelpColumn = 27;  // where descriptions begin
constexpr std::size_t kFew = 14;         // so many options are shown whole

// Of commands with many options, those that people use, in the order they need them.
const std::map<std::string_view, std::vector<const char*>>& usual_options() {
  static const std::map<std::string_view, std::vector<const char*>> usual = {
      {"generate",
       {"--file", "--model", "--max-tokens", "--system", "--temperature", "--top-p", "--seed", "--stop", "--draft",
        "--json", "--device", "--context", "--verbose"}},
      {"chat",
       {"--model", "--max-tokens", "--system", "--temperature", "--top-p", "--seed", "--draft", "--keep-history",
        "--no-loop-guard", "--quiet", "--trace", "--device", "--context", "--verbose"}},
      {"serve",
       {"--host", "--port", "--model", "--parallel", "--api-key-file", "--no-auth", "--cors-origins", "--kv-memory",
        "--metrics", "--draft", "--device", "--context", "--threads", "--verbose"}},
      {"compare",
       {"--file", "--model", "--max-tokens", "--system", "--temperature", "--seed", "--draft", "--tree", "--json",
        "--device", "--context", "--verbose"}},
      {"tree",
       {"--file", "--model", "--svg", "--force", "--round", "--max-tokens", "--draft", "--tree", "--draft-nodes",
        "--list", "--color", "--verbose"}},
      {"perplexity",
       {"--model", "--window", "--second-half", "--logprobs", "--force", "--json", "--threads", "--kv", "--weights",
        "--verbose"}},
      {"bench",
       {"--model", "--rows", "--contexts", "--repeat", "--against", "--draft", "--device", "--threads", "--json",
        "--verbose"}},
      {"bench serve",
       {"--url", "--against", "--users", "--rate", "--prompts", "--shared-prefix", "--max-tokens", "--requests",
        "--interrupt", "--repeat", "--json", "--chart"}},
      {"eval run",
       {"--data", "--suite", "--out", "--resume", "--baseline", "--limit", "--model", "--draft", "--max-tokens",
        "--temperature", "--seed", "--device", "--dry-run", "--verbose"}},
      {"replay", {"--turn", "--model", "--device", "--threads", "--verbose"}},
      {"verify", {"--model", "--json", "--device", "--threads", "--verbose"}}};
  return usual;
}

using Options = std::vector<const CLI::Option*>;

const CLI::App* innermost(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string full_name(const CLI::App* app) {
  const CLI::App* parent = app->get_parent();
  return parent == nullptr ? app->get_name() : full_name(parent) + " " + app->get_name();
}

// "eval run", without the program's own.
std::string command_name(const CLI::App& app) {
  const std::string name = full_name(&app);
  return name.substr(std::min(name.find(' '), name.size() - 1) + 1);
}

// `text` behind `label`, broken between words.
std::string entry(const std::string& label, const std::string& text) {
  std::string shown = "  " + label;
  std::size_t column = shown.size();
  const auto begin_line = [&] {
    shown += "\n" + std::string(kHelpColumn, ' ');
    column = kHelpColumn;
  };
  if (column + 2 > kHelpColumn)
    begin_line();
  else
    shown.append(kHelpColumn - column, ' '), column = kHelpColumn;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const bool first = column == kHelpColumn;
    if (!first && column + 1 + (end - begin) > kHelpWidth) {
      begin_line();
    } else if (!first) {
      shown += ' ';
      ++column;
    }
    shown += text.substr(begin, end - begin);
    column += end - begin;
    begin = end + 1;
  }
  return shown + "\n";
}

std::string label_of(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name();
  std::string names = option.get_name(false, true);
  if (const std::size_t comma = names.find(','); comma != std::string::npos) names.insert(comma + 1, " ");
  // Of a flag that may have a value the library shows the one that it has without.
  if (const std::size_t brace = names.find('{'); brace != std::string::npos) names = names.substr(0, brace) + "[=NAME]";
  if (!names.starts_with("-") || names.starts_with("--")) names = "    " + names;
  const bool takes_value = option.get_items_expected_max() > 0 && option.get_type_size() > 0;
  std::string type = option.get_type_name();
  type = type.substr(0, type.find(':'));  // behind it stands what is allowed, which a wrong value is told
  return takes_value && !type.empty() ? names + " " + type : names;
}

std::string description_of(const CLI::Option& option) {
  const std::string& value = option.get_default_str();
  return option.get_description() + (value.empty() ? "" : fmt::format(" [{}]", value));
}

std::string shown(const Options& options) {
  std::string text;
  for (const CLI::Option* option : options) text += entry(label_of(*option), description_of(*option));
  return text;
}

Options visible(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
}

// Arguments, then the usual options in their order, then how to see all.
Options usual(const CLI::App& app) {
  const Options all = visible(app);
  const auto names = usual_options().find(command_name(app));
  if (all.size() <= kFew || names == usual_options().end()) return all;
  Options options;
  std::ranges::copy_if(all, std::back_inserter(options), [](const CLI::Option* o) { return o->get_positional(); });
  for (const char* name : names->second)
    if (const CLI::Option* option = app.get_option_no_throw(name); option != nullptr) options.push_back(option);
  options.push_back(app.get_help_all_ptr());
  return options;
}

std::string grouped(const CLI::App& app) {
  std::vector<std::string> titles;
  std::map<std::string, Options> groups;
  for (const CLI::Option* option : visible(app)) {
    const std::string title = option->get_positional() ? "Arguments" : option->get_group();
    if (!groups.contains(title)) titles.push_back(title);
    groups[title].push_back(option);
  }
  std::string text;
  for (const std::string& title : titles)
    text += fmt::format("{}{}:\n", text.empty() ? "" : "\n", title) + shown(groups[title]);
  return text;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string usage(const CLI::App& app) {
  std::string text = full_name(&app);
  const bool needs_command = app.get_parent() == nullptr || app.get_require_subcommand_min() > 0;
  if (!commands_of(app).empty()) return text + (needs_command ? " COMMAND [OPTIONS]" : " [COMMAND] [OPTIONS]");
  text += " [OPTIONS]";
  for (const CLI::Option* option : visible(app))
    if (option->get_positional()) {
      const std::string name = option->get_name() + (option->get_items_expected_max() > 1 ? "..." : "");
      text += option->get_required() ? " " + name : fmt::format(" [{}]", name);
    }
  return text;
}

// Of leftover words a flag says more than what stands behind it.
std::string leftover(const std::vector<std::string>& words) {
  const auto flag = std::ranges::find_if(words, [](const std::string& word) { return word.starts_with('-'); });
  if (flag != words.end()) return fmt::format("unknown flag {}", flag->substr(0, flag->find('=')));
  return fmt::format("'{}' is one word too many: several words are put in quotes", words.front());
}

std::string names_of(const std::vector<const CLI::App*>& commands) {
  std::string names;
  for (const CLI::App* command : commands)
    names += (names.empty() ? "" : command == commands.back() ? " or " : ", ") + command->get_name();
  return names;
}

// The library's own words, but for those that it says in the language of its insides.
std::string problem(const CLI::App& command, const CLI::ParseError& error) {
  const std::vector<std::string> words = command.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !words.empty()) return leftover(words);
  const std::string what = error.what();
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && command.get_require_subcommand_min() > 0)
    return "expected " + names_of(commands_of(command));
  constexpr std::string_view kConversion = "Could not convert: ";
  const std::size_t equals = what.find(" = ");
  if (what.starts_with(kConversion) && equals != std::string::npos)
    return fmt::format("{}: expected a number, got '{}'", what.substr(kConversion.size(), equals - kConversion.size()),
                       what.substr(equals + 3));
  return what.substr(0, what.find('\n'));
}

}  // namespace

std::string usage_problem(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = *innermost(&app);
  const std::string said = problem(command, error);
  if (command.get_parent() == nullptr) return said + " (espalier --help tells more)";
  const std::string name = command_name(command);
  return fmt::format("{}: {} (espalier {} --help tells more)", name, said, name);
}

std::string help_text(const CLI::App& app, HelpExtent extent) {
  const CLI::App& command = *innermost(&app);
  std::string text = fmt::format("{}\n\n{}\n\n", usage(command), command.get_description());
  const std::vector<const CLI::App*> commands = commands_of(command);
  for (const CLI::App* each : commands) text += entry(each->get_name(), each->get_description());
  if (!commands.empty())
    text += fmt::format("\n{} COMMAND --help shows the options of a command\n\n", full_name(&command));
  return text + (extent == HelpExtent::all ? grouped(command) : shown(usual(command)));
}

}  // namespace espalier
