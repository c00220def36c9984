// What the engine says, on standard error: remarks always, details with -v, progress as a bar on a terminal, which
// gives way to a remark. Thread-safe: while a server loads its model on one thread, another may have to say that it
// ends.
#pragma once

#include <mutex>
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
  const bool verbose_;
  std::mutex mutex_;  // of what follows
  std::string work_;
  std::optional<ProgressBar> bar_;
};

}  // namespace espalier
