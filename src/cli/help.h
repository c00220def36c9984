// What --help and --help-all show of the command that was asked for, within 80 columns.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace espalier {

enum class HelpExtent { usual, all };  // the options that people use, in the order they need them; every option

// Of the innermost command that was parsed.
std::string help_text(const CLI::App& app, HelpExtent extent);

// What is wrong with the words that were typed, in one line that names the command's help.
std::string usage_problem(const CLI::App& app, const CLI::ParseError& error);

}  // namespace espalier
