// The state behind the C symbols: one per process, since the API itself knows no object that could hold it. Every call
// holds the lock.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "acl_types.h"
#include "ascend_fake.h"
#include "capture.h"
#include "descriptors.h"
#include "ledger.h"
#include "memory.h"
#include "streams.h"

namespace ascend_fake {

struct Context {
  Origin origin{};
  int32_t device = 0;
  bool is_default = false;
};

struct Fake {
  std::mutex mutex;
  AscendFakeOptions options{};
  std::string soc_name;
  std::string report_path;  // empty: no report
  bool initialised = false;
  uint64_t epoch = 0;  // counts resets, so that threads forget their contexts
  bool warm = false;
  int failing = 0;           // the code of this call, which releases something and fails
  bool cannot_wait = false;  // lost, or a synchronise failed on demand: nobody can be asked to wait any more
  uint64_t allocation_attempts = 0;
  std::set<std::string> shapes;

  Ledger ledger;
  AscendFakeCounters counters{};
  DeviceMemory memory;
  PinnedMemory pinned;
  Registry<Context> contexts{1, "context"};
  Registry<Stream> streams{2, "stream"};
  Registry<Event> events{3, "event"};
  Registry<Graph> graphs{4, "graph"};
  Registry<TaskGroup> groups{5, "task group"};
  Registry<Tensor> tensors{6, "tensor"};
  Registry<TensorList> lists{7, "tensor list"};
  Registry<Scalar> scalars{8, "scalar"};
  Registry<IntArray> arrays{9, "int array"};
  Registry<Executor> executors{10, "executor"};
  std::vector<std::shared_ptr<Capture>> captures;  // going on
  std::vector<std::string> listed;                 // the texts of ascend_fake_live_object

  Fake();
  void reset(const AscendFakeOptions& chosen);
  // What aclGetRecentErrMsg tells this thread next.
  void remember(const std::string& text);
  bool is_soc(const char* prefix) const { return soc_name.rfind(prefix, 0) == 0; }
  // Everything alive, each with its call; device -1: on any.
  std::vector<std::string> live_objects(int32_t device);
};
Fake& fake();
AscendFakeOptions default_options();

// What belongs to the calling thread.
struct ThreadState {
  uint64_t epoch = 0;
  const void* context = nullptr;
  std::string message{};
  std::string told{};
  aclmdlRICaptureMode capture_mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
};
ThreadState& this_thread(Fake& fake);

enum class Needs { kNothing, kInit, kContext };
struct Symbol {
  const char* name;
  Needs needs = Needs::kContext;
  int since = 81;             // the profile that has it first
  bool releases = false;      // where it fails, what it names leaves the ledger all the same
  bool of_operators = false;  // aclnn: other codes
  bool synchronises = false;
  bool of_host = false;  // needs no device: works when that is lost
};
// Counts the call, judges whether it may be made at all; throws Refusal. Where one that releases fails, it is to do its
// work nevertheless and to answer with fake.failing.
void begin_call(Fake& fake, const Symbol& symbol);
// The stream of this handle, of this thread's context; throws Refusal.
Stream& stream_of(Fake& fake, const void* handle);

// A call of the API: what it does in body, its code from there or from what is thrown.
template <typename Body>
int answer(const Symbol& symbol, Body&& body) {
  Fake& state = fake();
  const std::lock_guard lock(state.mutex);
  try {
    begin_call(state, symbol);
    const int code = body(state);
    return state.failing != 0 ? state.failing : code;
  } catch (const Refusal& refusal) {
    state.remember(refusal.text);
    return refusal.code;
  }
}

}  // namespace ascend_fake
