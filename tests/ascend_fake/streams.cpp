#include "streams.h"

#include <algorithm>
#include <cstring>

#include "capture.h"
#include "fake.h"
#include "numbers.h"

namespace ascend_fake {
namespace {

constexpr size_t kLongestQueue = 8192;

uint64_t checksum(const Ranges& host) {
  uint64_t sum = 0;
  for (const Range& range : host) {
    for (uint64_t at = range.begin; at < range.end; at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, reinterpret_cast<const void*>(at), std::min<uint64_t>(sizeof(word), range.end - at));
      sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
    }
  }
  return sum;
}

void poison_targets(const Task& task) {
  for (const Range& range : task.host_targets) {
    std::memset(reinterpret_cast<void*>(range.begin), 0x7F, range.end - range.begin);
  }
}

bool entries_conflict(const Entry& a, const Entry& b) {
  return overlap(*a.writes, *b.writes) || overlap(*a.writes, *b.reads) || overlap(*a.reads, *b.writes);
}

bool share_workspace(const Entry& a, const Entry& b) {
  return std::any_of(a.tasks.begin(), a.tasks.end(),
                     [&](const auto& task) { return overlap(task->workspace, *b.writes); }) ||
         std::any_of(b.tasks.begin(), b.tasks.end(),
                     [&](const auto& task) { return overlap(task->workspace, *a.writes); });
}

// F21, F18: another stream touches the same bytes, and no event or synchronise lies between.
void check_stream_races(Fake& fake, const void* self, const Entry& entry) {
  const Clock& clock = fake.streams.find(self)->clock;
  for (auto& [id, other] : fake.streams.objects()) {
    const void* handle = reinterpret_cast<const void*>(id);
    if (handle == self) continue;
    for (const auto* entries : {&other.outstanding, &other.queue}) {
      for (const Entry& theirs : *entries) {
        if (theirs.number <= at(clock, handle) || !entries_conflict(entry, theirs)) continue;
        const bool workspace = share_workspace(entry, theirs);
        fake.ledger.violation(workspace ? 18 : 21, std::string(workspace ? "a workspace" : "bytes") +
                                                       " in use on another stream since " + described(theirs.origin) +
                                                       ", with no event between");
        return;
      }
    }
  }
}

// F47: what a graph will write is nobody's to read before its first replay, unless somebody else wrote it since.
void check_unread_results(Fake& fake, const Entry& entry) {
  for (auto& [id, graph] : fake.graphs.objects()) {
    if (graph.unread.empty()) continue;
    for (const auto& task : entry.tasks) {
      if (overlap(task->reads, graph.unread)) {
        fake.ledger.violation(
            47, "reads the result of a captured op before the first replay; captured at " + described(graph.origin));
      }
      graph.unread = without(graph.unread, task->writes);
    }
  }
}

void run_task(Fake& fake, Stream& stream, const Task& task) {
  if (stream.stopped) return;
  ++fake.counters.tasks_run;
  try {
    if (fake.options.fault_at_task == fake.counters.tasks_run) throw Fault{kCoreFault, "a fault on demand"};
    task.run(fake);
  } catch (const Fault& fault) {
    stream.fault = fault.code;
    stream.fault_text = "at " + described(task.origin) + ": " + fault.text;
    stream.stopped = stream.stop_on_failure;
  }
}

void run_entry(Fake& fake, const void* handle) {
  Entry entry = std::move(fake.streams.find(handle)->queue.front());
  fake.streams.find(handle)->queue.pop_front();
  for (const Place& place : entry.after) run_until(fake, place.stream, place.number);
  Stream& stream = *fake.streams.find(handle);
  for (size_t i = 0; i < entry.tasks.size(); ++i) {
    const Task& task = *entry.tasks[i];
    if (!task.host_sources.empty() && checksum(task.host_sources) != entry.checksums[i]) {
      fake.ledger.violation(10, entry.origin, "pinned source changed between the call and the copy");
    }
    run_task(fake, stream, task);
  }
  stream.executed = entry.number;
  stream.outstanding.push_back(std::move(entry));
}

// Seeded: a queue that grows may begin to run, as on a card. Never with seed 0, unless it becomes too long.
void feel_pressure(Fake& fake, const void* handle) {
  const Stream& stream = *fake.streams.find(handle);
  if (stream.queue.empty()) return;
  const uint64_t chance = mixed(fake.options.seed, fake.ledger.calls(), stream.queue.size());
  const bool seeded = fake.options.seed != 0 && chance % 8 == 0;
  if (!seeded && stream.queue.size() < kLongestQueue) return;
  run_until(fake, handle, stream.queue[chance / 8 % stream.queue.size()].number);
}

}  // namespace

void join(Clock& clock, const Clock& other) {
  for (const auto& [stream, number] : other) clock[stream] = std::max(clock[stream], number);
}

uint64_t at(const Clock& clock, const void* stream) {
  const auto found = clock.find(stream);
  return found == clock.end() ? 0 : found->second;
}

void enqueue(Fake& fake, const void* handle, Entry entry) {
  Stream& stream = *fake.streams.find(handle);
  if (!entry.reads) {
    Ranges reads;
    Ranges writes;
    for (const auto& task : entry.tasks) {
      append(reads, task->reads);
      append(writes, task->writes);
    }
    entry.reads = std::make_shared<const Ranges>(merged(std::move(reads)));
    entry.writes = std::make_shared<const Ranges>(merged(std::move(writes)));
  }
  entry.origin = fake.ledger.current();
  entry.number = ++stream.issued;
  check_stream_races(fake, handle, entry);
  check_unread_results(fake, entry);
  for (const auto& task : entry.tasks) entry.checksums.push_back(checksum(task->host_sources));
  for (const auto& task : entry.tasks) poison_targets(*task);
  stream.clock[handle] = entry.number;
  stream.queue.push_back(std::move(entry));
  feel_pressure(fake, handle);
}

void issue(Fake& fake, const void* handle, std::shared_ptr<const Task> task) {
  Stream& stream = *fake.streams.find(handle);
  if (stream.update) {
    stream.update->tasks.push_back(std::move(task));
  } else if (stream.capture) {
    record(fake, *stream.capture, handle, std::move(task));
  } else {
    Entry entry;
    entry.tasks.push_back(std::move(task));
    enqueue(fake, handle, std::move(entry));
  }
}

void run_until(Fake& fake, const void* handle, uint64_t number) {
  const Stream* stream = fake.streams.find(handle);
  if (stream == nullptr) return;
  while (!stream->queue.empty() && stream->queue.front().number <= number) run_entry(fake, handle);
}

void host_learns(Fake& fake, const Clock& clock) {
  for (const auto& [handle, number] : clock) {
    Stream* stream = fake.streams.find(handle);
    if (stream == nullptr) continue;
    while (!stream->outstanding.empty() && stream->outstanding.front().number <= number)
      stream->outstanding.pop_front();
  }
}

int taken_fault(Stream& stream) {
  const int code = stream.fault;
  if (!stream.stopped) stream.fault = 0;
  return code;
}

int synchronise(Fake& fake, const void* handle, bool hidden) {
  ++fake.counters.synchronisations;
  if (hidden) ++fake.counters.hidden_synchronisations;
  if (fake.options.seed != 0) {
    for (auto& [id, other] : fake.streams.objects()) {
      const uint64_t some = mixed(fake.options.seed, fake.ledger.calls(), other.issued) % (other.queue.size() + 1);
      if (some > 0) run_until(fake, reinterpret_cast<const void*>(id), other.queue[some - 1].number);
    }
  }
  Stream& stream = *fake.streams.find(handle);
  run_until(fake, handle, stream.issued);
  host_learns(fake, stream.clock);
  const int code = taken_fault(stream);
  if (code != 0) fake.remember(stream.fault_text);
  return code;
}

const Entry* outstanding_user(Fake& fake, const Ranges& bytes, bool also_readers) {
  for (auto& [id, stream] : fake.streams.objects()) {
    for (const auto* entries : {&stream.outstanding, &stream.queue}) {
      for (const Entry& entry : *entries) {
        if (overlap(*entry.writes, bytes) || (also_readers && overlap(*entry.reads, bytes))) return &entry;
      }
    }
  }
  return nullptr;
}

}  // namespace ascend_fake
