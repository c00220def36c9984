// What measuring a text came to: in figures, and as a file of the log-probabilities behind them (docs/eval.md).
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/output_file.h"
#include "engine/engine.h"
#include "eval/perplexity.h"

namespace espalier {

struct Perplexity {
  double value = 0;
  double standard_error = 0;
};
Perplexity perplexity_of(const RunningMean& surprise);

// One line for people.
std::string perplexity_text(const RunningMean& surprise, const WindowOptions& windows);
nlohmann::ordered_json perplexity_json(const RunningMean& surprise, const WindowOptions& windows,
                                       const OpenEngine& engine);

// One line a token: its place in the text, its id, its log-probability, with tabs between.
class LogprobFile {
 public:
  LogprobFile(const std::filesystem::path& path, Existing existing) : file_(path, existing) {}

  void add(const CountedToken& token);
  void finish();

 private:
  void write();

  OutputFile file_;
  std::string lines_;
};

}  // namespace espalier
