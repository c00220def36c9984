// A listener that remembers what it heard, and can hold the engine thread where it is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serve/answer_listener.h"

namespace espalier {

class HeardAnswer final : public AnswerListener {
  // Before those whose types follow from them.
  template <typename Condition>
  bool wait(const Condition& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), condition);
  }
  template <typename Read>
  auto locked(const Read& read) const {
    const std::lock_guard lock(mutex_);
    return read();
  }
  template <typename Change>
  void change(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    ++events_;
    changed_.notify_all();
  }

 public:
  explicit HeardAnswer(int choices = 1) : open_(choices) {}

  void begun() override;
  void prompt_scored(int choice, std::vector<Logprobs> logprobs) override;
  bool piece(int choice, AnswerPiece piece, const ChoiceFigures& figures) override;
  void ended(int choice, EndedChoice ended) override;
  void failed(const ApiError& error) override;

  // Called on the engine thread, before it is remembered that the answer has begun, that its prompt was scored, that
  // the n-th piece came or that a choice ended. They may throw.
  std::function<void()> on_begun = {};
  std::function<void()> on_scored = {};
  std::function<void(int n)> on_piece = {};
  std::function<void()> on_ended = {};
  bool takes_pieces = true;

  // Within ten seconds; false: not.
  bool wait_begun() {
    return wait([this] { return begun_; });
  }
  bool wait_over() {
    return wait([this] { return open_ == 0 || failure_; });
  }
  bool wait_pieces(int count) {
    return wait([=, this] { return pieces_ >= count; });
  }

  int begun_count() const {
    return locked([this] { return begun_count_; });
  }
  int pieces() const {
    return locked([this] { return pieces_; });
  }
  int events() const {
    return locked([this] { return events_; });
  }  // of any kind
  std::optional<ApiError> failure() const {
    return locked([this] { return failure_; });
  }
  EndedChoice end(int choice = 0) const {
    return locked([=, this] { return ends_.at(choice); });
  }
  std::string text(int choice = 0) const {
    return locked([=, this] { return texts_.at(choice); });
  }
  std::vector<Logprobs> scores(int choice = 0) const {
    return locked([=, this] { return scores_.at(choice); });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int open_;
  bool begun_ = false;
  int begun_count_ = 0, pieces_ = 0, events_ = 0;
  std::optional<ApiError> failure_;
  std::map<int, std::string> texts_;
  std::map<int, EndedChoice> ends_;
  std::map<int, std::vector<Logprobs>> scores_;
};

}  // namespace espalier
