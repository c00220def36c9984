#include "fake.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "numbers.h"
#include "profile.h"

namespace ascend_fake {
AscendFakeOptions default_options() {
  AscendFakeOptions options{};
  options.profile = kLibraryProfile;
  options.soc_name = "Ascend910B4";
  options.device_count = 1;
  options.memory_bytes = 8ull << 30;
  options.stream_limit = 1984;
  options.graph_limit = 64;
  options.f32_from_16_bit = 1;
  options.mask_ignored_rows = 1;
  options.fail_code = kCoreFault;
  return options;
}

namespace {

struct Field {
  const char* name;
  void (*set)(AscendFakeOptions&, uint64_t);
};
#define ASCEND_FAKE_FIELD(name)                                                                         \
  Field {                                                                                               \
#name, [](AscendFakeOptions & o, uint64_t value) { o.name = static_cast<decltype(o.name)>(value); } \
  }
const Field kFields[] = {
    ASCEND_FAKE_FIELD(seed),
    ASCEND_FAKE_FIELD(profile),
    ASCEND_FAKE_FIELD(device_count),
    ASCEND_FAKE_FIELD(memory_bytes),
    ASCEND_FAKE_FIELD(stream_limit),
    ASCEND_FAKE_FIELD(graph_limit),
    ASCEND_FAKE_FIELD(f32_from_16_bit),
    ASCEND_FAKE_FIELD(mask_ignored_rows),
    ASCEND_FAKE_FIELD(mask_ignored_type),
    ASCEND_FAKE_FIELD(fail_call),
    ASCEND_FAKE_FIELD(fail_allocation),
    ASCEND_FAKE_FIELD(fail_code),
    ASCEND_FAKE_FIELD(fail_operators),
    ASCEND_FAKE_FIELD(fault_at_task),
    ASCEND_FAKE_FIELD(lose_device_at_call),
};

// "seed=3 profile=85": the process that cannot call reset.
void read_environment(AscendFakeOptions& options, std::string& soc_name) {
  const char* text = std::getenv("ASCEND_FAKE");
  std::istringstream words(text == nullptr ? "" : text);
  for (std::string word; words >> word;) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(std::min(equals + 1, word.size()));
    const auto* field =
        std::find_if(std::begin(kFields), std::end(kFields), [&](const Field& f) { return name == f.name; });
    if (field != std::end(kFields)) field->set(options, std::strtoull(value.c_str(), nullptr, 10));
    if (name == "soc_name") soc_name = value;
  }
}

// Written at the end of the process, for a test that sees it from outside only.
void write_report() {
  Fake& f = fake();
  if (f.report_path.empty()) return;
  std::ofstream file(f.report_path);
  for (const Violation& violation : f.ledger.violations()) file << "violation " << violation.text << "\n";
  for (const std::string& object : f.live_objects(-1)) file << "alive " << object << "\n";
  file << "calls " << f.ledger.calls() << "\nsynchronisations " << f.counters.synchronisations << "\nlaunches "
       << f.counters.launches << "\ncaptures " << f.counters.captures << "\nreplays " << f.counters.replays
       << "\ninternal_copies " << f.counters.internal_copies << "\npeak_device_bytes " << f.memory.peak_bytes() << "\n";
}

template <typename T>
void list_live(Registry<T>& registry, std::vector<std::pair<uint64_t, std::string>>& found, int32_t device) {
  for (const auto& entry : registry.objects()) {
    const T& object = entry.second;
    if constexpr (requires { object.device; }) {
      if (device >= 0 && object.device != device) continue;
    }
    if constexpr (std::is_same_v<T, Context>) {
      if (object.is_default) continue;
    }
    found.emplace_back(object.origin.call, std::string(registry.name()) + " of " + described(object.origin));
  }
}

int code_when_lost(const Symbol& symbol) {
  if (symbol.of_operators) return kRuntime;
  return symbol.synchronises ? kTimedOut : kCoreFault;
}

}  // namespace

Fake::Fake() {
  AscendFakeOptions chosen = default_options();
  std::string soc = chosen.soc_name;
  read_environment(chosen, soc);
  chosen.soc_name = soc.c_str();
  reset(chosen);
  if (const char* path = std::getenv("ASCEND_FAKE_REPORT")) report_path = path;
  std::atexit(write_report);
}

void Fake::reset(const AscendFakeOptions& chosen) {
  const std::string soc = chosen.soc_name == nullptr ? "Ascend910B4" : chosen.soc_name;
  options = chosen;
  soc_name = soc;
  options.soc_name = soc_name.c_str();
  initialised = false;
  warm = false;
  failing = 0;
  cannot_wait = false;
  ++epoch;
  allocation_attempts = 0;
  shapes.clear();
  ledger = Ledger();
  counters = {};
  captures.clear();
  executors.clear();
  arrays.clear();
  scalars.clear();
  lists.clear();
  tensors.clear();
  groups.clear();
  graphs.clear();
  events.clear();
  streams.clear();
  contexts.clear();
  memory.clear();
  pinned.clear();
}

void Fake::remember(const std::string& text) {
  this_thread(*this).message = text;
}

std::vector<std::string> Fake::live_objects(int32_t device) {
  std::vector<std::pair<uint64_t, std::string>> found;
  list_live(contexts, found, device);
  list_live(streams, found, device);
  list_live(events, found, device);
  list_live(graphs, found, device);
  list_live(tensors, found, device);
  list_live(lists, found, device);
  list_live(scalars, found, device);
  list_live(arrays, found, device);
  list_live(executors, found, device);
  for (const auto& [address, block] : memory.live()) {
    if (device >= 0 && block.origin().device != device) continue;
    found.emplace_back(block.origin().call,
                       std::to_string(block.size()) + " bytes of device memory of " + described(block.origin()));
  }
  for (const auto& [address, block] : pinned.live()) {
    if (device >= 0 && block.origin.device != device) continue;
    found.emplace_back(block.origin.call,
                       std::to_string(block.size) + " bytes of pinned memory of " + described(block.origin));
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> texts;
  for (auto& [call, text] : found) texts.push_back(std::move(text));
  return texts;
}

// Never destroyed: applications may call it from their own exit handlers.
Fake& fake() {
  static Fake* const state = new Fake;
  return *state;
}

ThreadState& this_thread(Fake& fake) {
  thread_local ThreadState state;
  if (state.epoch != fake.epoch) state = {.epoch = fake.epoch};
  return state;
}

namespace {

void fail_on_demand(Fake& f, const Symbol& symbol) {
  if (f.options.fail_call != f.ledger.calls()) return;
  const bool other_code = symbol.of_operators && f.options.fail_code == kCoreFault;
  const int code = other_code ? kRuntime : f.options.fail_code;
  if (symbol.synchronises) f.cannot_wait = true;
  if (!symbol.releases) throw Refusal{code, "a failure on demand"};
  f.failing = code;
}

void fail_if_lost(Fake& f, const Symbol& symbol) {
  if (f.options.lose_device_at_call == 0 || f.ledger.calls() < f.options.lose_device_at_call) return;
  f.cannot_wait = true;
  if (symbol.of_host) return;
  if (!symbol.releases) throw Refusal{code_when_lost(symbol), "the device is lost"};
  f.failing = kCoreFault;
}

}  // namespace

void begin_call(Fake& f, const Symbol& symbol) {
  f.ledger.begin_call(symbol.name);
  f.counters.calls = f.ledger.calls();
  f.failing = 0;
  fail_on_demand(f, symbol);
  if (f.options.profile < symbol.since) {
    f.ledger.violation(4, "not in the version of this profile (" + std::to_string(f.options.profile) + ")");
  }
  if (symbol.needs == Needs::kNothing) return;
  if (!f.initialised) {
    f.ledger.violation(1, "called before aclInit");
    throw Refusal{kNotInitialised, "aclInit was not called"};
  }
  fail_if_lost(f, symbol);
  if (symbol.needs == Needs::kContext && f.contexts.find(this_thread(f).context) == nullptr) {
    throw Refusal{symbol.of_operators ? kRuntime : kNoContext, "no context on this thread"};
  }
}

Stream& stream_of(Fake& f, const void* handle) {
  if (handle == nullptr) {
    for (const auto& capture : f.captures) invalidate(*capture, kDefaultStream, "the default stream, while capturing");
    f.ledger.violation(19, "the null stream");
    throw Refusal{kBadParameter, "the null stream"};
  }
  Stream* stream = f.streams.find(handle);
  if (stream == nullptr) {
    f.ledger.violation(2, f.streams.absence(handle));
    throw Refusal{kBadHandle, "no such stream"};
  }
  if (stream->context != this_thread(f).context) throw Refusal{kForeignStream, "a stream of another context"};
  return *stream;
}

}  // namespace ascend_fake
