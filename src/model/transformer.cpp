#include "model/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/math.h"
#include "format/gguf.h"
#include "format/safetensors.h"

namespace espalier {
namespace {

// The smallest bucket that holds n; n itself on devices without buckets.
std::int64_t bucket_for(std::span<const std::int64_t> buckets, std::int64_t n) {
  if (buckets.empty() || n == 0) return n;
  const auto it = std::lower_bound(buckets.begin(), buckets.end(), n);
  check(it != buckets.end(), "a step of {} rows: the largest bucket is {}", n, buckets.back());
  return *it;
}

// Integer tables packed into one buffer, so that a step uploads once. Each starts on 64 bytes and leaves 32 bytes of
// slack behind it, as accelerators that move 32-byte blocks need (R3 of the Ascend contract).
class TablePacker {
 public:
  std::int64_t add(std::span<const std::int32_t> values) {
    const std::int64_t begin = static_cast<std::int64_t>(packed_.size());
    packed_.insert(packed_.end(), values.begin(), values.end());
    packed_.resize((packed_.size() + 8 + 15) / 16 * 16);
    return begin;
  }
  void clear() { packed_.clear(); }
  std::span<const std::int32_t> packed() const { return packed_; }

 private:
  std::vector<std::int32_t> packed_;
};

std::int64_t packed_size(std::int64_t values) {
  return (values + 8 + 15) / 16 * 16;
}

struct RotationTables {
  Tensor cosine, sine;  // [positions, head_size / 2]
};

// The angle is rounded to float before sine and cosine, as the models were trained.
RotationTables make_rotation_tables(Device& device, const std::vector<float>& frequencies, std::int64_t positions) {
  const auto half = frequencies.size();
  std::vector<float> cosine(static_cast<std::size_t>(positions) * half), sine(cosine.size());
  for (std::size_t p = 0; p < static_cast<std::size_t>(positions); ++p)
    for (std::size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p) * frequencies[i];
      cosine[p * half + i] = static_cast<float>(cos_f64(angle));
      sine[p * half + i] = static_cast<float>(sin_f64(angle));
    }
  RotationTables tables{device.tensor(DType::f32, {positions, static_cast<std::int64_t>(half)}),
                        device.tensor(DType::f32, {positions, static_cast<std::int64_t>(half)})};
  upload<float>(device, cosine, tables.cosine);
  upload<float>(device, sine, tables.sine);
  return tables;
}

// Ancestors of a row in a tree; more columns than any tree that a bucket can hold are never needed.
constexpr std::int64_t kMaxAncestors = 256;

}  // namespace

struct Workspace::Buffers {
  WorkspaceShape shape;
  RotationTables rotation;
  Tensor tables;          // i32, all integer tables of a step
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

  // Host side, reused from step to step.
  TablePacker packer;
  std::vector<std::int32_t> column, ancestors, blocks;
};

Workspace::Workspace(const Transformer& model, const WorkspaceShape& shape) : buffers_(std::make_unique<Buffers>()) {
  const ModelConfig& config = model.config();
  Device& device = model.device();
  check(shape.rows >= 1 && shape.outputs >= 0 && shape.outputs <= shape.rows && shape.positions >= 1,
        "workspace of {} rows, {} outputs, {} positions", shape.rows, shape.outputs, shape.positions);
  for (std::int64_t boundary : shape.tap_boundaries)
    check(boundary >= 0 && boundary <= config.layers, "tap at boundary {} of {} layers", boundary, config.layers);
  Buffers& b = *buffers_;
  b.shape = shape;
  const std::int64_t rows = bucket_for(device.row_buckets(), shape.rows);
  const std::int64_t outputs = bucket_for(device.row_buckets(), std::max<std::int64_t>(shape.outputs, 1));
  const std::int64_t q_width = config.heads * config.head_size, kv_width = config.kv_heads * config.head_size;
  b.rotation = make_rotation_tables(device, config.inverse_frequencies, shape.positions);
  // Seven columns per row, ancestors, output and tap lists, and a block table of up to one sequence per row.
  const std::int64_t table_size =
      9 * packed_size(rows) + packed_size(rows * kMaxAncestors) + packed_size(rows * (shape.positions / 16 + 2));
  b.tables = device.tensor(DType::i32, {table_size});
  const auto floats = [&device](std::int64_t r, std::int64_t c) { return device.tensor(DType::f32, {r, c}); };
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
}

Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

const WorkspaceShape& Workspace::shape() const {
  return buffers_->shape;
}

// One step as the device sees it: padded row counts and the tables.
struct Transformer::Step {
  StepKey key;
  std::int64_t wanted_logits = 0;  // before padding
  std::int64_t wanted_outputs = 0;
  std::int64_t wanted_taps = 0;
  std::int64_t logit_rows = 0;  // after padding
  RowTables tables;
  ConstView outputs;  // i32 [output_rows]
  ConstView tapped;   // i32 [tap_rows]
};

namespace {

// Lays the rows out as columns, pads them, uploads them.
class StepBuilder {
 public:
  StepBuilder(std::span<const Row> rows, const KvCache& cache, Device& device, TablePacker& packer,
              std::vector<std::int32_t>& scratch)
      : rows_(rows), cache_(cache), device_(device), packer_(packer), column_(scratch) {
    padded_ = bucket_for(device.row_buckets(), static_cast<std::int64_t>(rows.size()));
    packer_.clear();
  }

  std::int64_t padded_rows() const { return padded_; }

  // One value per row; padding row i (counted from 0) gets pad(i).
  template <typename Value, typename Pad>
  std::int64_t column(Value value, Pad pad) {
    column_.clear();
    for (const Row& row : rows_) column_.push_back(value(row));
    for (std::int64_t i = 0; static_cast<std::int64_t>(column_.size()) < padded_; ++i) column_.push_back(pad(i));
    return packer_.add(column_);
  }

  // Row numbers, padded with row 0 to the bucket; sets `padded` to their number.
  std::int64_t row_list(std::span<const std::int32_t> list, std::int64_t& padded) {
    padded = bucket_for(device_.row_buckets(), static_cast<std::int64_t>(list.size()));
    column_.assign(list.begin(), list.end());
    column_.resize(static_cast<std::size_t>(padded));
    return packer_.add(column_);
  }

  std::int64_t ancestors(std::int64_t width) {
    column_.assign(static_cast<std::size_t>(padded_ * width), 0);
    for (std::size_t r = 0; r < rows_.size(); ++r)
      std::copy(rows_[r].ancestors.begin(), rows_[r].ancestors.end(),
                column_.begin() + static_cast<std::ptrdiff_t>(r) * width);
    return packer_.add(column_);
  }

  std::int64_t blocks(std::span<const SequenceId> sequences, std::int64_t width) {
    column_.assign(sequences.size() * static_cast<std::size_t>(width), 0);
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      const auto ids = cache_.blocks(sequences[s]);
      std::copy(ids.begin(), ids.end(), column_.begin() + static_cast<std::ptrdiff_t>(s) * width);
    }
    return packer_.add(column_);
  }

  std::int32_t padding_slot(std::int64_t i) const { return cache_.padding_slot(i); }

 private:
  std::span<const Row> rows_;
  const KvCache& cache_;
  Device& device_;
  TablePacker& packer_;
  std::vector<std::int32_t>& column_;
  std::int64_t padded_ = 0;
};

// The sequences of a step in the order of their first rows.
std::vector<SequenceId> list_sequences(std::span<const Row> rows) {
  std::vector<SequenceId> sequences;
  for (const Row& row : rows)
    if (std::find(sequences.begin(), sequences.end(), row.sequence) == sequences.end())
      sequences.push_back(row.sequence);
  return sequences;
}

std::int32_t index_of(const std::vector<SequenceId>& sequences, SequenceId id) {
  return static_cast<std::int32_t>(std::find(sequences.begin(), sequences.end(), id) - sequences.begin());
}

// Row numbers for which `wanted` holds, appended to `list`.
template <typename Wanted>
void append_rows(std::span<const Row> rows, Wanted wanted, std::vector<std::int32_t>& list) {
  for (std::size_t r = 0; r < rows.size(); ++r)
    if (wanted(rows[r])) list.push_back(static_cast<std::int32_t>(r));
}

}  // namespace

Transformer::Transformer(Device& device, ModelConfig config, ModelWeights weights)
    : device_(&device), config_(std::move(config)), weights_(std::move(weights)) {}

KvShape Transformer::kv_shape(DType type) const {
  return {.layers = config_.layers, .kv_heads = config_.kv_heads, .head_size = config_.head_size, .type = type};
}

// A window of W keys counts the row itself, so its context is the W - 1 positions before it.
std::int32_t Transformer::context_begin(std::int64_t position) const {
  if (config_.sliding_window == 0) return 0;
  return static_cast<std::int32_t>(std::max<std::int64_t>(0, position - (config_.sliding_window - 1)));
}

StepOutput Transformer::forward(std::span<const Row> rows, const KvCache& cache, Workspace& workspace) const {
  Workspace::Buffers& b = *workspace.buffers_;
  check(!rows.empty() && static_cast<std::int64_t>(rows.size()) <= b.shape.rows, "a step of {} rows, expected 1 to {}",
        rows.size(), b.shape.rows);
  std::int64_t ancestor_width = 1;
  for (const Row& row : rows) {
    check(row.position >= 0 && row.position < b.shape.positions, "row at position {} of {}", row.position,
          b.shape.positions);
    check(row.ancestors.size() <= kMaxAncestors, "row with {} ancestors, expected at most {}", row.ancestors.size(),
          kMaxAncestors);
    ancestor_width = std::max(ancestor_width, static_cast<std::int64_t>(row.ancestors.size()));
  }
  std::vector<std::int32_t> outputs, tapped;
  append_rows(
      rows, [](const Row& row) { return row.wants_logits; }, outputs);
  Step step;
  step.wanted_logits = static_cast<std::int64_t>(outputs.size());
  append_rows(
      rows, [](const Row& row) { return row.wants_hidden && !row.wants_logits; }, outputs);
  append_rows(
      rows, [](const Row& row) { return row.wants_taps; }, tapped);
  step.wanted_outputs = static_cast<std::int64_t>(outputs.size());
  step.wanted_taps = static_cast<std::int64_t>(tapped.size());
  check(step.wanted_outputs <= b.shape.outputs, "{} rows want outputs, expected at most {}", step.wanted_outputs,
        b.shape.outputs);
  check(step.wanted_taps == 0 || !b.shape.tap_boundaries.empty(), "rows want taps, the workspace has none");
  step.logit_rows = bucket_for(device_->row_buckets(), step.wanted_logits);

  const std::vector<SequenceId> sequences = list_sequences(rows);
  StepBuilder builder(rows, cache, *device_, b.packer, b.column);
  const auto zero = [](std::int64_t) { return 0; };
  const std::int64_t token = builder.column([](const Row& row) { return row.token; }, zero);
  const std::int64_t position = builder.column([](const Row& row) { return row.position; }, zero);
  const std::int64_t slot =
      builder.column([](const Row& row) { return row.slot; }, [&](std::int64_t i) { return builder.padding_slot(i); });
  const std::int64_t sequence = builder.column([&](const Row& row) { return index_of(sequences, row.sequence); }, zero);
  const std::int64_t begin = builder.column([](const Row& row) { return row.begin; }, zero);
  const std::int64_t end = builder.column([](const Row& row) { return row.end; }, zero);
  const std::int64_t count =
      builder.column([](const Row& row) { return static_cast<std::int32_t>(row.ancestors.size()); }, zero);
  const std::int64_t ancestors = builder.ancestors(ancestor_width);
  const std::int64_t block_width = (b.shape.positions + cache.block_size() - 1) / cache.block_size();
  const std::int64_t blocks = builder.blocks(sequences, block_width);
  const std::int64_t output_list = builder.row_list(outputs, step.key.output_rows);
  const std::int64_t tap_list = builder.row_list(tapped, step.key.tap_rows);

  const std::int64_t padded = builder.padded_rows();
  step.key.rows = padded;
  step.key.sequences = static_cast<std::int64_t>(sequences.size());
  step.key.blocks = block_width;
  step.key.ancestors = ancestor_width;
  const auto packed = b.packer.packed();
  check(static_cast<std::int64_t>(packed.size()) <= b.tables.view.dim(0), "step tables of {} words, room for {}",
        packed.size(), b.tables.view.dim(0));
  upload<std::int32_t>(*device_, packed, b.tables.view.rows(0, static_cast<std::int64_t>(packed.size())));
  const auto table = [&](std::int64_t at, std::int64_t n) { return ConstView(b.tables.view.rows(at, n)); };
  step.tables = {.token = table(token, padded),
                 .position = table(position, padded),
                 .slot = table(slot, padded),
                 .sequence = table(sequence, padded),
                 .begin = table(begin, padded),
                 .end = table(end, padded),
                 .ancestor_count = table(count, padded),
                 .ancestors = table(ancestors, padded * ancestor_width).reshaped({padded, ancestor_width}),
                 .blocks = table(blocks, step.key.sequences * block_width).reshaped({step.key.sequences, block_width}),
                 .mask = {}};
  if (step.key.output_rows > 0) step.outputs = table(output_list, step.key.output_rows);
  if (step.key.tap_rows > 0) step.tapped = table(tap_list, step.key.tap_rows);

  device_->step(step.key, [&] { run_layers(cache, step, b); });

  StepOutput output;
  if (step.wanted_logits > 0) output.logits = b.logits.view.rows(0, step.wanted_logits);
  if (step.wanted_outputs > 0) output.hidden = b.hidden.view.rows(0, step.wanted_outputs);
  if (step.wanted_taps > 0) output.taps = b.taps.view.rows(0, step.wanted_taps);
  return output;
}

void Transformer::run_layers(const KvCache& cache, const Step& step, Workspace::Buffers& b) const {
  const std::int64_t rows = step.key.rows;
  device_->embed(*weights_.embedding, step.tables.token, b.x.view.rows(0, rows));
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(i)];
    tap(i, step, b);
    attend(layer, cache.layer(i), step, b);
    feed_forward(layer, step, b);
  }
  tap(config_.layers, step, b);
  if (step.key.output_rows == 0) return;
  const View picked = b.picked.view.rows(0, step.key.output_rows);
  const View hidden = b.hidden.view.rows(0, step.key.output_rows);
  device_->gather_rows(b.x.view.rows(0, rows), step.outputs, picked);
  device_->rms_norm(picked, weights_.final_norm, config_.rms_eps, hidden);
  if (step.logit_rows == 0) return;
  const Projection logits{&weights_.output_matrix(), {}, b.logits.view.rows(0, step.logit_rows)};
  device_->linear(hidden.rows(0, step.logit_rows), std::span(&logits, 1));
}

void Transformer::attend(const LayerWeights& layer, const KvViews& kv, const Step& step, Workspace::Buffers& b) const {
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
  device_->rope(q_heads, step.tables.position, b.rotation.cosine, b.rotation.sine);
  device_->rope(k_heads, step.tables.position, b.rotation.cosine, b.rotation.sine);
  device_->kv_write(k_heads, v.reshaped({rows, kv_heads, dim}), step.tables.slot, kv);
  const View attended = b.attended.view.rows(0, rows), projected = b.projected.view.rows(0, rows);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  device_->attention(q_heads, kv, step.tables, scale, attended.reshaped({rows, heads, dim}));
  const Projection output{layer.output.get(), layer.output_bias.view, projected};
  device_->linear(attended, std::span(&output, 1));
  device_->add(x, projected);
}

void Transformer::feed_forward(const LayerWeights& layer, const Step& step, Workspace::Buffers& b) const {
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

void Transformer::tap(std::int64_t boundary, const Step& step, Workspace::Buffers& b) const {
  if (step.key.tap_rows == 0) return;
  const auto& boundaries = b.shape.tap_boundaries;
  for (std::size_t i = 0; i < boundaries.size(); ++i)
    if (boundaries[i] == boundary)
      device_->gather_rows(b.x.view.rows(0, step.key.rows), step.tapped,
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
