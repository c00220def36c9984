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
    if (const AclGraph graph = end_capture()) api.aclmdlRIDestroy(graph);
    return nullptr;  // which the step gets when it runs op by op; the next time it is tried again
  } catch (...) {
    if (const AclGraph graph = end_capture()) api.aclmdlRIDestroy(graph);
    throw;
  }
  card_->set_capturing(false);
  AclGraph graph = nullptr;
  call(api, api.aclmdlRICaptureEnd, card_->stream(), &graph);
  ++limits_->graphs;
  return graph;
}

// Of a capture that is given up.
AclGraph RecordedSteps::end_capture() noexcept {
  card_->set_capturing(false);
  AclGraph graph = nullptr;
  return card_->api().aclmdlRICaptureEnd(card_->stream(), &graph) == 0 ? graph : nullptr;
}

void RecordedSteps::tell(std::string_view why) {
  if (limits_->told || !limits_->remark) return;
  limits_->told = true;
  limits_->remark(fmt::format("Ascend: steps go on op by op, not recorded: {}", why));
}

}  // namespace espalier::ascend
