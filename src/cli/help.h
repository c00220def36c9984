// What --help and --help-all show of the command that was asked for, within 80 columns.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace espalier {

enum class HelpExtent { usual, all };  // the options that people use, in the order they need them; every option

// Of the innermost command that was parsed.
std::string help_text(const CLI::App& app, HelpExtent extent);

}  // namespace espalier
