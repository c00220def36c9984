#include "bench/load/load_run.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "bench/load/arrivals.h"
#include "bench/load/event_stream.h"
#include "bench/load/http_client.h"

namespace espalier {
namespace {

constexpr std::size_t kKeptBody = 4096;               // of what is no event stream
constexpr std::uint64_t kLoadNumbers = 1'000'000;     // of prompts, for each load
constexpr std::uint64_t kInterruptNumbers = 900'000;  // where those that disturb begin
constexpr auto kCalm = std::chrono::seconds(2);       // before the first prompt that disturbs, and between two
constexpr std::size_t kMostInterrupts = 100;

// Moments of an answer that may have no text: its head, its end, and what comes before the first gap.
constexpr int kMomentsWithoutGap = 3;

// A request while it is under way; on_moment is told of events that are not of the same moment, and the how many-th it
// is.
struct LiveAnswer {
  using OnMoment = std::function<void(int number)>;
  TimedStream heard = {};
  EventStream events;
  double now = 0;

  explicit LiveAnswer(OnMoment on_moment)
      : events([this, on_moment = std::move(on_moment)](std::string data) {
          heard.events.push_back({now, std::move(data)});
          if (!on_moment || now - moment_ < kSameMoment) return;
          moment_ = now;
          on_moment(++moments_);
        }) {}

 private:
  double moment_ = -kSameMoment;
  int moments_ = 0;
};

class Loader {
 public:
  Loader(const LoadJob& job, std::function<bool()> cancelled)
      : job_(job), settings_(job.settings), cancelled_(std::move(cancelled)), client_(job.settings.patience) {}

  LoadRun run() {
    begin_ = LoadClock::now();
    if (job_.shape.rate > 0)
      plan_arrivals();
    else
      for (int user = 0; user < job_.shape.users; ++user) next_request(0);
    LoadRun run;
    run.cancelled = !client_.run(cancelled_);
    for (const auto& live : answers_) run.answers.push_back(read_answer(live->heard));
    for (const auto& live : interrupts_) run.interrupts.push_back(read_answer(live->heard));
    double first = run.answers.empty() ? 0 : run.answers.front().sent, last = 0;
    for (const AnswerRecord& answer : run.answers)
      first = std::min(first, answer.sent), last = std::max(last, answer.ended);
    run.seconds = last - first;
    return run;
  }

  std::optional<AnswerRecord> run_once(const LoadPrompt& prompt, std::int64_t tokens) {
    begin_ = LoadClock::now();
    const Live live = std::make_shared<LiveAnswer>(LiveAnswer::OnMoment());
    ask(live, prompt, tokens, [] {});
    if (!client_.run(cancelled_)) return std::nullopt;
    return read_answer(live->heard);
  }

 private:
  using Live = std::shared_ptr<LiveAnswer>;

  double seconds(LoadClock::time_point time) const { return std::chrono::duration<double>(time - begin_).count(); }

  // Sends it; on_end is told once the response has ended, well or not.
  void ask(const Live& live, const LoadPrompt& prompt, std::int64_t tokens, std::function<void()> on_end) {
    live->heard.sent = seconds(LoadClock::now());
    client_.call(
        job_.target.url, answer_call(job_.target, settings_.api, prompt, tokens),
        {.on_head = [live](int status) { live->heard.status = status; },
         .on_body = [this, live](std::string_view bytes, LoadClock::time_point when) { hear(*live, bytes, when); },
         .on_end =
             [this, live, on_end = std::move(on_end)](const std::string& problem) {
               live->heard.ended = seconds(LoadClock::now());
               live->heard.broken_off = problem == kBrokenOff;
               if (live->heard.problem.empty()) live->heard.problem = problem;
               on_end();
             }});
  }

  void hear(LiveAnswer& live, std::string_view bytes, LoadClock::time_point when) {
    live.now = seconds(when);
    if (live.heard.status != 200)
      live.heard.body += bytes.substr(0, kKeptBody - std::min(kKeptBody, live.heard.body.size()));
    else if (!live.events.feed(bytes))
      live.heard.problem = "an event without an end";
  }

  LoadPrompt next_prompt() { return job_.prompts.prompt(job_.number * kLoadNumbers + answers_.size(), job_.server); }

  // ---- Closed loop: a user's request number `count`, and when it has ended the next.

  bool wants_more(std::int64_t count) const {
    if (over_ || (cancelled_ && cancelled_())) return false;
    if (disturbs()) return true;
    if (settings_.seconds > 0) return seconds(LoadClock::now()) < settings_.seconds;
    return count < settings_.requests;
  }

  void next_request(std::int64_t count) {
    if (!wants_more(count)) return;
    const LoadPrompt prompt = next_prompt();
    const Live live = std::make_shared<LiveAnswer>(disturbs() ? [this](int number) { heard_moment(number); }
                                                              : LiveAnswer::OnMoment());
    answers_.push_back(live);
    ask(live, prompt, settings_.tokens, [this, live, count] {
      // Whoever was refused does not knock again at once: a server that is full would be asked thousands of times.
      const bool heard = !live->heard.events.empty();
      failures_ = heard ? 0 : failures_ + 1;
      if (failures_ > kMostFailures) over_ = true;
      if (heard)
        next_request(count + 1);
      else
        client_.at(LoadClock::now() + kPause, [this, count] { next_request(count + 1); });
    });
  }

  // ---- Open loop

  void plan_arrivals() {
    const ArrivalPlan plan{
        .rate = job_.shape.rate, .requests = settings_.requests, .seconds = settings_.seconds, .seed = job_.number};
    for (const double time : arrival_times(plan))
      client_.at(begin_ + std::chrono::duration_cast<LoadClock::duration>(std::chrono::duration<double>(time)),
                 [this, time] { arrive(time); });
  }

  // A request counts from when it was due, however late the client is.
  void arrive(double due) {
    const LoadPrompt prompt = next_prompt();
    const Live live = std::make_shared<LiveAnswer>(LiveAnswer::OnMoment());
    answers_.push_back(live);
    ask(live, prompt, settings_.tokens, [] {});
    live->heard.sent = due;
  }

  // ---- Prompts that disturb

  bool disturbs() const { return settings_.interrupt_tokens > 0; }

  // Of an answer of one of the users. The first prompt comes when all of them have been decoding for a while.
  void heard_moment(int number) {
    if (disturbing_ && number > kMomentsWithoutGap) ++gaps_;
    const auto decodes = [](const Live& live) { return live->heard.events.size() > 2; };
    if (planned_ || std::ranges::count_if(answers_, decodes) < job_.shape.users) return;
    planned_ = true;
    client_.at(LoadClock::now() + kCalm, [this] { disturb(); });
  }

  void disturb() {
    const std::uint64_t number = job_.number * kLoadNumbers + kInterruptNumbers + interrupts_.size();
    const Live live = std::make_shared<LiveAnswer>(LiveAnswer::OnMoment());
    interrupts_.push_back(live);
    disturbing_ = true;
    ask(live, job_.prompts.long_prompt(number, settings_.interrupt_characters, job_.server), 1, [this, live] {
      disturbing_ = false;
      const bool enough = gaps_ >= settings_.interrupt_gaps;
      const bool futile = !live->heard.problem.empty() || live->heard.status != 200;
      if (enough || futile || interrupts_.size() == kMostInterrupts)
        end();
      else
        client_.at(LoadClock::now() + kCalm, [this] { disturb(); });
    });
  }

  void end() {
    over_ = true;
    client_.break_off();
  }

  static constexpr int kMostFailures = 1000;  // one after another
  static constexpr auto kPause = std::chrono::milliseconds(100);

  const LoadJob& job_;
  const LoadSettings& settings_;
  std::function<bool()> cancelled_;
  HttpClient client_;
  LoadClock::time_point begin_;
  std::vector<Live> answers_, interrupts_;
  bool over_ = false;
  int failures_ = 0;
  bool planned_ = false, disturbing_ = false;
  std::int64_t gaps_ = 0;
};

}  // namespace

LoadRun run_load(const LoadJob& job, const std::function<bool()>& cancelled) {
  check((job.shape.users > 0) != (job.shape.rate > 0), "a load of {} users at {} requests a second", job.shape.users,
        job.shape.rate);
  return Loader(job, cancelled).run();
}

std::optional<AnswerRecord> ask_once(const LoadJob& job, const LoadPrompt& prompt, std::int64_t tokens,
                                     const std::function<bool()>& cancelled) {
  return Loader(job, cancelled).run_once(prompt, tokens);
}

}  // namespace espalier
