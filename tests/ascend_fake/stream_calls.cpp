// Streams and events (F2, F21, F25, F44, F53).
#include "acl_runtime.h"
#include "fake.h"
#include "numbers.h"

namespace ascend_fake {
namespace {

// F44: a capturing stream cannot be waited for, asked or destroyed; another one neither, where the mode forbids it.
void check_not_capturing(Fake& f, Stream& stream, const char* what) {
  if (stream.capture) invalidate(*stream.capture, kStreamCapturing, std::string(what) + " of a capturing stream");
  check_blocking(f, Blocking::kWait);
}

Event& event_of(Fake& f, const void* handle) {
  Event* event = f.events.find(handle);
  if (event != nullptr) return *event;
  f.ledger.violation(2, f.events.absence(handle));
  throw Refusal{kBadHandle, "no such event"};
}

void check_not_capturing(Fake& f, Event& event, const char* what) {
  if (const auto capture = event.capture.lock()) {
    invalidate(*capture, kEventCapturing, std::string(what) + " of a capturing event");
  }
  check_blocking(f, Blocking::kWait);
}

int create_stream(Fake& f, aclrtStream* stream) {
  if (stream == nullptr) return kBadParameter;
  if (static_cast<int32_t>(f.streams.objects().size()) >= f.options.stream_limit) {
    throw Refusal{kNoStream, "no stream left"};
  }
  const void* context = this_thread(f).context;
  *stream =
      f.streams.add({.origin = f.ledger.current(), .context = context, .device = f.contexts.find(context)->device});
  return 0;
}

int create_event(Fake& f, aclrtEvent* event, uint32_t flag, uint32_t allowed) {
  if (event == nullptr || flag == 0 || (flag & ~allowed) != 0) return kBadParameter;
  *event = f.events.add(
      {.origin = f.ledger.current(), .flags = flag, .device = f.contexts.find(this_thread(f).context)->device});
  return 0;
}

bool complete(Fake& f, const Event& event) {
  const Stream* stream = f.streams.find(event.recorded->stream);
  return stream == nullptr || stream->executed >= event.recorded->number;
}

// A place in the queue at which nothing is computed.
void mark(Fake& f, const void* stream, std::vector<Place> after = {}) {
  Entry entry;
  entry.after = std::move(after);
  enqueue(f, stream, std::move(entry));
}

}  // namespace

aclError aclrtCreateStream(aclrtStream* stream) {
  return answer({.name = "aclrtCreateStream"}, [&](Fake& f) { return create_stream(f, stream); });
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t flag) {
  return answer({.name = "aclrtCreateStreamWithConfig"}, [&](Fake& f) {
    if (flag > 15) return kBadParameter;
    return create_stream(f, stream);
  });
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return answer({.name = "aclrtDestroyStream", .releases = true}, [&](Fake& f) {
    Stream& object = stream_of(f, stream);
    if (object.capture) invalidate(*object.capture, kStreamCapturing, "destruction of a capturing stream");
    const bool busy = !object.queue.empty() || !object.outstanding.empty();
    if (busy && !object.stopped && !f.cannot_wait)
      f.ledger.violation(21, "a stream is destroyed with work that nobody waited for");
    f.streams.erase(stream);
    return 0;
  });
}

aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
  return answer({.name = "aclrtSetStreamFailureMode"}, [&](Fake& f) {
    if (mode > ACL_STOP_ON_FAILURE) return kBadParameter;
    stream_of(f, stream).stop_on_failure = mode == ACL_STOP_ON_FAILURE;
    return 0;
  });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return answer({.name = "aclrtSynchronizeStream", .synchronises = true}, [&](Fake& f) {
    check_not_capturing(f, stream_of(f, stream), "synchronise");
    return synchronise(f, stream, false);
  });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeoutMs) {
  return answer({.name = "aclrtSynchronizeStreamWithTimeout", .synchronises = true}, [&](Fake& f) {
    if (timeoutMs < -1 || timeoutMs == 0) throw Refusal{kBadParameter, "a timeout is -1 or positive"};
    check_not_capturing(f, stream_of(f, stream), "synchronise");
    return synchronise(f, stream, false);
  });
}

// Whoever asks again and again sees the queue advance, one entry a time.
aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  return answer({.name = "aclrtStreamQuery"}, [&](Fake& f) {
    Stream& object = stream_of(f, stream);
    check_not_capturing(f, object, "query");
    if (status == nullptr) return kBadParameter;
    *status = object.queue.empty() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    if (object.queue.empty()) {
      host_learns(f, object.clock);
    } else {
      run_until(f, stream, object.queue.front().number);
    }
    return 0;
  });
}

// For ordering and capture.
aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  return answer({.name = "aclrtCreateEventExWithFlag"}, [&](Fake& f) {
    return create_event(f, event, flag, ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE);
  });
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  return answer({.name = "aclrtCreateEventWithFlag"}, [&](Fake& f) {
    return create_event(f, event, flag,
                        ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE | ACL_EVENT_EXTERNAL);
  });
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  return answer({.name = "aclrtDestroyEvent", .releases = true}, [&](Fake& f) {
    const Event& object = event_of(f, event);
    if (const auto capture = object.capture.lock()) {
      invalidate(*capture, kEventCapturing, "destruction of a capturing event");
    }
    for (const auto& [handle, graph] : f.graphs.objects()) {
      for (const void* external : graph.external_waits) {
        if (external == event) f.ledger.violation(48, "destroys an event that a graph waits for");
      }
    }
    f.events.erase(event);
    return 0;
  });
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return answer({.name = "aclrtRecordEvent"}, [&](Fake& f) {
    Event& object = event_of(f, event);
    Stream& source = stream_of(f, stream);
    if (source.capture) {
      record_event(f, *source.capture, stream, object);
      return 0;
    }
    mark(f, stream);
    object.recorded = Place{stream, source.issued};
    object.clock = source.clock;
    return 0;
  });
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
  return answer({.name = "aclrtResetEvent"}, [&](Fake& f) {
    Event& object = event_of(f, event);
    Stream& source = stream_of(f, stream);
    if (source.capture) {
      if ((object.flags & ACL_EVENT_EXTERNAL) == 0)
        f.ledger.violation(52, "only an EXTERNAL event is reset in a capture");
      source.capture->external_resets.push_back(event);
      return 0;
    }
    object.recorded.reset();
    return 0;
  });
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  return answer({.name = "aclrtStreamWaitEvent"}, [&](Fake& f) {
    Event& object = event_of(f, event);
    Stream& waiting = stream_of(f, stream);
    if (waiting.capture || object.capture.lock()) {
      wait_event(f, stream, event, object);
      return 0;
    }
    if (!object.recorded) {
      f.ledger.violation(21, "waits for an event that nobody recorded");
      return 0;
    }
    join(waiting.clock, object.clock);
    mark(f, stream, {*object.recorded});
    return 0;
  });
}

namespace {

int wait_for_event(Fake& f, aclrtEvent event) {
  Event& object = event_of(f, event);
  check_not_capturing(f, object, "synchronise");
  if (!object.recorded) {
    f.ledger.violation(21, "waits for an event that nobody recorded");
    return 0;
  }
  ++f.counters.synchronisations;
  run_until(f, object.recorded->stream, object.recorded->number);
  host_learns(f, object.clock);
  Stream* stream = f.streams.find(object.recorded->stream);
  const int code = stream == nullptr ? 0 : taken_fault(*stream);
  if (code != 0) f.remember(stream->fault_text);
  return code;
}

}  // namespace

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return answer({.name = "aclrtSynchronizeEvent", .synchronises = true},
                [&](Fake& f) { return wait_for_event(f, event); });
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeoutMs) {
  return answer({.name = "aclrtSynchronizeEventWithTimeout", .synchronises = true}, [&](Fake& f) {
    if (timeoutMs < -1 || timeoutMs == 0) throw Refusal{kBadParameter, "a timeout is -1 or positive"};
    return wait_for_event(f, event);
  });
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  return answer({.name = "aclrtQueryEventStatus"}, [&](Fake& f) {
    Event& object = event_of(f, event);
    check_not_capturing(f, object, "query");
    if (status == nullptr) return kBadParameter;
    if (!object.recorded) {
      *status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
      return 0;
    }
    const bool done = complete(f, object);
    *status = done ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    if (done) {
      host_learns(f, object.clock);
    } else {
      run_until(f, object.recorded->stream, f.streams.find(object.recorded->stream)->executed + 1);
    }
    return 0;
  });
}

}  // namespace ascend_fake
