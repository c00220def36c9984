// The threads between sockets and the engine: they prepare requests (JSON, template, tokens) and write answers (JSON).
// What is written goes first, and one thread of several never prepares, so that a long prompt delays nobody's stream.
// Jobs of one kind begin in the order in which they came.
//
// Thread-safe. Jobs must not throw; one that does ends the program, as any thread's exception would.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace espalier {

class WorkerPool {
 public:
  using Job = std::function<void()>;

  // most_preparing: jobs that may wait to be prepared.
  WorkerPool(int threads, std::size_t most_preparing);
  ~WorkerPool();  // stops
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False: too many wait already, or the pool has stopped; the job is dropped.
  bool prepare(Job job);
  // How many there are is bounded by whoever calls: one for each answer. After stop() the job is dropped.
  void write(Job job);

  // Returns when nothing waits and nothing runs. Not from a job.
  void wait_until_idle();
  // Those that run are waited for, those that wait are dropped. Once more does no harm.
  void stop();

 private:
  void work();
  bool can_take() const { return !writing_.empty() || (!preparing_.empty() && active_preparing_ < most_active_); }
  Job take(bool& prepares);

  const std::size_t most_preparing_;
  const int most_active_;  // threads that may prepare at once
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> preparing_, writing_;
  int active_ = 0, active_preparing_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace espalier
