#include "serve/answer_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

constexpr double kNewestShare = 0.2;  // of the mean that the queue's estimate rests on
constexpr int kShortestRetry = 1, kLongestRetry = 30;
constexpr int kMostFailures = 3;  // one after the other, that are no reason to end

ApiError shutting_down() {
  return unavailable("the server is shutting down", kShortestRetry);
}

std::string first_line_of(std::exception_ptr failure) {
  try {
    std::rethrow_exception(std::move(failure));
  } catch (const std::exception& error) {
    const std::string_view what = error.what();
    return std::string(what.substr(0, what.find('\n')));
  } catch (...) {
    return "for an unknown reason";
  }
}

}  // namespace

struct AnswerService::Live {
  Ticket ticket;
  LiveRequest request;
  bool waits = true;  // counted as such
};

AnswerService::AnswerService(ServiceOptions options, Open open, Metrics& metrics, ServiceEvents events)
    : options_(options), open_(std::move(open)), metrics_(metrics), events_(std::move(events)) {
  thread_ = std::thread([this] { run(); });
}

AnswerService::~AnswerService() {
  abort();
  thread_.join();
}

// --- from other threads ---------------------------------------------------------------------------------------------

// By what requests took lately; who comes back finds about as many before him as now.
int AnswerService::retry_after_locked() const {
  const double seconds = mean_seconds_ * static_cast<double>(waiting_ + 1) / parallel_;
  return std::clamp(static_cast<int>(std::ceil(std::min<double>(seconds, kLongestRetry))), kShortestRetry,
                    kLongestRetry);
}

void AnswerService::check_room_locked(int key) const {
  health_json(drain_end_ && health_ == ServerHealth::ready ? ServerHealth::draining : health_);
  const auto own = by_key_.find(key);
  if (options_.per_key > 0 && own != by_key_.end() && own->second >= options_.per_key)
    throw rate_limited(options_.per_key, retry_after_locked());
  if (waiting_ >= options_.queue)
    throw unavailable(fmt::format("the queue is full: {} requests wait", waiting_), retry_after_locked());
}

void AnswerService::check_room(int key) const {
  const std::lock_guard lock(mutex_);
  check_room_locked(key);
}

AnswerService::Ticket AnswerService::submit(ServiceRequest request) {
  const std::lock_guard lock(mutex_);
  check_room_locked(request.key);
  int& of_key = by_key_[request.key];
  arrived_.push_back({next_ticket_, std::move(request)});
  ++waiting_;
  ++of_key;
  changed_.notify_all();
  return next_ticket_++;
}

void AnswerService::cancel(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(ticket);
  changed_.notify_all();
}

ServerHealth AnswerService::health() const {
  const std::lock_guard lock(mutex_);
  return drain_end_ && health_ == ServerHealth::ready ? ServerHealth::draining : health_;
}

ServiceReading AnswerService::reading() const {
  const std::lock_guard lock(mutex_);
  ServiceReading reading = reading_;
  reading.waiting = waiting_;
  return reading;
}

void AnswerService::drain(ServiceOptions::Duration time) {
  const std::lock_guard lock(mutex_);
  const Time end = ServiceClock::now() + time;
  drain_end_ = drain_end_ ? std::min(*drain_end_, end) : end;
  changed_.notify_all();
}

bool AnswerService::wait_until_ended(ServiceOptions::Duration time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return ended_; });
}

// --- the engine thread ----------------------------------------------------------------------------------------------

void AnswerService::run() {
  try {
    open_engine_here();
    serve();
  } catch (...) {
    give_up(std::current_exception());
  }
  pulse_ = {};
  engine_.reset();  // before what its answers point to
  live_.clear();
  if (events_.on_ended) events_.on_ended();
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void AnswerService::open_engine_here() {
  engine_ = open_();
  pulse_ = engine_->device().tensor(DType::i32, {1});
  slots_.assign(static_cast<std::size_t>(engine_->parallel()), -1);
  publish();
  {
    const std::lock_guard lock(mutex_);
    parallel_ = engine_->parallel();
    health_ = ServerHealth::ready;
  }
  if (events_.on_ready) events_.on_ready();
}

void AnswerService::serve() {
  int failures = 0;  // one after the other
  for (bool more = true; more;) {
    try {
      more = turn();
      failures = 0;
    } catch (...) {
      if (++failures > kMostFailures || device_is_lost()) throw;
      recover(std::current_exception());
    }
  }
}

// What has come, and a step. False: this was the last.
bool AnswerService::turn() {
  wait_for_work();
  while (std::optional<Arrival> arrival = next_arrival()) take_in(arrival->ticket, std::move(arrival->request));
  cancel_those_who_left();
  look_at_clock();
  if (live_.empty()) {
    const std::lock_guard lock(mutex_);
    return !drain_end_ || !arrived_.empty();
  }
  step();
  sweep();
  publish();
  return true;
}

// A fault that belongs to no answer alone: those that run fail, and where none does those that wait. What is left goes
// on if everything in the cache is where it should be.
void AnswerService::recover(std::exception_ptr failure) {
  remark(fmt::format("a step failed: {}", first_line_of(std::move(failure))));
  const auto runs = [](const auto& live) { return live->request.admitted() && !live->request.silent(); };
  const bool anybody_runs = std::ranges::any_of(live_, runs);
  for (const auto& live : live_)
    if (!anybody_runs || runs(live)) live->request.fail(server_fault(live->request.request().id));
  engine_->batch().check_conservation();
}

// Throws what the device does. Memory of its own, so that one that is full is not taken for one that is lost.
void AnswerService::ask_device() {
  std::vector<std::int32_t> number = {1};
  upload<std::int32_t>(engine_->device(), number, pulse_);
  download<std::int32_t>(engine_->device(), pulse_, number);
}

bool AnswerService::device_is_lost() {
  try {
    ask_device();
    return false;
  } catch (const DeviceError&) {
    return true;
  }
}

// Who is cancelled has arrived before: he is found among those who are taken in next, if not already.
void AnswerService::wait_for_work() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !live_.empty() || !arrived_.empty() || drain_end_; });
  if (leaving_.empty()) leaving_.swap(cancelled_);
}

std::optional<AnswerService::Arrival> AnswerService::next_arrival() {
  const std::lock_guard lock(mutex_);
  if (arrived_.empty()) return std::nullopt;
  std::optional<Arrival> arrival = std::move(arrived_.front());
  arrived_.pop_front();
  return arrival;
}

void AnswerService::cancel_those_who_left() {
  for (const Ticket ticket : leaving_)
    for (const auto& live : live_) {
      if (live->ticket != ticket || live->request.silent()) continue;
      live->request.cancel();
      metrics_.count_cancelled();
    }
  leaving_.clear();
}

void AnswerService::take_in(Ticket ticket, ServiceRequest request) {
  const LiveRequestParts parts{
      .batch = engine_->batch(),
      .text = engine_->text(),
      .metrics = metrics_,
      .on_admitted = [this, ticket] { note_admission(ticket); },
      .on_failure = [this](const AnswerFailure& failure,
                           const std::string& id) { remark(engine_->keep_failure(failure, id)); }};
  const int key = request.key;
  const std::shared_ptr<AnswerListener> listener = request.listener;
  const std::size_t before = live_.size();
  std::string id;
  try {
    id = request.id;
    live_.push_back(std::unique_ptr<Live>(new Live{ticket, {std::move(request), parts}}));
    live_.back()->request.join();
  } catch (...) {
    const bool is_live = live_.size() > before;
    if (!is_live) forget(key, /*waits=*/true);
    const ApiError error = api_error_of(std::current_exception(), id);
    return is_live ? live_.back()->request.fail(error) : listener->failed(error);
  }
}

// A request is over.
void AnswerService::forget(int key, bool waits) {
  const std::lock_guard lock(mutex_);
  if (waits) --waiting_;
  if (--by_key_[key] == 0) by_key_.erase(key);
}

// Deadlines, and the end of the service.
void AnswerService::look_at_clock() {
  const Time now = ServiceClock::now();
  std::optional<Time> drain_end;
  int retry = 0;
  {
    const std::lock_guard lock(mutex_);
    drain_end = drain_end_;
    retry = retry_after_locked();
  }
  for (const auto& live : live_) {
    LiveRequest& request = live->request;
    if (request.silent()) continue;
    const auto age = now - request.request().arrived;
    if (age >= options_.request_time)
      request.fail(ApiError(408, ErrorType::timeout,
                            fmt::format("the answer was not complete after {} ms", options_.request_time.count())));
    else if (!request.admitted() && age >= options_.queue_time)
      request.fail(
          unavailable(fmt::format("the request waited {} ms in the queue", options_.queue_time.count()), retry));
    else if (!request.admitted() && age >= options_.begin_time)
      request.begin();
  }
  if (drain_end) refuse_waiting();
  if (drain_end && now >= *drain_end) fail_all(shutting_down());
  sweep();
}

void AnswerService::refuse_waiting() {
  for (const auto& live : live_)
    if (!live->request.admitted()) live->request.fail(shutting_down());
}

void AnswerService::fail_all(const ApiError& error) {
  for (const auto& live : live_) {
    if (!live->request.silent()) cut_off_ = true;
    live->request.fail(error);
  }
}

// Where an answer failed, everything in the cache is counted before the service goes on, and the device is asked.
void AnswerService::step() {
  Batch& batch = engine_->batch();
  const auto began = ServiceClock::now();
  const std::int64_t before = batch.running();  // those that the step ends, it has none of afterwards
  const bool more = batch.step();
  const double seconds = std::chrono::duration<double>(ServiceClock::now() - began).count();
  if (!batch.device().is_stand_in()) metrics_.observe_step(seconds, std::max(before, batch.running()));
  bool faulty = false;
  for (const auto& live : live_) faulty = live->request.take_fault() || faulty;
  if (faulty) {
    batch.check_conservation();
    ask_device();
  }
  check(more || std::ranges::all_of(live_, [](const auto& live) { return live->request.finished(); }),
        "the batch has nothing left to do, and a request waits for it");
}

// At once, in the middle of a step: whoever hears that an answer begins finds its place in the queue free.
void AnswerService::note_admission(Ticket ticket) {
  const auto admitted = std::ranges::find(live_, ticket, [](const auto& live) { return live->ticket; });
  (*admitted)->waits = false;
  const std::lock_guard lock(mutex_);
  --waiting_;
}

// Requests that have left the batch.
void AnswerService::sweep() {
  std::erase_if(live_, [this](const std::unique_ptr<Live>& live) {
    if (!live->request.finished()) return false;
    forget(live->request.request().key, live->waits);
    learn_duration(live->request);
    return true;
  });
}

void AnswerService::learn_duration(const LiveRequest& request) {
  if (!request.complete() || !request.admitted()) return;
  const double seconds = std::chrono::duration<double>(ServiceClock::now() - *request.admitted()).count();
  const std::lock_guard lock(mutex_);
  mean_seconds_ = mean_seconds_ == 0 ? seconds : mean_seconds_ + kNewestShare * (seconds - mean_seconds_);
}

// Nothing of the batch can be trusted any more.
void AnswerService::give_up(std::exception_ptr failure) {
  std::deque<Arrival> arrived;
  {
    const std::lock_guard lock(mutex_);
    health_ = ServerHealth::failed;
    arrived.swap(arrived_);
  }
  try {
    for (const auto& live : live_) live->request.fail(server_fault(live->request.request().id));
    for (const Arrival& arrival : arrived) arrival.request.listener->failed(server_fault(arrival.request.id));
  } catch (...) {  // no memory to tell it with; whoever writes an answer sees that nobody tells him more
  }
  if (events_.on_failed) events_.on_failed(failure);
}

// An answer keeps its slot while it runs.
std::vector<SlotFacts> AnswerService::slots() {
  const std::vector<RunningAnswer> running = engine_->batch().running_answers();
  const auto runs = [&](RequestId id) { return std::ranges::find(running, id, &RunningAnswer::id) != running.end(); };
  for (RequestId& slot : slots_)
    if (!runs(slot)) slot = -1;
  for (const RunningAnswer& answer : running)
    if (std::ranges::find(slots_, answer.id) == slots_.end())
      if (const auto free = std::ranges::find(slots_, -1); free != slots_.end()) *free = answer.id;
  std::vector<SlotFacts> facts;
  for (const RequestId id : slots_) {
    facts.push_back({.id = static_cast<int>(facts.size())});
    const auto found = std::ranges::find(running, id, &RunningAnswer::id);
    if (found == running.end()) continue;
    for (const auto& live : live_)
      if (live->request.has(id)) facts.back().request = live->request.request().id;
    facts.back().prompt_tokens = found->prompt_tokens;
    facts.back().cached_tokens = found->cached_tokens;
    facts.back().decoded_tokens = found->answer_tokens;
    facts.back().rows = found->verified_rows;
    facts.back().accept_length = found->accept_length();
  }
  return facts;
}

void AnswerService::publish() {
  const Batch& batch = engine_->batch();
  ServiceReading reading{.statistics = batch.statistics(), .pool = batch.pool_counts(), .slots = slots()};
  reading.running = std::ranges::count_if(live_, [](const auto& live) { return live->request.admitted().has_value(); });
  const std::lock_guard lock(mutex_);
  reading_ = std::move(reading);
}

void AnswerService::remark(std::string_view line) const {
  if (events_.on_remark && !line.empty()) events_.on_remark(line);
}

}  // namespace espalier
