#include "eval/perplexity_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/math.h"

namespace espalier {
namespace {

constexpr std::size_t kWrittenBytes = 1 << 16;  // of log-probabilities, at a time

}  // namespace

Perplexity perplexity_of(const RunningMean& surprise) {
  const double perplexity = exp_f64(surprise.mean());
  return {perplexity, perplexity * surprise.standard_error()};  // d exp(m) = exp(m) dm
}

std::string perplexity_text(const RunningMean& surprise, const WindowOptions& windows) {
  const Perplexity found = perplexity_of(surprise);
  return fmt::format("perplexity {:.4f} +- {:.4f} over {} tokens, {}windows of {}\n", found.value, found.standard_error,
                     surprise.count(), windows.second_half ? "second halves of " : "", windows.window);
}

nlohmann::ordered_json perplexity_json(const RunningMean& surprise, const WindowOptions& windows,
                                       const OpenEngine& engine) {
  const Perplexity found = perplexity_of(surprise);
  return {{"perplexity", found.value},
          {"standard_error", found.standard_error},
          {"mean_negative_logprob", surprise.mean()},
          {"tokens_scored", surprise.count()},
          {"window", windows.window},
          {"second_half", windows.second_half},
          {"model", engine.path.string()},
          {"device", engine.device->name()}};
}

void LogprobFile::add(const CountedToken& token) {
  lines_ += fmt::format("{}\t{}\t{}\n", token.place, token.token, token.logprob);
  if (lines_.size() >= kWrittenBytes) write();
}

void LogprobFile::finish() {
  write();
  file_.finish();
}

void LogprobFile::write() {
  file_.write(lines_);
  lines_.clear();
}

}  // namespace espalier
