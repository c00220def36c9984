// A fixed set of threads that share out one loop at a time. The caller takes part; run() returns when all is done.
// Work is split by outputs and never by the terms of a sum, so results do not depend on the number of threads.
// One caller at a time; an exception in the body is rethrown in the caller once every thread has stopped.
//
// Made for thousands of short loops per second: run() allocates nothing and, while loops follow each other closely,
// makes no system call. Each thread starts with a share of its own, cut into chunks, and takes over chunks of others
// when it is done; a thread that the system has put aside delays nobody beyond the chunk it holds. Idle threads spin
// for a fraction of a millisecond and then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace espalier {

class ThreadPool {
 public:
  // `threads` counts the caller: 1 starts no thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Something useful for threads that wait: called again and again, with the number of the thread, until it returns
  // false or there is work. It must be quick (well below a microsecond), must not throw and needs no loop to run.
  using IdleWork = bool (*)(void* context, int thread);
  // While no loop runs. `context` must outlive the pool.
  void set_idle_work(IdleWork work, void* context);

  // Calls body(begin, end), or body(begin, end, thread) with thread < threads(), on disjoint ranges that cover
  // [0, count). Ranges hold at least `grain` items where there are so many; a loop of one range runs in the caller.
  template <typename Body>
  void run(std::int64_t count, Body&& body, std::int64_t grain = 1) {
    using Callable = std::remove_reference_t<Body>;
    run_loop({count, grain,
              [](const void* context, std::int64_t begin, std::int64_t end, int thread) {
                auto& callable = *static_cast<Callable*>(const_cast<void*>(context));
                if constexpr (std::is_invocable_v<Callable&, std::int64_t, std::int64_t, int>) {
                  callable(begin, end, thread);
                } else {
                  callable(begin, end);
                }
              },
              static_cast<const void*>(std::addressof(body))});
  }

 private:
  struct Loop {
    std::int64_t count = 0;
    std::int64_t grain = 1;
    void (*call)(const void* context, std::int64_t begin, std::int64_t end, int thread) = nullptr;
    const void* context = nullptr;
  };

  // One per thread, on cache lines of its own.
  struct alignas(128) Share {
    // Chunks nobody has taken: the next in the low half, the end in the high half. Empty between loops, so whoever
    // takes a chunk, however late it comes, takes it from the loop that runs now.
    std::atomic<std::uint64_t> chunks = 0;
    std::atomic<std::uint64_t> done = 0;  // chunks this thread has finished since the pool began
  };

  void run_loop(const Loop& loop);
  void work(int thread);
  void take_part(int thread);
  std::uint64_t take_chunks_of(Share& share, int thread);
  void run_chunk(std::uint64_t chunk, int thread);
  void wait_for_chunks();
  bool all_done() const;
  template <typename Condition>
  bool wait_a_while(const Condition& condition, int thread);

  const int threads_;
  std::unique_ptr<Share[]> shares_;
  std::vector<std::thread> workers_;

  // The running loop. Written by the caller while all shares are empty, read by whoever holds one of its chunks.
  Loop loop_;
  std::uint64_t chunks_ = 0;
  std::uint64_t chunks_begun_ = 0;  // over all loops so far

  std::mutex failure_mutex_;
  std::exception_ptr failure_;

  std::atomic<IdleWork> idle_work_ = nullptr;
  std::atomic<void*> idle_context_ = nullptr;

  alignas(128) std::atomic<std::uint32_t> generation_ = 0;  // counts loops; idle threads watch it
  std::atomic<int> sleepers_ = 0;
  std::atomic<bool> stop_ = false;
  alignas(128) std::atomic<std::uint32_t> finished_ = 0;  // changes when a thread finds the caller asleep
  std::atomic<bool> caller_sleeps_ = false;
};

}  // namespace espalier
