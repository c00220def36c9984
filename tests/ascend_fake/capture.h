// Captures, the graphs they become, and task groups whose tasks can be exchanged between replays.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "memory.h"
#include "streams.h"

namespace ascend_fake {

// One thing a capture recorded, in the order of the calls, which respects every event.
struct CaptureStep {
  std::shared_ptr<const Task> task;
  const void* stream = nullptr;
  uint64_t number = 0;
  std::optional<size_t> group{};
};

struct Capture {
  const void* origin = nullptr;  // the stream it began on
  Origin begin;
  aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  bool active = true;
  std::string invalid;  // why, if it is

  struct Branch {
    uint64_t issued = 0;
    Clock clock;
  };
  std::map<const void*, Branch> branches;  // the streams that joined
  std::vector<CaptureStep> steps;
  std::vector<const void*> groups;
  std::optional<size_t> open_group;
  std::vector<const void*> external_waits;
  std::vector<const void*> external_resets;
};

struct Graph {
  Origin origin{};
  int32_t device = 0;
  std::vector<CaptureStep> steps{};
  std::shared_ptr<const Ranges> reads{};
  std::shared_ptr<const Ranges> writes{};
  Ranges unread{};  // results that no replay has written yet (F47)
  std::vector<const void*> groups{};
  std::vector<const void*> external_waits{};
  std::vector<const void*> external_resets{};
  std::optional<Place> last_update{};
  std::vector<std::pair<Range, std::optional<NzMatrix>>> layouts{};  // of its operands when it was captured
};

struct TaskGroup {
  const void* graph = nullptr;  // null until the capture ended
  size_t index = 0;
};

// The capture of this stream; refuses where there is none.
Capture& capture_of(Fake& fake, const void* stream);
// What the steps of a graph read and write, and how its operands are laid out now.
void gather_bytes(Fake& fake, Graph& graph);
// A task issued to a capturing stream.
void record(Fake& fake, Capture& capture, const void* stream, std::shared_ptr<const Task> task);
// The capture of this stream cannot become a graph any more; throws the refusal.
[[noreturn]] void invalidate(Capture& capture, int code, const std::string& text);
// F44: a blocking call of this thread, against the mode of a capture that is going on.
enum class Blocking { kWait, kCopy };
void check_blocking(Fake& fake, Blocking kind);
// F46: allocation, free or conversion while this thread captures.
void check_no_capture(Fake& fake, const char* what);
// An event is recorded on, or waited for by, a capturing stream.
void record_event(Fake& fake, Capture& capture, const void* stream, Event& event);
void wait_event(Fake& fake, const void* stream, const void* event_handle, Event& event);
// Everything that reads or writes these bytes in a live graph: the graph, or null.
const Graph* graph_user(Fake& fake, const Ranges& bytes);

}  // namespace ascend_fake
