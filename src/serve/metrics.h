// What the server counts, in Prometheus' text format (docs/serving.md lists it): names as vLLM has them, with
// `espalier_` in front. What the batch counts itself is read when somebody asks; the rest is told here as it happens.
// No label has anything of a request in it.
//
// Thread-safe: every call may come from any thread, and takes microseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "serve/service_reading.h"

namespace espalier {

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void count_error(int status);
  void count_cancelled();

  void observe_step(double seconds, std::int64_t sequences);
  void observe_queue(double seconds);
  void observe_first_token(double seconds);
  // An event brought `tokens` after so long.
  void observe_tokens(double seconds, std::int64_t tokens);
  // A choice is complete.
  void observe_choice(std::string_view finish_reason, std::int64_t prompt_tokens, std::int64_t tokens);
  // A request is, all its choices.
  void observe_request(double seconds);

  struct Build {
    std::string version = {};
    std::string fingerprint = {};  // empty: no model is loaded yet
  };
  std::string text(const ServiceReading& reading, const Build& build, std::int64_t connections) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace espalier
