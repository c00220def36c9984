// Streams as queues: a task is issued, and runs only when a synchronise, an event or the pressure of a full queue
// demands it. What the host does not know to have ended is outstanding, even if it ran: on a card it might still be
// running.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "acl_types.h"
#include "ledger.h"
#include "ranges.h"

namespace ascend_fake {

struct Fake;
struct Capture;

// One piece of work for the device. It holds copies of all host values (F50) and is never changed.
struct Task {
  Origin origin;
  Ranges reads;   // bytes of the device and of pinned memory
  Ranges writes;  // the workspace included
  Ranges workspace;
  Ranges host_sources;  // the pinned part of reads: must not change until the task ran (F10)
  Ranges host_targets;  // the pinned part of writes: holds poison until then
  std::function<void(Fake&)> run;
};

// How far every stream had come: the number of its last entry, by stream.
using Clock = std::map<const void*, uint64_t>;
void join(Clock& clock, const Clock& other);
uint64_t at(const Clock& clock, const void* stream);

// A place in a stream.
struct Place {
  const void* stream = nullptr;
  uint64_t number = 0;
};

// A task in a queue: tasks of a replay come as one entry.
struct Entry {
  uint64_t number = 0;
  Origin origin;
  std::vector<std::shared_ptr<const Task>> tasks;
  std::vector<Place> after;
  std::vector<uint64_t> checksums;  // of the tasks' host sources, when issued
  const void* graph = nullptr;      // of a replay
  std::shared_ptr<const Ranges> reads;
  std::shared_ptr<const Ranges> writes;
};

// Between TaskUpdateBegin and End.
struct GroupUpdate {
  const void* group = nullptr;
  std::vector<std::shared_ptr<const Task>> tasks{};
};

struct Stream {
  Origin origin{};
  const void* context = nullptr;
  int32_t device = 0;
  bool stop_on_failure = false;
  bool stopped = false;  // by a fault: later tasks are dropped
  int fault = 0;         // what the next synchronise answers
  std::string fault_text{};
  uint64_t issued = 0;
  uint64_t executed = 0;
  std::deque<Entry> queue{};
  std::deque<Entry> outstanding{};  // what ran, and the host does not know it
  Clock clock{};
  std::shared_ptr<Capture> capture{};
  std::optional<GroupUpdate> update{};
};

struct Event {
  Origin origin{};
  uint32_t flags = 0;
  int32_t device = 0;
  std::optional<Place> recorded{};
  Clock clock{};  // of the recording stream, then
  std::weak_ptr<Capture> capture{};
  uint64_t capture_number = 0;
};

// Puts a task behind the others of the stream, or into its capture or update.
void issue(Fake& fake, const void* stream, std::shared_ptr<const Task> task);
// Puts an entry behind the others, whatever is being captured.
void enqueue(Fake& fake, const void* stream, Entry entry);
// Runs the stream's entries up to this number, and what they wait for.
void run_until(Fake& fake, const void* stream, uint64_t number);
// Runs everything and tells the host; the code of a fault, or 0. hidden: no synchronise call asked for it (F53).
int synchronise(Fake& fake, const void* stream, bool hidden);
// The host learns that everything up to this clock has ended.
void host_learns(Fake& fake, const Clock& clock);
// Takes the code of a fault that a synchronise has to report.
int taken_fault(Stream& stream);
// The first outstanding entry of any stream that reads (or only writes) bytes of these, or null.
const Entry* outstanding_user(Fake& fake, const Ranges& bytes, bool also_readers);

}  // namespace ascend_fake
