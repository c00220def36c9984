// A progress bar on standard error, only when that is a terminal; it wipes itself when done.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace espalier {

class ProgressBar {
 public:
  explicit ProgressBar(std::string_view label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // 0 to 1. Nothing is drawn in the first moments: short work needs no bar.
  void show(double share);

 private:
  std::string label_;
  bool enabled_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace espalier
