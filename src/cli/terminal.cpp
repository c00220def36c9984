#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace espalier {
namespace {

constexpr int kDefaultWidth = 100;
constexpr int kNarrowestScreen = 20;

}  // namespace

bool wants_colour(const std::string& choice, bool is_terminal, bool no_color) {
  return choice == "always" || (choice == "auto" && is_terminal && !no_color);
}

bool stdout_wants_colour(const std::string& choice) {
  const char* no_color = std::getenv("NO_COLOR");
  return wants_colour(choice, isatty(STDOUT_FILENO) != 0, no_color != nullptr && *no_color != '\0');
}

int screen_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= kNarrowestScreen) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const std::string_view text = columns == nullptr ? "" : columns;
  int width = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
  const bool usable = error == std::errc() && end == text.data() + text.size() && width >= kNarrowestScreen;
  return usable ? width : kDefaultWidth;
}

}  // namespace espalier
