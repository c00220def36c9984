#include "model/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "device/taking_memory.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "model/step_tables.h"

namespace espalier {

struct Workspace::Buffers {
  Buffers(Device& device, const KvMemory& memory, const WorkspaceShape& s)
      : shape(s), tables(device, memory, s.rows, s.positions, s.form) {}

  WorkspaceShape shape;
  StepTables tables;
  std::shared_ptr<const RotationTables> rotation;  // the model's

  Tensor x;               // [rows, hidden] the residual stream
  Tensor normed;          // [rows, hidden]
  Tensor q, k, v;         // [rows, width]
  Tensor q_raw, k_raw;    // before the norm of heads; only where the model has one
  Tensor attended;        // [rows, heads * head_size]
  Tensor projected;       // [rows, hidden]
  Tensor gate_up;         // [rows, 2 * intermediate]
  Tensor gated;           // [rows, intermediate]
  Tensor picked, hidden;  // [outputs, hidden]
  Tensor logits;          // [outputs, vocabulary]
  Tensor taps;            // [rows, boundaries * hidden]

  std::unique_ptr<Recordings> recordings;  // of all the above, so it goes first
};

Workspace::Workspace(const Transformer& model, const KvMemory& memory, const WorkspaceShape& shape) {
  const ModelConfig& config = model.config();
  Device& device = model.device();
  check(shape.rows >= 1 && shape.outputs >= 0 && shape.outputs <= shape.rows && shape.positions >= 1,
        "workspace of {} rows, {} outputs, {} positions", shape.rows, shape.outputs, shape.positions);
  for (std::int64_t boundary : shape.tap_boundaries)
    check(boundary >= 0 && boundary <= config.layers, "tap at boundary {} of {} layers", boundary, config.layers);
  buffers_ = std::make_unique<Buffers>(device, memory, shape);
  Buffers& b = *buffers_;
  const std::int64_t rows = rows_of_step(device, shape.rows);
  const std::int64_t outputs = rows_of_step(device, std::max<std::int64_t>(shape.outputs, 1));
  const std::int64_t q_width = config.heads * config.head_size, kv_width = config.kv_heads * config.head_size;
  b.rotation = model.rotation_->tables(shape.positions);
  const auto floats = [&](std::int64_t r, std::int64_t c) {
    return taking_memory_for(fmt::format("workspace of steps of {} rows", rows), [&] {
      return device.tensor(DType::f32, {r, c});
    });
  };
  b.x = floats(rows, config.hidden);
  b.normed = floats(rows, config.hidden);
  b.q = floats(rows, q_width);
  b.k = floats(rows, kv_width);
  b.v = floats(rows, kv_width);
  if (config.qk_norm) {
    b.q_raw = floats(rows, q_width);
    b.k_raw = floats(rows, kv_width);
  }
  b.attended = floats(rows, q_width);
  b.projected = floats(rows, config.hidden);
  b.gate_up = floats(rows, 2 * config.intermediate);
  b.gated = floats(rows, config.intermediate);
  b.picked = floats(outputs, config.hidden);
  b.hidden = floats(outputs, config.hidden);
  b.logits = floats(outputs, config.vocabulary);
  if (!shape.tap_boundaries.empty())
    b.taps = floats(rows, static_cast<std::int64_t>(shape.tap_boundaries.size()) * config.hidden);
  b.recordings = device.make_recordings();
}

std::int64_t workspace_bytes(const ModelConfig& config, const WorkspaceShape& shape) {
  const std::int64_t q = config.heads * config.head_size, kv = config.kv_heads * config.head_size;
  const auto taps = static_cast<std::int64_t>(shape.tap_boundaries.size());
  const std::int64_t row = (3 + taps) * config.hidden + 3 * q + 3 * kv + 3 * config.intermediate;
  const std::int64_t output = 2 * config.hidden + config.vocabulary;
  return static_cast<std::int64_t>(sizeof(float)) *
         (shape.rows * row + shape.outputs * output + shape.positions * config.head_size);
}

Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

const WorkspaceShape& Workspace::shape() const {
  return buffers_->shape;
}

Transformer::Transformer(Device& device, ModelConfig config, ModelWeights weights)
    : device_(&device),
      config_(std::move(config)),
      weights_(std::move(weights)),
      rotation_(std::make_unique<Rotation>(device, Rope{.inverse_frequencies = config_.inverse_frequencies})) {}

KvShape Transformer::kv_shape(DType type) const {
  return {.layers = config_.layers, .kv_heads = config_.kv_heads, .head_size = config_.head_size, .type = type};
}

// A window of W keys counts the row itself, so its context is the W - 1 positions before it.
std::int32_t Transformer::context_begin(std::int64_t position) const {
  if (config_.sliding_window == 0) return 0;
  return static_cast<std::int32_t>(std::max<std::int64_t>(0, position - (config_.sliding_window - 1)));
}

Row Transformer::prefill_row(SequenceId table, std::int64_t position, std::int32_t token) const {
  const auto p = static_cast<std::int32_t>(position);
  return {.sequence = table, .token = token, .position = p, .place = p, .begin = context_begin(position), .end = p};
}

Row Transformer::tree_row(SequenceId table, std::int64_t prefix, std::int32_t place, std::int32_t token,
                          std::span<const std::int32_t> above) const {
  Row row = prefill_row(table, prefix + static_cast<std::int64_t>(above.size()), token);
  row.place = place;
  row.end = static_cast<std::int32_t>(prefix);
  // A window that begins inside the tree hides the top of the path; `begin` still counts it.
  const auto hidden = std::max(0, row.begin - row.end);
  row.ancestors.assign(above.begin() + hidden, above.end());
  return row;
}

StepOutput Transformer::forward(std::span<const Row> rows, Workspace& workspace, const StepCheck& check_tables) const {
  Workspace::Buffers& b = *workspace.buffers_;
  check(!rows.empty() && static_cast<std::int64_t>(rows.size()) <= b.shape.rows, "a step of {} rows, expected 1 to {}",
        rows.size(), b.shape.rows);
  for (const Row& row : rows)
    check(row.position >= 0 && row.position < b.shape.positions, "row at position {} of {}", row.position,
          b.shape.positions);
  return run(b.tables.prepare(rows, check_tables), b);
}

StepOutput Transformer::forward(const PlacedStep& step, Workspace& workspace) const {
  Workspace::Buffers& b = *workspace.buffers_;
  const StepPlan plan = b.tables.plan_of(step);
  check(plan.key.rows <= b.shape.rows, "a step of {} rows, expected 1 to {}", plan.key.rows, b.shape.rows);
  return run(plan, b);
}

StepOutput Transformer::run(const StepPlan& step, Workspace::Buffers& b) const {
  check(step.wanted_outputs <= b.shape.outputs, "{} rows want logits or hidden states, the workspace has room for {}",
        step.wanted_outputs, b.shape.outputs);
  check(step.wanted_taps == 0 || !b.shape.tap_boundaries.empty(), "rows want taps, the workspace has none");
  device_->step(*b.recordings, step.key, [&] { run_layers(step, b); });
  StepOutput output;
  if (step.wanted_logits > 0) {
    output.logits = b.logits.view.rows(0, step.wanted_logits);
    output.padded_logits = b.logits.view.rows(0, step.key.logit_rows);
  }
  if (step.wanted_outputs > 0) output.hidden = b.hidden.view.rows(0, step.wanted_outputs);
  if (step.wanted_taps > 0) output.taps = b.taps.view.rows(0, step.wanted_taps);
  return output;
}

// Recorded: beside the key only what the workspace keeps may decide what is called here, and with what.
void Transformer::run_layers(const StepPlan& step, Workspace::Buffers& b) const {
  const std::int64_t rows = step.key.rows;
  device_->embed(*weights_.embedding, step.rows.token, b.x.view.rows(0, rows));
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(i)];
    tap(i, step, b);
    attend(layer, b.tables.memory().layer(i), step, b);
    feed_forward(layer, step, b);
  }
  tap(config_.layers, step, b);
  if (step.key.output_rows == 0) return;
  const View picked = b.picked.view.rows(0, step.key.output_rows);
  const View hidden = b.hidden.view.rows(0, step.key.output_rows);
  device_->gather_rows(b.x.view.rows(0, rows), step.output_rows, picked);
  device_->rms_norm(picked, weights_.final_norm, config_.rms_eps, hidden);
  if (step.key.logit_rows == 0) return;
  const Projection logits{&weights_.output_matrix(), {}, b.logits.view.rows(0, step.key.logit_rows)};
  device_->linear(hidden.rows(0, step.key.logit_rows), std::span(&logits, 1));
}

void Transformer::attend(const LayerWeights& layer, const KvViews& kv, const StepPlan& step,
                         Workspace::Buffers& b) const {
  const std::int64_t rows = step.key.rows;
  const std::int64_t heads = config_.heads, kv_heads = config_.kv_heads, dim = config_.head_size;
  const View x = b.x.view.rows(0, rows), normed = b.normed.view.rows(0, rows);
  const View q = b.q.view.rows(0, rows), k = b.k.view.rows(0, rows), v = b.v.view.rows(0, rows);
  const View q_raw = config_.qk_norm ? b.q_raw.view.rows(0, rows) : q;
  const View k_raw = config_.qk_norm ? b.k_raw.view.rows(0, rows) : k;
  device_->rms_norm(x, layer.attention_norm, config_.rms_eps, normed);
  const Projection projections[] = {{layer.q.get(), layer.q_bias.view, q_raw},
                                    {layer.k.get(), layer.k_bias.view, k_raw},
                                    {layer.v.get(), layer.v_bias.view, v}};
  device_->linear(normed, projections);
  const View q_heads = q.reshaped({rows, heads, dim}), k_heads = k.reshaped({rows, kv_heads, dim});
  if (config_.qk_norm) {
    device_->rms_norm(q_raw.reshaped({rows, heads, dim}), layer.q_norm, config_.rms_eps, q_heads);
    device_->rms_norm(k_raw.reshaped({rows, kv_heads, dim}), layer.k_norm, config_.rms_eps, k_heads);
  }
  device_->rope(q_heads, step.rows.position, b.rotation->cosine, b.rotation->sine);
  device_->rope(k_heads, step.rows.position, b.rotation->cosine, b.rotation->sine);
  device_->kv_write(k_heads, v.reshaped({rows, kv_heads, dim}), step.rows.slot, kv);
  const View attended = b.attended.view.rows(0, rows), projected = b.projected.view.rows(0, rows);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  b.tables.attend(q_heads, kv, step, scale, attended.reshaped({rows, heads, dim}));
  const Projection output{layer.output.get(), layer.output_bias.view, projected};
  device_->linear(attended, std::span(&output, 1));
  device_->add(x, projected);
}

void Transformer::feed_forward(const LayerWeights& layer, const StepPlan& step, Workspace::Buffers& b) const {
  const std::int64_t rows = step.key.rows;
  const View x = b.x.view.rows(0, rows), normed = b.normed.view.rows(0, rows);
  const View gate_up = b.gate_up.view.rows(0, rows), gated = b.gated.view.rows(0, rows);
  const View projected = b.projected.view.rows(0, rows);
  device_->rms_norm(x, layer.mlp_norm, config_.rms_eps, normed);
  const Projection up{layer.gate_up.get(), {}, gate_up};
  device_->linear(normed, std::span(&up, 1));
  device_->swiglu(gate_up, gated);
  const Projection down{layer.down.get(), {}, projected};
  device_->linear(gated, std::span(&down, 1));
  device_->add(x, projected);
}

void Transformer::tap(std::int64_t boundary, const StepPlan& step, Workspace::Buffers& b) const {
  if (step.key.tap_rows == 0) return;
  const auto& boundaries = b.shape.tap_boundaries;
  for (std::size_t i = 0; i < boundaries.size(); ++i)
    if (boundaries[i] == boundary)
      device_->gather_rows(b.x.view.rows(0, step.key.rows), step.tap_rows,
                           b.taps.view.rows(0, step.key.tap_rows)
                               .columns(static_cast<std::int64_t>(i) * config_.hidden, config_.hidden));
}

Transformer load_transformer(Device& device, const std::filesystem::path& path, const LoadOptions& options) {
  if (std::filesystem::is_directory(path)) {
    ModelConfig config = load_config(path);
    const Safetensors source(path);
    ModelWeights weights =
        load_weights(device, config, source, TensorNaming::hugging_face, options.weights, options.progress);
    return Transformer(device, std::move(config), std::move(weights));
  }
  const Gguf source(path);
  ModelConfig config = read_config(source);
  ModelWeights weights = load_weights(device, config, source, TensorNaming::gguf, options.weights, options.progress);
  return Transformer(device, std::move(config), std::move(weights));
}

ModelConfig load_config(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return read_config(Gguf(path));
  const std::filesystem::path file = path / "config.json";
  return read_config(read_json_file(file), file.string());
}

}  // namespace espalier
