#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

constexpr std::int64_t kChunksPerThread = 8;
// Longer than the pauses inside a decoding step, shorter than anything a user would notice as load.
constexpr std::chrono::microseconds kSpinTime(200);

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::uint64_t packed(std::uint64_t next, std::uint64_t end) {
  return end << 32 | next;
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  check(threads >= 1 && threads <= 1024, "thread pool of {} threads: expected 1 to 1024", threads);
  shares_ = std::make_unique<Share[]>(static_cast<std::size_t>(threads));
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  ++generation_;
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::set_idle_work(IdleWork work, void* context) {
  idle_context_ = context;
  idle_work_ = work;
}

// Waits for the condition, with idle work or spinning; false when it still does not hold after kSpinTime.
template <typename Condition>
bool ThreadPool::wait_a_while(const Condition& condition, int thread) {
  if (const IdleWork work = idle_work_.load(std::memory_order_acquire))
    while (!condition())
      if (!work(idle_context_.load(std::memory_order_relaxed), thread)) break;
  for (int i = 0; i < 64; ++i) {
    if (condition()) return true;
    pause_briefly();
  }
  const auto give_up = std::chrono::steady_clock::now() + kSpinTime;
  while (std::chrono::steady_clock::now() < give_up)
    for (int i = 0; i < 32; ++i) {
      if (condition()) return true;
      pause_briefly();
    }
  return condition();
}

void ThreadPool::run_loop(const Loop& loop) {
  if (loop.count <= 0) return;
  const std::int64_t most = kChunksPerThread * threads();
  std::int64_t chunks = std::clamp<std::int64_t>(loop.count / std::max<std::int64_t>(loop.grain, 1), 1, most);
  if (chunks > threads_) chunks -= chunks % threads_;  // equal shares, so that nobody waits for a last chunk
  if (threads_ == 1 || chunks == 1) {
    loop.call(loop.context, 0, loop.count, 0);
    return;
  }
  loop_ = loop;
  chunks_ = static_cast<std::uint64_t>(chunks);
  chunks_begun_ += chunks_;
  const auto n = static_cast<std::uint64_t>(threads());
  for (std::uint64_t i = 0; i < n; ++i)
    shares_[i].chunks.store(packed(chunks_ * i / n, chunks_ * (i + 1) / n), std::memory_order_release);
  // Sequentially consistent, as are the sleeper's steps: either it sees the new generation or we see it asleep.
  generation_.fetch_add(1);
  if (sleepers_.load() > 0) generation_.notify_all();
  take_part(0);
  wait_for_chunks();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const auto called = [&] { return generation_.load(std::memory_order_acquire) != seen; };
    if (!wait_a_while(called, thread)) {
      sleepers_.fetch_add(1);
      generation_.wait(seen);
      sleepers_.fetch_sub(1);
    }
    seen = generation_.load(std::memory_order_acquire);
    take_part(thread);
  }
}

// Its own share first, then what is left of the others'.
void ThreadPool::take_part(int thread) {
  std::uint64_t finished = 0;
  for (int i = 0; i < threads(); ++i)
    finished += take_chunks_of(shares_[static_cast<std::size_t>((thread + i) % threads())], thread);
  if (finished == 0) return;
  std::atomic<std::uint64_t>& done = shares_[static_cast<std::size_t>(thread)].done;
  done.store(done.load(std::memory_order_relaxed) + finished);
  if (thread != 0 && caller_sleeps_.load()) {
    finished_.fetch_add(1);
    finished_.notify_one();
  }
}

std::uint64_t ThreadPool::take_chunks_of(Share& share, int thread) {
  std::uint64_t finished = 0;
  std::uint64_t left = share.chunks.load(std::memory_order_acquire);
  while (true) {
    const std::uint64_t next = left & 0xffffffffu, end = left >> 32;
    if (next == end) return finished;
    if (!share.chunks.compare_exchange_weak(left, packed(next + 1, end), std::memory_order_acq_rel,
                                            std::memory_order_acquire))
      continue;
    run_chunk(next, thread);
    ++finished;
    left = share.chunks.load(std::memory_order_acquire);
  }
}

void ThreadPool::run_chunk(std::uint64_t chunk, int thread) {
  const auto count = static_cast<std::uint64_t>(loop_.count);
  try {
    loop_.call(loop_.context, static_cast<std::int64_t>(count * chunk / chunks_),
               static_cast<std::int64_t>(count * (chunk + 1) / chunks_), thread);
  } catch (...) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

bool ThreadPool::all_done() const {
  std::uint64_t done = 0;
  for (int i = 0; i < threads(); ++i) done += shares_[static_cast<std::size_t>(i)].done.load();
  return done == chunks_begun_;
}

void ThreadPool::wait_for_chunks() {
  while (!wait_a_while([this] { return all_done(); }, 0)) {
    const std::uint32_t seen = finished_.load();
    caller_sleeps_.store(true);
    if (!all_done()) finished_.wait(seen);
    caller_sleeps_.store(false);
  }
}

}  // namespace espalier
