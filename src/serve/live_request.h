// A request in the batch: its choices, each a TextStream with its own answer there, and what is known of their times.
// The engine thread's alone. It stays until all its answers have left the batch, also when nobody listens any more.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "decode/batch.h"
#include "serve/answer_listener.h"
#include "serve/metrics.h"
#include "serve/protocol/choice_pieces.h"
#include "serve/protocol/request_plan.h"
#include "session/text_stream.h"

namespace espalier {

using ServiceClock = std::chrono::steady_clock;

// What is asked of the service: a plan, whose it is, and who hears the answer.
struct ServiceRequest {
  std::string id = {};  // of the response
  RequestPlan plan = {};
  int key = 0;            // whose it is: keys take turns
  std::string salt = {};  // whose computed prefixes it may use, and who its own
  ServiceClock::time_point arrived = ServiceClock::now();
  std::shared_ptr<AnswerListener> listener = {};  // shared with whoever writes the answer
};

// What a request in the batch works with. All of it outlives the request.
struct LiveRequestParts {
  Batch& batch;
  const ModelText& text;
  Metrics& metrics;
  std::function<void()> on_admitted = {};  // the batch takes the first of its choices
  // An answer fails: writes down what is left of it. Must not throw.
  std::function<void(const AnswerFailure&, const std::string& id)> on_failure = {};
};

class LiveRequest {
 public:
  using Time = ServiceClock::time_point;

  LiveRequest(ServiceRequest request, const LiveRequestParts& parts);
  ~LiveRequest();  // requires that nothing of it is in the batch, or that the batch is gone
  LiveRequest(const LiveRequest&) = delete;
  LiveRequest& operator=(const LiveRequest&) = delete;

  const ServiceRequest& request() const { return request_; }
  std::optional<Time> admitted() const { return admitted_; }  // when the batch took the first of its choices
  bool finished() const { return open_ == 0; }                // nothing of it is in the batch
  bool silent() const { return silent_; }                     // its last word is told, or nobody listens
  bool complete() const { return complete_; }                 // all its choices were answered
  bool has(RequestId answer) const;                           // an answer of the batch is one of its choices

  // All its choices join the batch, once. Throws what Batch::submit() does; some may have joined by then.
  void join();
  // Whether an answer of it has failed inside the batch since this was last asked.
  bool take_fault() { return std::exchange(faulty_, false); }
  // A stream that still waits begins, so that its client hears something.
  void begin();
  // Nobody listens any more; its answers leave the batch with the next step.
  void cancel();
  // Likewise, and the listener is told why, unless it has heard its last word.
  void fail(const ApiError& error);

 private:
  struct Choice;

  void submit(Choice& choice);
  void hear_prefill(Choice& choice, std::int64_t total);
  void hear_token(Choice& choice);
  void hear_round(Choice& choice, const Round& round);
  void hear_part(Choice& choice, const TextPart& part);
  void hear_end(Choice& choice, const AnswerEnd& end) noexcept;
  void end_choice(Choice& choice, const AnswerEnd& end);
  ChoiceFigures figures(const Choice& choice, const GenerateResult& result) const;
  void observe_gap(Choice& choice);
  // Nothing is where a device only stands in for another; seconds are 0 there.
  bool timed() const;
  double seconds_between(Time from, Time to) const;
  double since_arrival(Time time) const;

  ServiceRequest request_;
  LiveRequestParts parts_;
  std::vector<std::unique_ptr<Choice>> choices_;
  std::size_t open_ = 0;    // choices in the batch
  std::size_t untold_ = 0;  // choices whose end the listener has not heard
  std::optional<Time> admitted_;
  bool begun_ = false;
  bool first_token_ = false;  // of any choice
  bool silent_ = false;
  bool complete_ = false;
  bool faulty_ = false;
};

}  // namespace espalier
