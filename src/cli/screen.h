// What the engine says, on standard error: remarks always, details with -v, progress as a bar on a terminal.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/progress.h"
#include "engine/listener.h"

namespace espalier {

class Screen final : public Listener {
 public:
  explicit Screen(bool verbose) : verbose_(verbose) {}

  void remark(std::string_view line) override;
  void detail(std::string_view line) override;
  void progress(std::string_view work, double share) override;

 private:
  bool verbose_;
  std::string work_;
  std::optional<ProgressBar> bar_;
};

}  // namespace espalier
