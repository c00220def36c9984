// Graphs: replays (F47, F48, F50), and task groups whose tasks are exchanged between them (F52).
#include <algorithm>
#include <string_view>
#include <utility>

#include "acl_runtime.h"
#include "capture.h"
#include "fake.h"

namespace ascend_fake {

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

namespace {

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
