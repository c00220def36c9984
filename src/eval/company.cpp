#include "eval/company.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "decode/step_times.h"

namespace espalier {

struct Company::Asked {
  Asked(Batch& asked_batch, const GenerateRequest& its_request) : batch(&asked_batch), request(its_request) {}

  Batch* batch;
  const GenerateRequest& request;  // its conversation waits meanwhile
  GenerateResult result = {};
  std::exception_ptr failure = {};
  bool ended = false;
  std::condition_variable answered = {};  // of its conversation alone: the others would wake to wait on
};

namespace {

// Nobody guesses there, but a step costs what it costs.
Speculation plain_speculation(const Batch& decoder) {
  if (decoder.step_times() == nullptr) return {};
  return {.budget = ChosenBudget{.cuts = false, .times = *decoder.step_times()}};
}

}  // namespace

Company::Company(const Transformer& model, const DecoderOptions& options, const Speculation& speculation, bool plain)
    : decoder_(model, options, speculation) {
  if (plain) plain_.emplace(model, options, plain_speculation(decoder_));
}

Company::~Company() = default;

// Threads that cannot be had are not waited for: those that are there finish first.
void Company::run(int count, const std::function<void(int)>& conversation) {
  std::unique_lock lock(mutex_);
  std::vector<std::jthread> threads;
  failure_ = nullptr;
  try {
    threads.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([this, i, &conversation] { converse(i, conversation); });
      ++here_;
      ++awake_;
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  for (;;) {
    all_wait_.wait(lock, [&] { return awake_ == 0; });
    if (here_ == 0) break;
    submit_asked();
    if (!running_.empty()) step();
  }
  lock.unlock();
  threads.clear();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Company::converse(int number, const std::function<void(int)>& conversation) {
  const std::lock_guard lock(mutex_);
  try {
    conversation(number);
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
  }
  --here_;
  if (--awake_ == 0) all_wait_.notify_one();
}

GenerateResult Company::generate(Batch& batch, const GenerateRequest& request) {
  if (broken_) std::rethrow_exception(broken_);
  const auto asked = std::make_shared<Asked>(batch, request);
  asked_.push_back(asked);
  // The mutex is this thread's since converse(), and is again when this returns.
  std::unique_lock lock(mutex_, std::adopt_lock);
  if (--awake_ == 0) all_wait_.notify_one();
  asked->answered.wait(lock, [&] { return asked->ended; });
  lock.release();
  if (asked->failure) std::rethrow_exception(asked->failure);
  return std::move(asked->result);
}

// Whoever has waited longest says which batch is next. Nobody joins a batch any more once somebody waits for the other.
void Company::submit_asked() {
  if (asked_.empty()) return;
  if (running_.empty()) batch_ = asked_.front()->batch;
  const auto is_next = [&](const auto& asked) { return asked->batch == batch_; };
  if (!running_.empty() && !std::ranges::all_of(asked_, is_next)) return;
  std::deque<std::shared_ptr<Asked>> later;
  for (const auto& asked : std::exchange(asked_, {})) is_next(asked) ? submit(asked) : later.push_back(asked);
  asked_ = std::move(later);
}

void Company::submit(const std::shared_ptr<Asked>& asked) {
  try {
    GenerateRequest heard = asked->request;
    heard.events.on_end = [this, asked](const AnswerEnd& answer) {
      if (asked->request.events.on_end) asked->request.events.on_end(answer);
      asked->result = answer.result;
      std::erase(running_, asked);
      end(*asked, answer.failure);
    };
    batch_->submit(heard);
    running_.push_back(asked);
  } catch (...) {
    end(*asked, std::current_exception());
  }
}

// What leaves a step is no answer's failure: nobody may step that batch again, whose requests still name conversations
// that have gone.
void Company::step() {
  const double begin = steady_seconds();
  try {
    batch_->step();
  } catch (...) {
    broken_ = std::current_exception();
    for (auto* waiting : {&running_, &asked_})
      for (const auto& asked : std::exchange(*waiting, {})) end(*asked, broken_);
  }
  if (plain_ && batch_ == &*plain_) plain_seconds_ += steady_seconds() - begin;
}

void Company::end(Asked& asked, std::exception_ptr failure) {
  asked.failure = std::move(failure);
  asked.ended = true;
  ++awake_;
  asked.answered.notify_one();
}

}  // namespace espalier
