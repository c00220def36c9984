// An EAGLE draft head: one decoder layer, sometimes more, that guesses the teacher's next tokens from the teacher's own
// features and from its own output. Two networks: that of EAGLE-1, EAGLE-2 and HASS (arXiv 2401.15077, 2406.16858,
// 2408.15766) and that of EAGLE-3 (arXiv 2503.01840). docs/drafters.md describes them, layouts and rules.
//
// Row t of the head is the pair (g_t, x_{t+1}) at position t: the feature of position t, fused from several layers or
// the teacher's normed last state, and the token after it. Its logits guess x_{t+2}; its feedback takes the place of g
// for the row after it, where the teacher has not been. The head never changes after construction and serves any number
// of sequences; whatever changes is passed in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/kv_memory.h"
#include "device/device.h"
#include "model/eagle_config.h"
#include "model/eagle_weights.h"
#include "model/head_files.h"
#include "model/rotation_tables.h"
#include "model/rows.h"
#include "model/step_tables.h"
#include "model/transformer.h"

namespace espalier {

// Views into the workspace, valid until the next forward.
struct EagleOutput {
  ConstView feedback;  // f32 [rows, hidden]: the input vectors of the rows after these
  // f32 [n, draft vocabulary], the rows that want logits, in row order, strided where the device's alignment asks for
  // it; empty if none
  ConstView logits;
};

class EagleHead;

// The buffers of draft steps on one memory, allocated once, with the same addresses in every step so that a device can
// record it, and what it recorded.
class EagleWorkspace {
 public:
  // For steps and fusions of up to `rows` rows, of which up to `outputs` want logits (0: all of them); positions and
  // places below `positions`.
  // Head and memory must outlive the workspace.
  EagleWorkspace(const EagleHead& head, const KvMemory& memory, std::int64_t rows, std::int64_t positions,
                 const StepForm& form = {}, std::int64_t outputs = 0);
  ~EagleWorkspace();
  EagleWorkspace(EagleWorkspace&&) noexcept;
  EagleWorkspace& operator=(EagleWorkspace&&) noexcept;

 private:
  friend class EagleHead;
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

class EagleHead {
 public:
  // The teacher gives embedding and output matrix where the head has none; device and teacher must outlive the head.
  // Throws InputError for every head that would be computed wrongly.
  EagleHead(const Transformer& teacher, const HeadFiles& files, const HeadOptions& options = {});

  Device& device() const { return *device_; }
  const EagleConfig& config() const { return config_; }
  HeadKind kind() const { return third() ? HeadKind::eagle3 : HeadKind::eagle2; }
  std::string_view name() const { return espalier::name(kind()); }
  std::int64_t hidden() const { return config_.hidden; }
  std::int64_t draft_vocabulary() const { return output_->outputs(); }
  const std::vector<std::int64_t>& taps() const { return config_.taps; }  // boundaries of the teacher, ascending
  // [draft vocabulary]: the teacher's id of every draft id
  const std::vector<std::int32_t>& target_ids() const { return weights_.target_ids; }
  float logit_scale() const { return config_.logit_scale; }  // multiplies the logits; they come without it
  KvShape kv_shape(DType type) const;

  // g of some of the teacher's rows: fused taps, or the teacher's norm of its last boundary. features: f32 [n, taps *
  // teacher hidden], dense; out: f32 [bucket_for(rows.size()) or more, hidden]: row i becomes g of features row
  // rows[i]; rows behind are overwritten up to the bucket.
  void fuse(ConstView features, std::span<const std::int32_t> rows, EagleWorkspace& workspace, View out) const;
  // g of all rows, in their order. May be called inside of a step.
  void fuse(ConstView features, EagleWorkspace& workspace, View out) const;

  // One draft step: row r takes the vector inputs[row.input]. inputs: f32 [m, hidden], dense; may be the feedback of
  // the step before. Rows want logits or nothing.
  EagleOutput forward(std::span<const Row> rows, ConstView inputs, EagleWorkspace& workspace,
                      const StepCheck& check = {}) const;
  // The same of rows that lie on the device already. Their positions and places must be below the workspace's.
  EagleOutput forward(const PlacedStep& step, ConstView inputs, EagleWorkspace& workspace) const;

 private:
  friend class EagleWorkspace;

  EagleOutput run(const StepPlan& step, std::int64_t count, ConstView inputs, EagleWorkspace::Buffers& b) const;

  // As the fusion takes them.
  ConstView normed_features(ConstView features, EagleWorkspace::Buffers& b) const;
  void run_layers(const StepPlan& step, EagleWorkspace::Buffers& b) const;
  // Whether it has norms of its own around its layer.
  bool third() const { return config_.generation == EagleGeneration::third; }
  void pair_tokens_with_features(const StepPlan& step, EagleWorkspace::Buffers& b) const;
  void pair_normed(ConstView embedded, ConstView feature, std::int64_t rows, EagleWorkspace::Buffers& b) const;
  void attend(const LayerWeights& layer, const KvViews& kv, const StepPlan& step, ConstView input,
              EagleWorkspace::Buffers& b) const;
  void feed_forward(const LayerWeights& layer, const StepPlan& step, EagleWorkspace::Buffers& b) const;
  void guess(const StepPlan& step, EagleWorkspace::Buffers& b) const;

  Device* device_;
  EagleConfig config_;
  EagleWeights weights_;
  const Weight* embedding_;  // own or the teacher's
  const Weight* output_;
  ConstView teacher_norm_;  // of EAGLE-2's feature
  float teacher_eps_;
  std::unique_ptr<Rotation> rotation_;  // grows with the longest workspace
};

}  // namespace espalier
