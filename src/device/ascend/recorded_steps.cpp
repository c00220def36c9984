#include "device/ascend/recorded_steps.h"

#include <fmt/format.h>

#include "device/ascend/errors.h"
#include "device/ascend/memory.h"

namespace espalier::ascend {

RecordedSteps::~RecordedSteps() {
  card_->settle();
  for (const auto& [key, graph] : by_key_) {
    if (graph == nullptr) continue;
    card_->api().aclmdlRIDestroy(graph);
    --limits_->graphs;
  }
}

void RecordedSteps::run(const StepKey& key, const std::function<void()>& ops) {
  const auto [known, is_new] = by_key_.try_emplace(key, nullptr);
  if (is_new) {
    try {
      return ops();
    } catch (...) {
      by_key_.erase(known);  // it has not run
      throw;
    }
  }
  if (known->second == nullptr) known->second = capture(ops);
  if (known->second == nullptr) return ops();
  const Api& api = card_->api();
  card_->note_work();
  call(api, api.aclmdlRIExecuteAsync, known->second, card_->stream());
}

bool RecordedSteps::may_capture() {
  const Api& api = card_->api();
  if (!limits_->enabled) return false;
  if (!api.aclmdlRICaptureBegin || !api.aclmdlRICaptureEnd || !api.aclmdlRIExecuteAsync || !api.aclmdlRIDestroy) {
    limits_->enabled = false;
    tell("this CANN cannot capture them");
    return false;
  }
  if (limits_->graphs < limits_->most_graphs) return true;
  tell(fmt::format("{} are recorded already", limits_->graphs));
  return false;
}

AclGraph RecordedSteps::capture(const std::function<void()>& ops) {
  if (!may_capture()) return nullptr;
  const Api& api = card_->api();
  const AclCode code = api.aclmdlRICaptureBegin(card_->stream(), AclCaptureMode::thread_local_mode);
  if (code == kNoStream || code == kNoResource) {
    tell("the NPU has no stream left for them");
    return nullptr;
  }
  if (code != 0) throw_failure(api, api.aclmdlRICaptureBegin.name, code);
  card_->set_capturing(true);
  try {
    ops();
  } catch (const CaptureNeedsMemory&) {
    give_up_capture();
    return nullptr;  // which the step gets when it runs op by op; the next time it is tried again
  } catch (...) {
    give_up_capture();
    throw;
  }
  card_->set_capturing(false);
  AclGraph graph = nullptr;
  const AclCode ended = api.aclmdlRICaptureEnd(card_->stream(), &graph);
  if (ended != 0) {
    const std::string failure = describe_failure(api, api.aclmdlRICaptureEnd.name, ended);
    if (graph != nullptr) api.aclmdlRIDestroy(graph);
    throw AclFailure("Ascend: " + failure, ended);
  }
  ++limits_->graphs;
  return graph;
}

// A capture that comes to nothing; whatever graph there is of it goes.
void RecordedSteps::give_up_capture() noexcept {
  const Api& api = card_->api();
  card_->set_capturing(false);
  AclGraph graph = nullptr;
  api.aclmdlRICaptureEnd(card_->stream(), &graph);
  if (graph != nullptr) api.aclmdlRIDestroy(graph);
}

void RecordedSteps::tell(std::string_view why) {
  if (limits_->told || !limits_->remark) return;
  limits_->told = true;
  limits_->remark(fmt::format("Ascend: steps go on op by op, not recorded: {}", why));
}

}  // namespace espalier::ascend
