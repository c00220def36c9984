// Weights that are about to be read, for threads that have nothing to do: the steps of a model run the same linears in
// the same order, so the linear that followed this one last time will follow it again. While a thread waits for the
// others, or for work that is not shared out, it brings the beginning of its share of the next weight into its cache.
//
// A guess costs nothing but bandwidth nobody used: prefetching changes no result, and may name memory that is gone.
// begin() belongs to the caller of linears; fetch() may be called at any time from any thread, with its own number.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace espalier::cpu {

class ReadAhead {
 public:
  // Where a thread starts to read.
  struct Place {
    const std::uint8_t* panel = nullptr;
    std::int64_t panel_bytes = 0;
  };

  explicit ReadAhead(int threads);

  // The linear over `weight` begins; thread i starts at starts[i].
  void begin(const void* weight, std::span<const Place> starts);
  // A few lines for this thread. False when there is nothing left to fetch.
  bool fetch(int thread);

 private:
  struct alignas(128) Target {
    std::atomic<const std::uint8_t*> panel = nullptr;
    std::atomic<std::int64_t> panel_bytes = 0;
    std::atomic<std::int64_t> line = 0;  // the next one to fetch
  };

  std::unique_ptr<Target[]> targets_;
  std::unordered_map<const void*, std::vector<Place>> next_;  // by weight: where the linear after it began
  const void* previous_ = nullptr;
};

}  // namespace espalier::cpu
