#include "capture.h"

#include <algorithm>
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

}  // namespace

Capture& capture_of(Fake& f, const void* handle) {
  Stream& stream = stream_of(f, handle);
  if (!stream.capture) throw Refusal{kNotCapturing, "the stream is not capturing"};
  return *stream.capture;
}

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

}  // namespace ascend_fake
