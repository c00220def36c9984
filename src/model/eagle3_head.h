// An EAGLE-3 draft head (arXiv 2503.01840): one decoder layer, sometimes more, that guesses the teacher's next tokens
// from the teacher's own features and from its own output. docs/drafters.md describes network, layouts and rules.
//
// Row t of the head is the pair (g_t, x_{t+1}) at position t: the fused feature of position t and the token after it.
// Its logits guess x_{t+2}; its feedback takes the place of g for the row after it, where the teacher has not been.
// The head never changes after construction and serves any number of sequences; whatever changes is passed in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/kv_memory.h"
#include "device/device.h"
#include "model/eagle3_config.h"
#include "model/eagle3_weights.h"
#include "model/head_files.h"
#include "model/rotation_tables.h"
#include "model/rows.h"
#include "model/step_tables.h"
#include "model/transformer.h"

namespace espalier {

// Views into the workspace, valid until the next forward.
struct Eagle3Output {
  ConstView feedback;  // f32 [rows, hidden]: the input vectors of the rows after these
  // f32 [n, draft vocabulary], the rows that want logits, in row order, strided where the device's alignment asks for
  // it; empty if none
  ConstView logits;
};

class Eagle3Head;

// The buffers of draft steps on one memory, allocated once, with the same addresses in every step so that a device can
// record it, and what it recorded.
class Eagle3Workspace {
 public:
  // For steps and fusions of up to `rows` rows, of which up to `outputs` want logits (0: all of them); positions and
  // places below `positions`.
  // Head and memory must outlive the workspace.
  Eagle3Workspace(const Eagle3Head& head, const KvMemory& memory, std::int64_t rows, std::int64_t positions,
                  const StepForm& form = {}, std::int64_t outputs = 0);
  ~Eagle3Workspace();
  Eagle3Workspace(Eagle3Workspace&&) noexcept;
  Eagle3Workspace& operator=(Eagle3Workspace&&) noexcept;

 private:
  friend class Eagle3Head;
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

class Eagle3Head {
 public:
  // The teacher gives embedding and output matrix where the head has none; device and teacher must outlive the head.
  // Throws InputError for every head that would be computed wrongly.
  Eagle3Head(const Transformer& teacher, const HeadFiles& files, const HeadOptions& options = {});

  Device& device() const { return *device_; }
  const Eagle3Config& config() const { return config_; }
  std::int64_t hidden() const { return config_.hidden; }
  std::int64_t draft_vocabulary() const { return output_->outputs(); }
  const std::vector<std::int64_t>& taps() const { return config_.taps; }  // boundaries of the teacher, ascending
  // [draft vocabulary]: the teacher's id of every draft id
  const std::vector<std::int32_t>& target_ids() const { return weights_.target_ids; }
  float logit_scale() const { return config_.logit_scale; }  // multiplies the logits; they come without it
  KvShape kv_shape(DType type) const;

  // g of some of the teacher's rows. features: f32 [n, taps * teacher hidden], dense; out: f32 [bucket_for(rows.size())
  // or more, hidden]: row i becomes g of features row rows[i]; rows behind are overwritten up to the bucket.
  void fuse(ConstView features, std::span<const std::int32_t> rows, Eagle3Workspace& workspace, View out) const;
  // g of all rows, in their order. May be called inside of a step.
  void fuse(ConstView features, Eagle3Workspace& workspace, View out) const;

  // One draft step: row r takes the vector inputs[row.input]. inputs: f32 [m, hidden], dense; may be the feedback of
  // the step before. Rows want logits or nothing.
  Eagle3Output forward(std::span<const Row> rows, ConstView inputs, Eagle3Workspace& workspace,
                       const StepCheck& check = {}) const;
  // The same of rows that lie on the device already. Their positions and places must be below the workspace's.
  Eagle3Output forward(const PlacedStep& step, ConstView inputs, Eagle3Workspace& workspace) const;

 private:
  friend class Eagle3Workspace;

  Eagle3Output run(const StepPlan& step, std::int64_t count, ConstView inputs, Eagle3Workspace::Buffers& b) const;

  // As the fusion takes them.
  ConstView normed_features(ConstView features, Eagle3Workspace::Buffers& b) const;
  void run_layers(const StepPlan& step, Eagle3Workspace::Buffers& b) const;
  void pair_tokens_with_features(const StepPlan& step, Eagle3Workspace::Buffers& b) const;
  void attend(const LayerWeights& layer, const KvViews& kv, const StepPlan& step, ConstView input,
              Eagle3Workspace::Buffers& b) const;
  void feed_forward(const LayerWeights& layer, const StepPlan& step, Eagle3Workspace::Buffers& b) const;
  void guess(const StepPlan& step, Eagle3Workspace::Buffers& b) const;

  Device* device_;
  Eagle3Config config_;
  Eagle3Weights weights_;
  const Weight* embedding_;  // own or the teacher's
  const Weight* output_;
  std::unique_ptr<Rotation> rotation_;  // grows with the longest workspace
};

}  // namespace espalier
