#include "base/testing/failing_memory.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <limits>
#include <new>
#include <string_view>

namespace espalier {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

std::atomic<std::int64_t> allocations_left = kNever;  // before the one that fails
thread_local bool spared = false;

// Whoever throws there ends the program, whatever anybody does: an exception is on its way already, or a JSON value of
// the library is being destroyed, which takes memory for a list of what is in it. Its functions are known by their
// names, so the program has to export them.
bool may_not_fail() {
  if (std::uncaught_exceptions() > 0) return true;
  std::array<void*, 64> frames;
  const int depth = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  for (int i = 0; i < depth; ++i) {
    Dl_info function{};
    if (::dladdr(frames[static_cast<std::size_t>(i)], &function) == 0 || function.dli_sname == nullptr) continue;
    const std::string_view name = function.dli_sname;
    const bool json = name.find("basic_json") != std::string_view::npos;
    if (json && (name.find("7destroy") != std::string_view::npos || name.find("D2Ev") != std::string_view::npos ||
                 name.find("D1Ev") != std::string_view::npos))
      return true;
  }
  return false;
}

bool fails_now() {
  if (spared || allocations_left.load(std::memory_order_relaxed) == kNever) return false;
  const std::int64_t left = allocations_left.fetch_sub(1) - 1;
  if (left != 0) return false;
  if (!may_not_fail()) return true;
  allocations_left.fetch_add(1);  // the next one
  return false;
}

// Null: there is none.
void* allocated(std::size_t size) {
  return fails_now() ? nullptr : std::malloc(size > 0 ? size : 1);
}

[[maybe_unused]] void* allocate(std::size_t size) {
  void* const memory = allocated(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

FailingMemory::FailingMemory(std::int64_t n) {
  spared = true;
  allocations_left = n;
}

FailingMemory::~FailingMemory() {
  allocations_left = kNever;
  spared = false;
}

bool FailingMemory::failed() const {
  return allocations_left.load() <= 0;
}

}  // namespace espalier

// ThreadSanitizer has its own, with which memory never fails.
#if defined(__has_feature)
#define ESPALIER_THREAD_SANITIZED __has_feature(thread_sanitizer)
#else
#define ESPALIER_THREAD_SANITIZED 0
#endif
#if !ESPALIER_THREAD_SANITIZED
void* operator new(std::size_t size) {
  return espalier::allocate(size);
}
void* operator new[](std::size_t size) {
  return espalier::allocate(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return espalier::allocated(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return espalier::allocated(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
#endif

#ifdef ESPALIER_SANITIZED
// A JSON value that is made of a list, and runs out of memory in the middle, keeps what it has made so far: the
// library's own leak.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:basic_json(std::initializer_list\n";
}
#endif
