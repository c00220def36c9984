// Allocation and copies (F5 to F11, F58).
#include <algorithm>
#include <cstring>

#include "acl_runtime.h"
#include "fake.h"

namespace ascend_fake {
namespace {

constexpr uint64_t kSlackOfA2 = 32;

Range range_of(const void* address, size_t bytes) {
  const uint64_t begin = reinterpret_cast<uint64_t>(address);
  return {begin, begin + bytes};
}

bool out_of_luck(Fake& f) {
  return ++f.allocation_attempts == f.options.fail_allocation;
}

// F5: a range of one live allocation of the device.
void need_device(Fake& f, const Range& range, const char* what) {
  if (f.memory.containing(range) != nullptr) return;
  f.ledger.violation(5, std::string(what) + (DeviceMemory::is_device(range.begin)
                                                 ? " leaves its allocation, or was freed"
                                                 : " is not device memory: wrong kind or foreign pointer"));
  throw Refusal{kBadParameter, "not device memory"};
}

// F5: memory of the host; pinned if it begins in pinned memory, of which it then must not leave the block.
bool is_pinned(Fake& f, const Range& range, const char* what) {
  const bool foreign = DeviceMemory::is_device(range.begin);
  if (foreign || (f.pinned.touches(range) && !f.pinned.contains(range))) {
    f.ledger.violation(5, std::string(what) + (foreign ? " is device memory: wrong kind" : " leaves its pinned block"));
    throw Refusal{kBadParameter, "not host memory"};
  }
  return f.pinned.contains(range);
}

struct Copy {
  Range target;
  Range source;
  aclrtMemcpyKind kind;
};

aclrtMemcpyKind resolved(aclrtMemcpyKind kind, const Range& target, const Range& source) {
  if (kind != ACL_MEMCPY_DEFAULT) return kind;
  const bool to = DeviceMemory::is_device(target.begin);
  const bool from = DeviceMemory::is_device(source.begin);
  if (to) return from ? ACL_MEMCPY_DEVICE_TO_DEVICE : ACL_MEMCPY_HOST_TO_DEVICE;
  return from ? ACL_MEMCPY_DEVICE_TO_HOST : ACL_MEMCPY_HOST_TO_HOST;
}

Copy checked_copy(void* dst, size_t room, const void* src, size_t count, aclrtMemcpyKind kind) {
  if (dst == nullptr || src == nullptr) throw Refusal{kBadParameter, "a copy from or to null"};
  if (count == 0 || count > room) throw Refusal{kBadParameter, "count is 0 or more than destMax"};
  if (kind < ACL_MEMCPY_HOST_TO_HOST || kind > ACL_MEMCPY_DEFAULT) throw Refusal{kBadParameter, "unknown kind of copy"};
  const Range target = range_of(dst, count);
  const Range source = range_of(src, count);
  return {target, source, resolved(kind, target, source)};
}

bool to_device(const Copy& copy) {
  return copy.kind == ACL_MEMCPY_HOST_TO_DEVICE || copy.kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
}
bool from_device(const Copy& copy) {
  return copy.kind == ACL_MEMCPY_DEVICE_TO_HOST || copy.kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
}

// Whether its host side is pinned; true for a copy on the device.
bool check_sides(Fake& f, const Copy& copy) {
  bool pinned = true;
  if (to_device(copy)) {
    need_device(f, copy.target, "the target");
  } else {
    pinned = is_pinned(f, copy.target, "the target");
  }
  if (from_device(copy)) {
    need_device(f, copy.source, "the source");
  } else {
    pinned = is_pinned(f, copy.source, "the source") && pinned;
  }
  if (from_device(copy) && f.memory.converted(copy.source) != nullptr) {
    f.ledger.violation(13, "a converted weight is read back");
  }
  if (copy.kind == ACL_MEMCPY_DEVICE_TO_DEVICE && overlap(copy.target, copy.source)) {
    f.ledger.violation(5, "source and target of a copy overlap");
  }
  return pinned;
}

void count_bytes(Fake& f, const Copy& copy) {
  const uint64_t bytes = copy.target.end - copy.target.begin;
  if (copy.kind == ACL_MEMCPY_HOST_TO_DEVICE) f.counters.bytes_to_device += bytes;
  if (copy.kind == ACL_MEMCPY_DEVICE_TO_HOST) f.counters.bytes_to_host += bytes;
  if (copy.kind == ACL_MEMCPY_DEVICE_TO_DEVICE) f.counters.bytes_on_device += bytes;
}

// Moves the bytes now. F24: nobody wrote them.
void perform(Fake& f, const Copy& copy, const Origin& origin) {
  Allocation* to = to_device(copy) ? f.memory.containing(copy.target) : nullptr;
  Allocation* from = from_device(copy) ? f.memory.containing(copy.source) : nullptr;
  if ((to_device(copy) && to == nullptr) || (from_device(copy) && from == nullptr)) {
    throw Fault{kCoreFault, "a copy of memory that was freed"};
  }
  if (from != nullptr && !from->all_written(copy.source))
    f.ledger.violation(24, origin, "copies bytes that nobody wrote");
  const void* source = from != nullptr ? from->at(copy.source.begin) : reinterpret_cast<const void*>(copy.source.begin);
  void* target = to != nullptr ? to->at(copy.target.begin) : reinterpret_cast<void*>(copy.target.begin);
  std::memmove(target, source, copy.target.end - copy.target.begin);
  if (to != nullptr) to->mark_written(copy.target);
  count_bytes(f, copy);
}

std::shared_ptr<Task> copy_task(Fake& f, const Copy& copy) {
  auto task = std::make_shared<Task>();
  task->origin = f.ledger.current();
  task->reads = {copy.source};
  task->writes = {copy.target};
  if (!from_device(copy)) task->host_sources = {copy.source};
  if (!to_device(copy)) task->host_targets = {copy.target};
  task->run = [copy, origin = task->origin](Fake& state) { perform(state, copy, origin); };
  return task;
}

// F8: with pageable memory the call returns when the copy is done, behind everything else on the stream.
int copy_pageable(Fake& f, const Copy& copy, aclrtStream stream) {
  auto task = std::make_shared<Task>(*copy_task(f, copy));
  task->host_sources.clear();
  task->host_targets.clear();
  issue(f, stream, std::move(task));
  return synchronise(f, stream, true);
}

// F9: a blocking copy is not ordered after queued work.
void check_idle(Fake& f, const Copy& copy) {
  const Entry* writer = outstanding_user(f, {copy.source}, false);
  const Entry* user = outstanding_user(f, {copy.target}, true);
  if (writer == nullptr) writer = user;
  if (writer != nullptr)
    f.ledger.violation(9, "blocking copy on bytes with a queued user of " + described(writer->origin));
  for (const auto& [handle, graph] : f.graphs.objects()) {
    if (overlap({copy.source}, graph.unread)) {
      f.ledger.violation(47, "copies the result of a captured op before the first replay");
    }
  }
}

// F7: nobody may free what queued work or a live graph uses.
void check_unused(Fake& f, const Range& range) {
  if (f.cannot_wait) return;
  if (const Entry* user = outstanding_user(f, {range}, true)) {
    f.ledger.violation(7, "free of memory in use since " + described(user->origin));
  } else if (const Graph* graph = graph_user(f, {range})) {
    f.ledger.violation(7, "free of memory that the graph of " + described(graph->origin) + " uses");
  }
}

// This call, with the device of the thread's context.
Origin origin_here(Fake& f) {
  Origin origin = f.ledger.current();
  origin.device = f.contexts.find(this_thread(f).context)->device;
  return origin;
}

}  // namespace

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return answer({.name = "aclrtMalloc"}, [&](Fake& f) {
    if (devPtr == nullptr || size == 0 || policy < ACL_MEM_MALLOC_HUGE_FIRST || policy > ACL_MEM_MALLOC_NORMAL_ONLY) {
      throw Refusal{kBadParameter, "an allocation of 0 bytes, to null or by an unknown policy"};
    }
    check_no_capture(f, "an allocation");
    if (out_of_luck(f) || size > f.options.memory_bytes - std::min(f.options.memory_bytes, f.memory.live_bytes())) {
      throw Refusal{kNoMemory, "no memory left on the device"};
    }
    *devPtr = f.memory.allocate(size, f.is_soc("Ascend950") ? 0 : kSlackOfA2, origin_here(f));
    ++f.counters.allocations;
    if (f.warm) ++f.counters.allocations_after_warm;
    return 0;
  });
}

aclError aclrtFree(void* devPtr) {
  return answer({.name = "aclrtFree", .releases = true}, [&](Fake& f) {
    if (devPtr == nullptr) throw Refusal{kBadParameter, "free of null"};
    const uint64_t address = reinterpret_cast<uint64_t>(devPtr);
    const Allocation* home = f.memory.beginning(address);
    if (home == nullptr) {
      const Origin* before = f.memory.freed(address);
      f.ledger.violation(5, before != nullptr ? "freed already at " + described(*before) : "free of a foreign pointer");
      return kBadParameter;
    }
    check_no_capture(f, "a free");
    check_unused(f, {address, address + home->size()});
    f.memory.free(address, f.ledger.current());
    return 0;
  });
}

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  return answer({.name = "aclrtMallocHost"}, [&](Fake& f) {
    if (hostPtr == nullptr || size == 0) throw Refusal{kBadParameter, "an allocation of 0 bytes"};
    if (out_of_luck(f)) throw Refusal{kNoMemory, "no pinned memory left"};
    *hostPtr = f.pinned.allocate(size, origin_here(f));
    return 0;
  });
}

aclError aclrtFreeHost(void* hostPtr) {
  return answer({.name = "aclrtFreeHost", .releases = true}, [&](Fake& f) {
    if (hostPtr == nullptr) throw Refusal{kBadParameter, "free of null"};
    const Range range = f.pinned.range_at(reinterpret_cast<uint64_t>(hostPtr));
    if (range.end == 0) {
      f.ledger.violation(5, "free of what is not the beginning of live pinned memory");
      return kBadParameter;
    }
    check_unused(f, range);
    f.pinned.free(range.begin, outstanding_user(f, {range}, true) != nullptr || graph_user(f, {range}) != nullptr);
    return 0;
  });
}

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind) {
  return answer({.name = "aclrtMemcpy"}, [&](Fake& f) {
    check_blocking(f, Blocking::kCopy);
    const Copy copy = checked_copy(dst, destMax, src, count, kind);
    check_sides(f, copy);
    check_idle(f, copy);
    if (to_device(copy)) f.memory.overwrite(copy.target);
    ++f.counters.synchronisations;
    ++f.counters.hidden_synchronisations;
    perform(f, copy, f.ledger.current());
    return 0;
  });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
  return answer({.name = "aclrtMemcpyAsync"}, [&](Fake& f) {
    Stream& target = stream_of(f, stream);
    const Copy copy = checked_copy(dst, destMax, src, count, kind);
    if (copy.kind == ACL_MEMCPY_HOST_TO_HOST) throw Refusal{kNotSupported, "an async copy from host to host"};
    if (target.capture && copy.kind == ACL_MEMCPY_DEVICE_TO_DEVICE) {
      invalidate(*target.capture, kTaskNotSupported, "a copy from device to device in a capture");
    }
    const bool pinned = check_sides(f, copy);
    if (!pinned && target.capture) invalidate(*target.capture, kWouldBlock, "a pageable copy in a capture");
    if (to_device(copy)) f.memory.overwrite(copy.target);
    if (!pinned) return copy_pageable(f, copy, stream);
    issue(f, stream, copy_task(f, copy));
    return 0;
  });
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
  return answer({.name = "aclrtMemsetAsync"}, [&](Fake& f) {
    stream_of(f, stream);
    if (devPtr == nullptr || count == 0 || count > maxCount)
      throw Refusal{kBadParameter, "count is 0 or more than maxCount"};
    const Range range = range_of(devPtr, count);
    need_device(f, range, "the target");
    f.memory.overwrite(range);
    auto task = std::make_shared<Task>();
    task->origin = f.ledger.current();
    task->writes = {range};
    task->run = [range, value](Fake& state) {
      Allocation* home = state.memory.containing(range);
      if (home == nullptr) throw Fault{kCoreFault, "a memset of memory that was freed"};
      std::memset(home->at(range.begin), value, range.end - range.begin);
      home->mark_written(range);
    };
    issue(f, stream, std::move(task));
    return 0;
  });
}

}  // namespace ascend_fake
