// The forward pass of all supported families, written once against the device contract. A Transformer never changes
// after construction (but for rotation tables, which grow when a workspace needs more of them) and serves any number of
// sequences; whatever changes is passed in: a Workspace, which knows its KV memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "cache/kv_memory.h"
#include "device/device.h"
#include "model/config.h"
#include "model/rotation_tables.h"
#include "model/rows.h"
#include "model/step_tables.h"
#include "model/weights.h"

namespace espalier {

// What a step computed, for the rows that wanted it; views into the workspace, valid until the next step.
struct StepOutput {
  ConstView logits;         // [n, vocabulary], the rows that want logits, in row order; empty if none
  ConstView padded_logits;  // the same and the rows behind that pad the step, for ops over all of them
  // [m, hidden], after the final norm: first the rows that want logits, then those that want only this
  ConstView hidden;
  ConstView taps;  // [t, boundaries * hidden], the rows that want taps, in row order; tapped boundaries side by side
};

struct WorkspaceShape {
  std::int64_t rows = 0;       // the most rows of one step
  std::int64_t outputs = 0;    // the most rows that want logits or hidden
  std::int64_t positions = 0;  // rows are at positions, and at places, below
  // i: the residual stream entering layer i; layers: before the final norm
  std::vector<std::int64_t> tap_boundaries = {};
  StepForm form = {};
};

// About what the buffers of a step take on a device, rotation tables included.
std::int64_t workspace_bytes(const ModelConfig& config, const WorkspaceShape& shape);

class Transformer;

// The buffers of a step on one memory, allocated once, with the same addresses in every step so that a device can
// record it, and what it recorded.
class Workspace {
 public:
  // Model and memory must outlive the workspace.
  Workspace(const Transformer& model, const KvMemory& memory, const WorkspaceShape& shape);
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;

  const WorkspaceShape& shape() const;

 private:
  friend class Transformer;
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

class Transformer {
 public:
  // The device must outlive the model.
  Transformer(Device& device, ModelConfig config, ModelWeights weights);

  const ModelConfig& config() const { return config_; }
  const ModelWeights& weights() const { return weights_; }
  Device& device() const { return *device_; }
  KvShape kv_shape(DType type) const;

  // Writes K and V of the rows into the workspace's memory and computes what they want. 1 <= rows.size() <= workspace
  // rows; the places have slots. The step is padded as the device wants it.
  StepOutput forward(std::span<const Row> rows, Workspace& workspace, const StepCheck& check = {}) const;
  // The same of rows that lie on the device already. Their positions and places must be below the workspace's.
  StepOutput forward(const PlacedStep& step, Workspace& workspace) const;

  // The first position that a row at this one sees.
  std::int32_t context_begin(std::int64_t position) const;
  // A row of a prefill: it sees what stands before it.
  Row prefill_row(SequenceId table, std::int64_t position, std::int32_t token) const;
  // A row of a tree behind `prefix` positions. above: the places of the rows on its path, root first.
  Row tree_row(SequenceId table, std::int64_t prefix, std::int32_t place, std::int32_t token,
               std::span<const std::int32_t> above) const;

 private:
  friend class Workspace;

  void attend(const LayerWeights& layer, const KvViews& kv, const StepPlan& step, Workspace::Buffers& b) const;
  void feed_forward(const LayerWeights& layer, const StepPlan& step, Workspace::Buffers& b) const;
  void tap(std::int64_t boundary, const StepPlan& step, Workspace::Buffers& b) const;
  StepOutput run(const StepPlan& step, Workspace::Buffers& b) const;
  void run_layers(const StepPlan& step, Workspace::Buffers& b) const;

  Device* device_;
  ModelConfig config_;
  ModelWeights weights_;
  std::unique_ptr<Rotation> rotation_;  // grows with the longest workspace
};

struct LoadOptions {
  WeightMode weights = WeightMode::stored;
  Progress progress = {};
};

// A GGUF file (or the first of a split set) or a Hugging Face directory.
Transformer load_transformer(Device& device, const std::filesystem::path& path, const LoadOptions& options = {});
// The same without the weights.
ModelConfig load_config(const std::filesystem::path& path);

}  // namespace espalier
