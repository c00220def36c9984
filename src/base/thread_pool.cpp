#include "base/thread_pool.h"

#include "base/error.h"

namespace espalier {

ThreadPool::ThreadPool(int threads) {
  check(threads >= 1 && threads <= 1024, "thread pool of {} threads: expected 1 to 1024", threads);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  if (workers_.empty() || count == 1) {
    body(0, count);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    count_ = count;
    running_ = threads();
    failure_ = nullptr;
    ++generation_;
  }
  start_.notify_all();
  run_share(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return running_ == 0; });
  body_ = nullptr;
  if (failure_) std::rethrow_exception(failure_);
}

void ThreadPool::work(int index) {
  std::uint64_t seen = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
    }
    run_share(index);
  }
}

void ThreadPool::run_share(int index) {
  const std::int64_t begin = count_ * index / threads();
  const std::int64_t end = count_ * (index + 1) / threads();
  std::exception_ptr failure;
  try {
    if (begin < end) (*body_)(begin, end);
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (failure && !failure_) failure_ = failure;
  if (--running_ == 0) done_.notify_one();
}

}  // namespace espalier
