#include "serve/worker_pool.h"

#include <algorithm>
#include <utility>

namespace espalier {

WorkerPool::WorkerPool(int threads, std::size_t most_preparing)
    : most_preparing_(most_preparing), most_active_(std::max(1, threads - 1)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

WorkerPool::~WorkerPool() {
  stop();
}

bool WorkerPool::prepare(Job job) {
  const std::lock_guard lock(mutex_);
  if (stopped_ || preparing_.size() >= most_preparing_) return false;
  preparing_.push_back(std::move(job));
  changed_.notify_all();
  return true;
}

void WorkerPool::write(Job job) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  writing_.push_back(std::move(job));
  changed_.notify_all();
}

// Requires the lock, and can_take().
WorkerPool::Job WorkerPool::take(bool& prepares) {
  prepares = writing_.empty();
  std::deque<Job>& jobs = prepares ? preparing_ : writing_;
  Job job = std::move(jobs.front());
  jobs.pop_front();
  return job;
}

void WorkerPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || can_take(); });
    if (stopped_) return;
    bool prepares = false;
    Job job = take(prepares);
    ++active_;
    active_preparing_ += prepares ? 1 : 0;
    lock.unlock();
    job();
    job = nullptr;  // what it owns goes outside the lock
    lock.lock();
    --active_;
    active_preparing_ -= prepares ? 1 : 0;
    changed_.notify_all();
  }
}

void WorkerPool::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || (active_ == 0 && preparing_.empty() && writing_.empty()); });
}

void WorkerPool::stop() {
  std::deque<Job> dropped_preparing, dropped_writing;  // their ends may call us
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped_preparing.swap(preparing_);
    dropped_writing.swap(writing_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

}  // namespace espalier
