#include "capture.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "acl_runtime.h"
#include "fake.h"

namespace ascend_fake {
namespace {

using Branch = Capture::Branch;

bool tasks_conflict(const Task& a, const Task& b) {
  return overlap(a.writes, b.writes) || overlap(a.writes, b.reads) || overlap(a.reads, b.writes);
}

void check_capture_races(Fake& f, const Capture& capture, const CaptureStep& step) {
  const Clock& clock = capture.branches.at(step.stream).clock;
  for (const CaptureStep& other : capture.steps) {
    if (other.stream == step.stream || other.number <= at(clock, other.stream)) continue;
    if (!tasks_conflict(*step.task, *other.task)) continue;
    f.ledger.violation(
        21, "captured streams touch the same bytes, with no event between: also " + described(other.task->origin));
    return;
  }
}

Capture& capture_of(Fake& f, const void* handle) {
  Stream& stream = stream_of(f, handle);
  if (!stream.capture) throw Refusal{kNotCapturing, "the stream is not capturing"};
  return *stream.capture;
}

void finish(Fake& f, Capture& capture) {
  capture.active = false;
  for (const auto& [handle, branch] : capture.branches) {
    if (Stream* stream = f.streams.find(handle)) stream->capture.reset();
  }
  std::erase_if(f.captures, [&](const auto& other) { return other.get() == &capture; });
}

// F49: every stream that joined has come back, and did nothing after that.
bool rejoined(Fake& f, const Capture& capture) {
  const Clock& origin = capture.branches.at(capture.origin).clock;
  for (const auto& [handle, branch] : capture.branches) {
    if (handle == capture.origin) continue;
    if (at(origin, handle) == 0) return false;
    if (at(origin, handle) < branch.issued) f.ledger.violation(49, "a task on a sub-stream after it rejoined");
  }
  return true;
}

void gather_bytes(Fake& f, Graph& graph) {
  Ranges reads;
  Ranges writes;
  for (const CaptureStep& step : graph.steps) {
    append(reads, step.task->reads);
    append(writes, step.task->writes);
  }
  graph.reads = std::make_shared<const Ranges>(merged(std::move(reads)));
  graph.writes = std::make_shared<const Ranges>(merged(std::move(writes)));
  graph.layouts.clear();
  for (const Range& range : *graph.reads) {
    if (!DeviceMemory::is_device(range.begin)) continue;
    const NzMatrix* matrix = f.memory.converted(range);
    graph.layouts.emplace_back(range, matrix == nullptr ? std::nullopt : std::optional(*matrix));
  }
}

Graph graph_of(Fake& f, Capture& capture) {
  Graph graph{.origin = f.ledger.current(), .device = f.streams.find(capture.origin)->device};
  graph.steps = std::move(capture.steps);
  graph.groups = capture.groups;
  graph.external_waits = capture.external_waits;
  graph.external_resets = capture.external_resets;
  gather_bytes(f, graph);
  graph.unread = *graph.writes;
  return graph;
}

Graph& graph_at(Fake& f, const void* handle) {
  Graph* graph = f.graphs.find(handle);
  if (graph != nullptr) return *graph;
  f.ledger.violation(48, f.graphs.absence(handle));
  throw Refusal{kBadHandle, "no such graph"};
}

// F48: what it refers to is still there, and as it was.
void check_graph_operands(Fake& f, const Graph& graph) {
  for (const auto* ranges : {graph.reads.get(), graph.writes.get()}) {
    for (const Range& range : *ranges) {
      const bool device = DeviceMemory::is_device(range.begin);
      if (device ? f.memory.at(range.begin) != nullptr : f.pinned.touches(range)) continue;
      f.ledger.violation(48, "replay of a graph whose operand or workspace was freed");
      return;
    }
  }
  for (const auto& [range, layout] : graph.layouts) {
    const NzMatrix* now = f.memory.converted(range);
    if ((now == nullptr ? std::nullopt : std::optional(*now)) != layout) {
      f.ledger.violation(48, "replay of a graph whose operand changed its format");
      return;
    }
  }
}

// F52: the replay comes after the last update, by the stream's order, an event or a synchronise.
void check_update_order(Fake& f, const Graph& graph, const Stream& stream, const std::vector<Place>& after) {
  if (!graph.last_update) return;
  const Place& update = *graph.last_update;
  const Stream* updater = f.streams.find(update.stream);
  if (updater == nullptr || at(stream.clock, update.stream) >= update.number) return;
  const auto known = [&](const auto& entries) {
    return std::any_of(entries.begin(), entries.end(), [&](const Entry& e) { return e.number == update.number; });
  };
  const bool ended = !known(updater->queue) && !known(updater->outstanding);
  const bool waited = std::any_of(after.begin(), after.end(), [&](const Place& place) {
    return place.stream == update.stream && place.number >= update.number;
  });
  if (!ended && !waited) f.ledger.violation(52, "a replay that is not ordered after the update of its tasks");
}

// The places of the events which the graph waits for. F52: an event nobody recorded would hang the card.
std::vector<Place> external_places(Fake& f, const Graph& graph) {
  std::vector<Place> places;
  for (const void* handle : graph.external_waits) {
    const Event* event = f.events.find(handle);
    if (event == nullptr || !event->recorded) {
      f.ledger.violation(52, "a replay waits for an external event that nobody recorded");
    } else {
      places.push_back(*event->recorded);
    }
  }
  return places;
}

void reset_external(Fake& f, const Graph& graph) {
  for (const void* handle : graph.external_resets) {
    if (Event* event = f.events.find(handle)) event->recorded.reset();
  }
}

// An outstanding replay of this graph that this clock does not know to have ended.
bool replay_is_outstanding(Fake& f, const void* graph, const Clock& clock) {
  for (const auto& [id, stream] : f.streams.objects()) {
    const uint64_t known = at(clock, reinterpret_cast<const void*>(id));
    for (const auto* entries : {&stream.outstanding, &stream.queue}) {
      for (const Entry& entry : *entries) {
        if (entry.graph == graph && entry.number > known) return true;
      }
    }
  }
  return false;
}

bool update_is_open(Fake& f, const void* graph) {
  for (const auto& [id, stream] : f.streams.objects()) {
    const TaskGroup* group = stream.update ? f.groups.find(stream.update->group) : nullptr;
    if (group != nullptr && group->graph == graph) return true;
  }
  return false;
}

// F52: as many tasks, of the same kinds.
bool same_kinds(const std::vector<CaptureStep*>& old, const GroupUpdate& update) {
  if (old.size() != update.tasks.size()) return false;
  for (size_t i = 0; i < old.size(); ++i) {
    if (std::string_view(old[i]->task->origin.name) != update.tasks[i]->origin.name) return false;
  }
  return true;
}

std::vector<CaptureStep*> steps_of(Graph& graph, size_t group) {
  std::vector<CaptureStep*> steps;
  for (CaptureStep& step : graph.steps) {
    if (step.group == group) steps.push_back(&step);
  }
  return steps;
}

// Exchanges the tasks when the update runs.
std::shared_ptr<Task> update_task(Fake& f, const GroupUpdate& update) {
  auto task = std::make_shared<Task>();
  task->origin = f.ledger.current();
  task->run = [update](Fake& state) {
    const TaskGroup* group = state.groups.find(update.group);
    Graph* graph = group == nullptr ? nullptr : state.graphs.find(group->graph);
    if (graph == nullptr) return;
    const std::vector<CaptureStep*> steps = steps_of(*graph, group->index);
    for (size_t i = 0; i < steps.size(); ++i) steps[i]->task = update.tasks[i];
    gather_bytes(state, *graph);
  };
  return task;
}

}  // namespace

void record(Fake& f, Capture& capture, const void* stream, std::shared_ptr<const Task> task) {
  Branch& branch = capture.branches[stream];
  CaptureStep step{.task = std::move(task), .stream = stream, .number = ++branch.issued, .group = capture.open_group};
  branch.clock[stream] = step.number;
  check_capture_races(f, capture, step);
  capture.steps.push_back(std::move(step));
}

void invalidate(Capture& capture, int code, const std::string& text) {
  if (capture.invalid.empty()) capture.invalid = text;
  throw Refusal{code, text};
}

// Another thread's copy is not refused where the capture is this thread's own; it broke captures all the same (xllm
// 604).
void check_blocking(Fake& f, Blocking kind) {
  if (this_thread(f).capture_mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) return;
  const std::string what = kind == Blocking::kCopy ? "a blocking copy" : "a wait or a query";
  for (const auto& capture : f.captures) {
    const bool mine = capture->thread == std::this_thread::get_id();
    const bool local = capture->mode == ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
    if (capture->mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || (local && mine)) {
      invalidate(*capture, kBlockingInCapture, what + " against the mode of a capture");
    }
    if (local && kind == Blocking::kCopy) f.ledger.violation(44, what + " while another thread captures");
  }
}

void check_no_capture(Fake& f, const char* what) {
  for (const auto& capture : f.captures) {
    const bool mine = capture->thread == std::this_thread::get_id();
    if (mine || capture->mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL) {
      f.ledger.violation(46, std::string(what) + " while capturing since " + described(capture->begin));
      return;
    }
  }
}

void record_event(Fake& f, Capture& capture, const void* stream, Event& event) {
  if ((event.flags & ACL_EVENT_EXTERNAL) != 0) {
    f.ledger.violation(52, "an EXTERNAL event is recorded in a capture");
    return;
  }
  Branch& branch = capture.branches[stream];
  event.capture_number = ++branch.issued;
  branch.clock[stream] = branch.issued;
  event.clock = branch.clock;
  event.capture = f.streams.find(stream)->capture;
}

void wait_event(Fake& f, const void* handle, const void* event_handle, Event& event) {
  Stream& stream = *f.streams.find(handle);
  const std::shared_ptr<Capture> theirs = event.capture.lock();
  if (theirs == nullptr) {
    if ((event.flags & ACL_EVENT_EXTERNAL) != 0) {
      stream.capture->external_waits.push_back(event_handle);
    } else {
      f.ledger.violation(49, "a capture waits for an event of outside that is not EXTERNAL");
    }
    return;
  }
  if (stream.capture && stream.capture != theirs) invalidate(*theirs, kOtherEnd, "an event between two captures");
  stream.capture = theirs;
  join(theirs->branches[handle].clock, event.clock);
}

const Graph* graph_user(Fake& f, const Ranges& bytes) {
  for (const auto& [handle, graph] : f.graphs.objects()) {
    if (overlap(*graph.reads, bytes) || overlap(*graph.writes, bytes)) return &graph;
  }
  return nullptr;
}

aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
  return answer({.name = "aclmdlRICaptureBegin"}, [&](Fake& f) {
    if (stream == nullptr) throw Refusal{kDefaultStream, "the default stream cannot capture"};
    Stream& object = stream_of(f, stream);
    if (mode < ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) return kBadParameter;
    if (object.capture) throw Refusal{kStreamCapturing, "the stream is capturing already"};
    if (static_cast<int32_t>(f.graphs.objects().size()) >= f.options.graph_limit) {
      throw Refusal{kNoStream, "no stream left for another graph"};
    }
    object.capture = std::make_shared<Capture>();
    object.capture->origin = stream;
    object.capture->begin = f.ledger.current();
    object.capture->mode = mode;
    object.capture->thread = std::this_thread::get_id();
    object.capture->branches[stream];
    f.captures.push_back(object.capture);
    return 0;
  });
}

aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus* status, aclmdlRI* modelRI) {
  return answer({.name = "aclmdlRICaptureGetInfo"}, [&](Fake& f) {
    if (status == nullptr) return kBadParameter;
    const Stream& object = stream_of(f, stream);
    *status = !object.capture                   ? ACL_MODEL_RI_CAPTURE_STATUS_NONE
              : object.capture->invalid.empty() ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE
                                                : ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;
    if (modelRI != nullptr) *modelRI = nullptr;
    return 0;
  });
}

aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI* modelRI) {
  return answer({.name = "aclmdlRICaptureEnd", .releases = true}, [&](Fake& f) {
    if (modelRI == nullptr) return kBadParameter;
    *modelRI = nullptr;
    const std::shared_ptr<Capture> capture = stream_of(f, stream).capture;
    if (capture == nullptr) {
      const bool elsewhere = std::any_of(f.captures.begin(), f.captures.end(),
                                         [](const auto& other) { return other->thread == std::this_thread::get_id(); });
      throw Refusal{elsewhere ? kOtherEnd : kNotCapturing, "this stream is not capturing"};
    }
    if (capture->origin != stream) throw Refusal{kOtherEnd, "the capture began on another stream"};
    if (capture->mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id()) {
      throw Refusal{kWrongThread, "the capture began on another thread"};
    }
    finish(f, *capture);
    if (f.failing != 0) return f.failing;
    if (!capture->invalid.empty()) throw Refusal{kCaptureInvalid, "the capture is invalid: " + capture->invalid};
    if (capture->open_group) throw Refusal{kGroupOpen, "a task group is open"};
    if (!rejoined(f, *capture)) throw Refusal{kNotRejoined, "a stream that joined the capture did not come back"};
    *modelRI = f.graphs.add(graph_of(f, *capture));
    for (const void* group : capture->groups) f.groups.find(group)->graph = *modelRI;
    ++f.counters.captures;
    return 0;
  });
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode* mode) {
  return answer({.name = "aclmdlRICaptureThreadExchangeMode"}, [&](Fake& f) {
    if (mode == nullptr) return kBadParameter;
    std::swap(*mode, this_thread(f).capture_mode);
    return 0;
  });
}

aclError aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream) {
  return answer({.name = "aclmdlRIExecuteAsync"}, [&](Fake& f) {
    Graph& graph = graph_at(f, modelRI);
    Stream& object = stream_of(f, stream);
    if (object.capture) invalidate(*object.capture, kStreamCapturing, "a replay on a capturing stream");
    check_graph_operands(f, graph);
    Entry entry;
    entry.graph = modelRI;
    entry.after = external_places(f, graph);
    check_update_order(f, graph, object, entry.after);
    if (graph.last_update) entry.after.push_back(*graph.last_update);
    for (const Place& place : entry.after) run_until(f, place.stream, place.number);
    for (const CaptureStep& step : graph.steps) entry.tasks.push_back(step.task);
    entry.reads = graph.reads;
    entry.writes = graph.writes;
    graph.unread.clear();
    ++f.counters.replays;
    enqueue(f, stream, std::move(entry));
    reset_external(f, graph);
    return 0;
  });
}

aclError aclmdlRIDestroy(aclmdlRI modelRI) {
  return answer({.name = "aclmdlRIDestroy", .releases = true}, [&](Fake& f) {
    const Graph& graph = graph_at(f, modelRI);
    if (!f.cannot_wait && replay_is_outstanding(f, modelRI, {}))
      f.ledger.violation(48, "destroys a graph whose replay nobody waited for");
    for (const void* group : graph.groups) f.groups.erase(group);
    f.graphs.erase(modelRI);
    return 0;
  });
}

aclError aclmdlRICaptureTaskGrpBegin(aclrtStream stream) {
  return answer({.name = "aclmdlRICaptureTaskGrpBegin"}, [&](Fake& f) {
    Capture& capture = capture_of(f, stream);
    if (capture.open_group) throw Refusal{kGroupOpen, "a task group is open already"};
    capture.open_group = capture.groups.size();
    return 0;
  });
}

aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp* handle) {
  return answer({.name = "aclmdlRICaptureTaskGrpEnd"}, [&](Fake& f) {
    if (handle == nullptr) return kBadParameter;
    Capture& capture = capture_of(f, stream);
    if (!capture.open_group) throw Refusal{kGroupNotOpen, "no task group is open"};
    const size_t index = *capture.open_group;
    const auto tasks = std::count_if(capture.steps.begin(), capture.steps.end(),
                                     [&](const CaptureStep& step) { return step.group == index; });
    if (tasks != 1)
      f.ledger.violation(52, "a task group of " + std::to_string(tasks) + " tasks; one has worked on cards");
    *handle = f.groups.add({.index = index});
    capture.groups.push_back(*handle);
    capture.open_group.reset();
    return 0;
  });
}

aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle) {
  return answer({.name = "aclmdlRICaptureTaskUpdateBegin"}, [&](Fake& f) {
    Stream& object = stream_of(f, stream);
    if (object.capture) throw Refusal{kStreamCapturing, "the update stream is capturing"};
    const TaskGroup* group = f.groups.find(handle);
    if (group == nullptr || group->graph == nullptr)
      throw Refusal{kBadHandle, "no such task group of an ended capture"};
    if (object.update || update_is_open(f, group->graph)) {
      f.ledger.violation(52, "two updates at once");
      return kGroupOpen;
    }
    object.update = GroupUpdate{.group = handle, .tasks = {}};
    return 0;
  });
}

aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream) {
  return answer({.name = "aclmdlRICaptureTaskUpdateEnd"}, [&](Fake& f) {
    Stream& object = stream_of(f, stream);
    if (!object.update) throw Refusal{kGroupNotOpen, "no update is open"};
    const GroupUpdate update = *std::exchange(object.update, std::nullopt);
    const TaskGroup* found = f.groups.find(update.group);
    if (found == nullptr) throw Refusal{kBadHandle, "the graph of the update was destroyed"};
    const TaskGroup& group = *found;
    Graph& graph = graph_at(f, group.graph);
    if (!same_kinds(steps_of(graph, group.index), update)) {
      f.ledger.violation(52, "an update with another number or other kinds of tasks");
      return kGroupNotOpen;
    }
    if (replay_is_outstanding(f, group.graph, object.clock)) {
      f.ledger.violation(52, "an update that is not ordered after the last replay");
    }
    issue(f, stream, update_task(f, update));
    graph.last_update = Place{stream, object.issued};
    return 0;
  });
}

}  // namespace ascend_fake
