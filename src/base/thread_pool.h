// A fixed set of threads that share out one loop at a time. The caller takes part; run() returns when all is done.
// Work is split by outputs and never by the terms of a sum, so results do not depend on the number of threads.
// One caller at a time; an exception in the body is rethrown in the caller once every thread has stopped.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace espalier {

class ThreadPool {
 public:
  // `threads` counts the caller: 1 starts no thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) on disjoint ranges that cover [0, count).
  void run(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body);

 private:
  void work(int index);
  void run_share(int index);

  std::vector<std::thread> workers_;

  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  // Guarded by mutex_; body_ and count_ are stable while a loop runs.
  const std::function<void(std::int64_t, std::int64_t)>* body_ = nullptr;
  std::int64_t count_ = 0;
  std::uint64_t generation_ = 0;
  int running_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
};

}  // namespace espalier
