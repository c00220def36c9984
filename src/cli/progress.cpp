#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace espalier {
namespace {

constexpr int kWidth = 30;
constexpr auto kPatience = std::chrono::milliseconds(300);

}  // namespace

ProgressBar::ProgressBar(std::string_view label) : label_(label), enabled_(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::show(double share) {
  if (!enabled_ || std::chrono::steady_clock::now() - start_ < kPatience) return;
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * kWidth);
  std::fprintf(stderr, "\r%s [%s%s] %3d %%", label_.c_str(), std::string(static_cast<std::size_t>(filled), '#').c_str(),
               std::string(static_cast<std::size_t>(kWidth - filled), ' ').c_str(), static_cast<int>(share * 100));
  drawn_ = true;
}

}  // namespace espalier
