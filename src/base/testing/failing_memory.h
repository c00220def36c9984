// Memory that runs out when it is told to, for tests of what a failure leaves behind: one call of operator new throws
// std::bad_alloc, those before and behind it work. Whoever links failing_memory.cpp has operator new replaced; it costs
// one look at a counter. What calls malloc itself is not concerned.
#pragma once

#include <cstdint>

namespace espalier {

// One at a time. The counter is the program's, since operator new is.
class FailingMemory {
 public:
  // The n-th allocation from now, n >= 1, fails, on any thread but this one; the next that may, where it may not.
  explicit FailingMemory(std::int64_t n);
  ~FailingMemory();  // all work again
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;

  bool failed() const;  // it has
};

}  // namespace espalier
