#include "model/eagle_head.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace espalier {
namespace {

EagleConfig read_config_of(const HeadFiles& files, const ModelConfig& teacher, const HeadOptions& options) {
  const HeadKind kind = classify_head(files);
  if (kind == HeadKind::medusa) input_error("{}: expected an EAGLE head, got {}", files.path.string(), name(kind));
  return read_eagle_config(files, kind, teacher, options);
}

}  // namespace

struct EagleWorkspace::Buffers {
  Buffers(Device& device, const KvMemory& memory, std::int64_t rows_, std::int64_t positions_, const StepForm& form)
      : rows(rows_), positions(positions_), tables(device, memory, rows_, positions_, form) {}

  std::int64_t rows, positions;
  std::int64_t outputs = 0;
  StepTables tables;
  std::shared_ptr<const RotationTables> rotation;  // the head's

  Tensor same_row;  // i32 [rows]: 0, 1, 2, ...: gathers a dense tensor into columns of a wider one

  // Fusion.
  Tensor feature_rows;     // i32 [rows]: those that are wanted
  Tensor features;         // [rows, taps * teacher hidden]
  Tensor features_normed;  // the same; only with a norm before fc, of all taps or of each
  Tensor tap_rows;         // i32, for each tap: where that of every row lies among single ones; only with fc_norm
  Tensor tap, tap_normed;  // [rows, teacher hidden]; likewise

  // A step.
  Tensor feature;                // [rows, hidden] g
  Tensor feature_normed;         // [rows, hidden]; not in EAGLE-2, nor is picked_normed
  Tensor embedded;               // [rows, hidden]
  Tensor x;                      // [rows, hidden] the residual stream; at the end, what is fed back
  Tensor normed;                 // [rows, hidden]
  Tensor paired;                 // [rows, 2 * hidden] the token, the feature; normed in EAGLE-3
  Tensor q, k, v;                // [rows, width]
  Tensor q_raw, k_raw;           // before the norm of heads; only where the head has one
  Tensor attended;               // [rows, heads * head_size]
  Tensor projected;              // [rows, hidden]
  Tensor gate_up;                // [rows, 2 * intermediate]
  Tensor gated;                  // [rows, intermediate]
  Tensor x_normed;               // [rows, hidden]; only with norm_output
  Tensor picked, picked_normed;  // [outputs, hidden]
  Tensor logits_buffer;
  View logits;  // [outputs, draft vocabulary] of it

  std::unique_ptr<Recordings> recordings;  // of all the above, so it goes first

  ConstView tap_list(const Device& device, std::size_t i, std::int64_t n) const {
    return tap_rows.view.rows(static_cast<std::int64_t>(i) * part_elements(device, rows_of_step(device, rows)), n);
  }

  void allocate_fusion(Device& device, const EagleConfig& config, std::int64_t padded);
  void list_taps(Device& device, std::int64_t taps, std::int64_t padded);
  void allocate_step(Device& device, const EagleConfig& config, bool qk_norm, std::int64_t padded);
};

void EagleWorkspace::Buffers::allocate_fusion(Device& device, const EagleConfig& config, std::int64_t padded) {
  const auto floats = [&](std::int64_t columns) { return device.tensor(DType::f32, {padded, columns}); };
  feature_rows = device.tensor(DType::i32, {padded});
  features = floats(config.feature_width());
  if (config.norm_before_fc || config.fc_norm) features_normed = floats(config.feature_width());
  if (config.fc_norm) {
    list_taps(device, static_cast<std::int64_t>(config.taps.size()), padded);
    tap = floats(config.teacher_hidden);
    tap_normed = floats(config.teacher_hidden);
  }
  same_row = device.tensor(DType::i32, {padded});
  std::vector<std::int32_t> ascending(static_cast<std::size_t>(padded));
  std::iota(ascending.begin(), ascending.end(), 0);
  upload<std::int32_t>(device, ascending, same_row);
}

void EagleWorkspace::Buffers::list_taps(Device& device, std::int64_t taps, std::int64_t padded) {
  const std::int64_t stride = part_elements(device, padded);
  std::vector<std::int32_t> lists(static_cast<std::size_t>(taps * stride));
  for (std::int64_t i = 0; i < taps; ++i)
    for (std::int64_t r = 0; r < padded; ++r)
      lists[static_cast<std::size_t>(i * stride + r)] = static_cast<std::int32_t>(r * taps + i);
  tap_rows = device.tensor(DType::i32, {taps * stride});
  upload<std::int32_t>(device, lists, tap_rows);
}

void EagleWorkspace::Buffers::allocate_step(Device& device, const EagleConfig& config, bool qk_norm,
                                            std::int64_t padded) {
  const auto floats = [&](std::int64_t columns) { return device.tensor(DType::f32, {padded, columns}); };
  const std::int64_t q_width = config.heads * config.head_size, kv_width = config.kv_heads * config.head_size;
  feature = floats(config.hidden);
  if (config.generation == EagleGeneration::third) feature_normed = floats(config.hidden);
  embedded = floats(config.hidden);
  x = floats(config.hidden);
  normed = floats(config.hidden);
  paired = floats(2 * config.hidden);
  q = floats(q_width);
  k = floats(kv_width);
  v = floats(kv_width);
  if (qk_norm) {
    q_raw = floats(q_width);
    k_raw = floats(kv_width);
  }
  attended = floats(q_width);
  projected = floats(config.hidden);
  gate_up = floats(2 * config.intermediate);
  gated = floats(config.intermediate);
  if (config.norm_output) x_normed = floats(config.hidden);
}

EagleWorkspace::EagleWorkspace(const EagleHead& head, const KvMemory& memory, std::int64_t rows, std::int64_t positions,
                               const StepForm& form, std::int64_t outputs) {
  check(rows >= 1 && positions >= 1 && outputs >= 0 && outputs <= rows,
        "draft workspace of {} rows, {} positions, {} outputs", rows, positions, outputs);
  Device& device = head.device();
  buffers_ = std::make_unique<Buffers>(device, memory, rows, positions, form);
  Buffers& b = *buffers_;
  const std::int64_t padded = rows_of_step(device, rows);
  b.outputs = outputs == 0 ? rows : outputs;
  b.allocate_fusion(device, head.config_, padded);
  b.allocate_step(device, head.config_, !head.weights_.layers[0].q_norm.view.empty(), padded);
  b.rotation = head.rotation_->tables(positions);
  const std::int64_t padded_outputs = rows_of_step(device, b.outputs);
  b.picked = device.tensor(DType::f32, {padded_outputs, head.hidden()});
  if (head.third()) b.picked_normed = device.tensor(DType::f32, {padded_outputs, head.hidden()});
  b.logits_buffer = device.tensor(DType::f32, {padded_outputs, row_elements(device, head.draft_vocabulary())});
  b.logits = b.logits_buffer.view.columns(0, head.draft_vocabulary());
  b.recordings = device.make_recordings();
}

EagleWorkspace::~EagleWorkspace() = default;
EagleWorkspace::EagleWorkspace(EagleWorkspace&&) noexcept = default;
EagleWorkspace& EagleWorkspace::operator=(EagleWorkspace&&) noexcept = default;

EagleHead::EagleHead(const Transformer& teacher, const HeadFiles& files, const HeadOptions& options)
    : device_(&teacher.device()),
      config_(read_config_of(files, teacher.config(), options)),
      weights_(load_eagle_weights(teacher.device(), files, config_, options, teacher.weights())),
      embedding_(weights_.own_embedding ? weights_.own_embedding.get() : teacher.weights().embedding.get()),
      output_(weights_.own_output ? weights_.own_output.get() : &teacher.weights().output_matrix()),
      teacher_norm_(teacher.weights().final_norm),
      teacher_eps_(teacher.config().rms_eps),
      rotation_(std::make_unique<Rotation>(teacher.device(), config_.rope)) {}

KvShape EagleHead::kv_shape(DType type) const {
  return {.layers = static_cast<std::int64_t>(weights_.layers.size()),
          .kv_heads = config_.kv_heads,
          .head_size = config_.head_size,
          .type = type};
}

// --- fusion: g = Wfc f, f the taps of a position side by side, normed first where the head says so; EAGLE-2 only has
// the norm, the teacher's own

void EagleHead::fuse(ConstView features, std::span<const std::int32_t> rows, EagleWorkspace& workspace,
                     View out) const {
  EagleWorkspace::Buffers& b = *workspace.buffers_;
  const auto count = static_cast<std::int64_t>(rows.size());
  check(count >= 1 && count <= b.rows, "fusion of {} rows, expected 1 to {}", count, b.rows);
  check(features.rank() == 2 && features.dim(1) == config_.feature_width() && features.dense(),
        "fusion of features {}, expected dense rows of {}", features.describe(), config_.feature_width());
  for (std::int32_t row : rows)
    check(row >= 0 && row < features.dim(0), "fusion of row {} of {}", row, features.dim(0));
  const std::int64_t padded = bucket_for(*device_, count);
  std::vector<std::int32_t> index(rows.begin(), rows.end());
  index.resize(static_cast<std::size_t>(padded), index[0]);
  const View list = b.feature_rows.view.rows(0, padded), gathered = b.features.view.rows(0, padded);
  upload<std::int32_t>(*device_, index, list);
  device_->gather_rows(features, list, gathered);
  fuse(gathered, workspace, out.rows(0, padded));
}

void EagleHead::fuse(ConstView features, EagleWorkspace& workspace, View out) const {
  EagleWorkspace::Buffers& b = *workspace.buffers_;
  check(features.rank() == 2 && features.dim(1) == config_.feature_width() && features.dense() &&
            features.dim(0) <= bucket_for(*device_, b.rows),
        "fusion of features {}, expected up to {} dense rows of {}", features, b.rows, config_.feature_width());
  if (!third()) {
    device_->rms_norm(features, teacher_norm_, teacher_eps_, out);
    return;
  }
  const Projection fused{weights_.fc.get(), {}, out};
  device_->linear(normed_features(features, b), std::span(&fused, 1));
}

ConstView EagleHead::normed_features(ConstView features, EagleWorkspace::Buffers& b) const {
  if (weights_.tap_norms.empty() && !config_.norm_before_fc) return features;
  const std::int64_t rows = features.dim(0), width = config_.teacher_hidden;
  const View normed = b.features_normed.view.rows(0, rows);
  if (weights_.tap_norms.empty()) {
    device_->rms_norm(features, weights_.input_norm, config_.rms_eps, normed);
    return normed;
  }
  const auto taps = static_cast<std::int64_t>(weights_.tap_norms.size());
  const ConstView single_taps = features.reshaped({rows * taps, width});
  const View tap = b.tap.view.rows(0, rows), tap_normed = b.tap_normed.view.rows(0, rows);
  for (std::size_t i = 0; i < weights_.tap_norms.size(); ++i) {
    device_->gather_rows(single_taps, b.tap_list(*device_, i, rows), tap);
    device_->rms_norm(tap, weights_.tap_norms[i], config_.rms_eps, tap_normed);
    device_->gather_rows(tap_normed, b.same_row.view.rows(0, rows),
                         normed.columns(static_cast<std::int64_t>(i) * width, width));
  }
  return normed;
}

// --- a draft step

EagleOutput EagleHead::forward(std::span<const Row> rows, ConstView inputs, EagleWorkspace& workspace,
                               const StepCheck& check_tables) const {
  EagleWorkspace::Buffers& b = *workspace.buffers_;
  const auto count = static_cast<std::int64_t>(rows.size());
  check(count >= 1 && count <= b.rows, "a draft step of {} rows, expected 1 to {}", count, b.rows);
  for (const Row& row : rows) {
    check(row.position >= 0 && row.position < b.positions, "draft row at position {} of {}", row.position, b.positions);
    check(row.input >= 0 && row.input < inputs.dim(0), "draft row with input {} of {}", row.input, inputs.dim(0));
    check(!row.wants_hidden && !row.wants_taps, "a draft row wants hidden states or taps, expected logits or nothing");
  }
  return run(b.tables.prepare(rows, check_tables), count, inputs, b);
}

EagleOutput EagleHead::forward(const PlacedStep& step, ConstView inputs, EagleWorkspace& workspace) const {
  EagleWorkspace::Buffers& b = *workspace.buffers_;
  const StepPlan plan = b.tables.plan_of(step);
  check(plan.key.rows <= b.rows && plan.wanted_taps == 0, "a draft step of {} rows, {} with taps, expected 1 to {}",
        plan.key.rows, plan.wanted_taps, b.rows);
  return run(plan, plan.key.rows, inputs, b);
}

// count: rows without padding
EagleOutput EagleHead::run(const StepPlan& step, std::int64_t count, ConstView inputs,
                           EagleWorkspace::Buffers& b) const {
  check(step.wanted_logits <= b.outputs, "{} draft rows want logits, expected at most {}", step.wanted_logits,
        b.outputs);
  // Not part of the recorded step: the inputs lie in a buffer of the caller, another one each time if he likes.
  device_->gather_rows(inputs, step.input, b.feature.view.rows(0, step.key.rows));
  device_->step(*b.recordings, step.key, [&] { run_layers(step, b); });
  EagleOutput output;
  output.feedback = config_.norm_output ? b.x_normed.view.rows(0, count) : b.x.view.rows(0, count);
  if (step.wanted_logits > 0) output.logits = b.logits.rows(0, step.wanted_logits);
  return output;
}

// Recorded: beside the key only what the workspace keeps may decide what is called here, and with what.
void EagleHead::run_layers(const StepPlan& step, EagleWorkspace::Buffers& b) const {
  const std::int64_t rows = step.key.rows;
  const View normed = b.normed.view.rows(0, rows);
  pair_tokens_with_features(step, b);
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    ConstView input = third() ? b.paired.view.rows(0, rows) : b.x.view.rows(0, rows);
    if (i > 0) {
      device_->rms_norm(b.x.view.rows(0, rows), layer.attention_norm, config_.rms_eps, normed);
      input = normed;
    }
    attend(layer, b.tables.memory().layer(static_cast<std::int64_t>(i)), step, input, b);
    feed_forward(layer, step, b);
  }
  if (config_.norm_output)
    device_->rms_norm(b.x.view.rows(0, rows), weights_.final_norm, config_.rms_eps, b.x_normed.view.rows(0, rows));
  if (step.key.logit_rows > 0) guess(step, b);
}

// What the first layer reads, and where the residual stream starts: EAGLE-3's z = [norm(E[token]); norm(g)] and g,
// EAGLE-2's Wfc [E[token]; g] for both.
void EagleHead::pair_tokens_with_features(const StepPlan& step, EagleWorkspace::Buffers& b) const {
  const std::int64_t rows = step.key.rows, hidden = config_.hidden;
  const View embedded = b.embedded.view.rows(0, rows), feature = b.feature.view.rows(0, rows);
  device_->embed(*embedding_, step.rows.token, embedded);
  if (third()) {
    pair_normed(embedded, feature, rows, b);
    return;
  }
  const View paired = b.paired.view.rows(0, rows);
  const ConstView same_row = b.same_row.view.rows(0, rows);
  device_->gather_rows(embedded, same_row, paired.columns(0, hidden));
  device_->gather_rows(feature, same_row, paired.columns(hidden, hidden));
  const Projection fused{weights_.fc.get(), weights_.fc_bias, b.x.view.rows(0, rows)};
  device_->linear(paired, std::span(&fused, 1));
}

// The token's half first; the residual stream starts from g, raw or normed. It is a copy because g may have been
// gathered from what the step before left in x.
void EagleHead::pair_normed(ConstView embedded, ConstView feature, std::int64_t rows,
                            EagleWorkspace::Buffers& b) const {
  const std::int64_t hidden = config_.hidden;
  const View normed = b.normed.view.rows(0, rows), feature_normed = b.feature_normed.view.rows(0, rows);
  const View paired = b.paired.view.rows(0, rows);
  const ConstView same_row = b.same_row.view.rows(0, rows);
  device_->rms_norm(embedded, weights_.layers[0].attention_norm, config_.rms_eps, normed);
  device_->gather_rows(normed, same_row, paired.columns(0, hidden));
  device_->rms_norm(feature, weights_.hidden_norm, config_.rms_eps, feature_normed);
  device_->gather_rows(feature_normed, same_row, paired.columns(hidden, hidden));
  device_->gather_rows(config_.norm_before_residual ? feature_normed : feature, same_row, b.x.view.rows(0, rows));
}

void EagleHead::attend(const LayerWeights& layer, const KvViews& kv, const StepPlan& step, ConstView input,
                       EagleWorkspace::Buffers& b) const {
  const std::int64_t rows = step.key.rows, dim = config_.head_size;
  const View q = b.q.view.rows(0, rows), k = b.k.view.rows(0, rows), v = b.v.view.rows(0, rows);
  const View q_heads = q.reshaped({rows, config_.heads, dim}), k_heads = k.reshaped({rows, config_.kv_heads, dim});
  if (layer.q_norm.view.empty()) {
    const Projection qkv[] = {
        {layer.q.get(), layer.q_bias, q}, {layer.k.get(), layer.k_bias, k}, {layer.v.get(), layer.v_bias, v}};
    device_->linear(input, qkv);
  } else {
    const View q_raw = b.q_raw.view.rows(0, rows), k_raw = b.k_raw.view.rows(0, rows);
    const Projection qkv[] = {
        {layer.q.get(), layer.q_bias, q_raw}, {layer.k.get(), layer.k_bias, k_raw}, {layer.v.get(), layer.v_bias, v}};
    device_->linear(input, qkv);
    device_->rms_norm(q_raw.reshaped({rows, config_.heads, dim}), layer.q_norm, config_.rms_eps, q_heads);
    device_->rms_norm(k_raw.reshaped({rows, config_.kv_heads, dim}), layer.k_norm, config_.rms_eps, k_heads);
  }
  device_->rope(q_heads, step.rows.position, b.rotation->cosine, b.rotation->sine);
  device_->rope(k_heads, step.rows.position, b.rotation->cosine, b.rotation->sine);
  device_->kv_write(k_heads, v.reshaped({rows, config_.kv_heads, dim}), step.rows.slot, kv);
  const View attended = b.attended.view.rows(0, rows), projected = b.projected.view.rows(0, rows);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  b.tables.attend(q_heads, kv, step, scale, attended.reshaped({rows, config_.heads, dim}));
  const Projection output{layer.output.get(), {}, projected};
  device_->linear(attended, std::span(&output, 1));
  device_->add(b.x.view.rows(0, rows), projected);
}

void EagleHead::feed_forward(const LayerWeights& layer, const StepPlan& step, EagleWorkspace::Buffers& b) const {
  const std::int64_t rows = step.key.rows;
  const View x = b.x.view.rows(0, rows), normed = b.normed.view.rows(0, rows),
             projected = b.projected.view.rows(0, rows);
  const View gate_up = b.gate_up.view.rows(0, rows), gated = b.gated.view.rows(0, rows);
  device_->rms_norm(x, layer.mlp_norm, config_.rms_eps, normed);
  const Projection up{layer.gate_up.get(), {}, gate_up};
  device_->linear(normed, std::span(&up, 1));
  device_->swiglu(gate_up, gated);
  const Projection down{layer.down.get(), {}, projected};
  device_->linear(gated, std::span(&down, 1));
  device_->add(x, projected);
}

// EAGLE-2's output was trained to be the teacher's normed state: no norm before the output matrix.
void EagleHead::guess(const StepPlan& step, EagleWorkspace::Buffers& b) const {
  const std::int64_t wanted = step.key.logit_rows;
  const View picked = b.picked.view.rows(0, wanted);
  device_->gather_rows(b.x.view.rows(0, step.key.rows), step.output_rows, picked);
  ConstView state = picked;
  if (third()) {
    const View normed = b.picked_normed.view.rows(0, wanted);
    device_->rms_norm(picked, weights_.final_norm, config_.rms_eps, normed);
    state = normed;
  }
  const Projection logits{output_, {}, b.logits.rows(0, wanted)};
  device_->linear(state, std::span(&logits, 1));
}

}  // namespace espalier
