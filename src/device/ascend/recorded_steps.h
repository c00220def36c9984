// The steps of a workspace as captured graphs. A step runs op by op when its key is new, so that whatever memory its
// operators need is there; when the key comes again it is captured, and from then on launched as a whole. Every graph
// takes streams, of which a card has a limited number: without one a step goes on op by op, and that is said once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string_view>

#include "device/ascend/card.h"
#include "device/device.h"

namespace espalier::ascend {

// What all recordings of a device share.
struct RecordingLimits {
  bool enabled = true;
  std::int64_t most_graphs = 256;
  std::function<void(std::string_view)> remark = {};

  std::int64_t graphs = 0;
  bool told = false;
};

class RecordedSteps final : public Recordings {
 public:
  RecordedSteps(std::shared_ptr<Card> card, std::shared_ptr<RecordingLimits> limits)
      : card_(std::move(card)), limits_(std::move(limits)) {}
  ~RecordedSteps() override;

  void run(const StepKey& key, const std::function<void()>& ops);

 private:
  // Nothing: it cannot be captured now.
  AclGraph capture(const std::function<void()>& ops);
  void give_up_capture() noexcept;
  bool may_capture();
  void tell(std::string_view why);

  std::shared_ptr<Card> card_;
  std::shared_ptr<RecordingLimits> limits_;  // the device's
  std::map<StepKey, AclGraph> by_key_;       // null: ran, is not captured yet
};

}  // namespace espalier::ascend
