#include "cli/screen.h"

#include <fmt/format.h>

#include "cli/output.h"

namespace espalier {

void Screen::remark(std::string_view line) {
  const std::lock_guard lock(mutex_);
  bar_.reset();
  tell(fmt::format("espalier: {}\n", line));
}

void Screen::detail(std::string_view line) {
  if (verbose_) tell(fmt::format("{}\n", line));
}

void Screen::progress(std::string_view work, double share) {
  const std::lock_guard lock(mutex_);
  if (!bar_ || work != work_) {
    bar_.emplace(work);
    work_ = work;
  }
  bar_->show(share);
  if (share >= 1) bar_.reset();
}

}  // namespace espalier
