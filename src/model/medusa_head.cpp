#include "model/medusa_head.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/untrusted_text.h"
#include "model/config_fields.h"
#include "model/draft_vocabulary.h"
#include "model/medusa_layout.h"
#include "model/step_tables.h"
#include "model/weight_reader.h"

namespace espalier {
namespace {

// The switches of vLLM's configuration that change what is computed. Its counts, and its medusa_fc_bias, are not asked:
// tensors that are there count.
struct Settings {
  std::int64_t draft_vocabulary = 0;
  bool shared_output = false;
  float logit_scale = 1;
};

Settings read_settings(const HeadFiles& files, std::int64_t vocabulary) {
  const nlohmann::json object = parse_json(files.config, files.config_file);
  const JsonFields config(object, files.config_file);
  return {.draft_vocabulary = config.integer("truncated_vocab_size", 1, vocabulary).value_or(vocabulary),
          .shared_output = config.boolean("original_lm_head", false),
          .logit_scale = config.factor("logit_scale")};
}

// The teacher's id of every draft id. Without a map the two vocabularies are one.
std::vector<std::int32_t> read_token_map(const TensorSource& source, const std::string& name,
                                         std::int64_t draft_vocabulary, std::int64_t vocabulary) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(draft_vocabulary));
  const TensorInfo* info = source.find(name);
  if (!info) {
    if (draft_vocabulary != vocabulary)
      input_error("{}: tensor {} is missing, expected [{}] for a draft vocabulary smaller than {}",
                  source.description(), name, draft_vocabulary, vocabulary);
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
  }
  if ((info->type != DType::i64 && info->type != DType::i32) || info->shape != std::vector{draft_vocabulary})
    input_error("{}: tensor {}: expected i64 or i32 [{}], got {} [{}]", source.description(), name, draft_vocabulary,
                espalier::name(info->type), fmt::join(info->shape, ", "));
  std::vector<bool> seen(static_cast<std::size_t>(vocabulary));
  std::size_t i = 0;
  for (std::int64_t id : widened_integers(*info)) {
    if (id < 0 || id >= vocabulary)
      input_error("{}: tensor {}: element {}: expected a token 0 to {}, got {}", source.description(), name, i,
                  vocabulary - 1, id);
    if (seen[static_cast<std::size_t>(id)])
      input_error("{}: tensor {}: expected each token once, got {} twice", source.description(), name, id);
    seen[static_cast<std::size_t>(id)] = true;
    ids[i++] = static_cast<std::int32_t>(id);
  }
  return ids;
}

void refuse_unread(const WeightReader& read, const TensorSource& source, const std::string& token_map) {
  for (std::string_view name : read.unread())
    if (name != token_map)
      input_error("{}: tensor {}: unknown, no part of Medusa heads", source.description(), in_quotes(name));
}

Tensor zeros(Device& device, std::int64_t rows, std::int64_t columns) {
  Tensor tensor = device.tensor(DType::f32, {rows, columns});
  upload<float>(device, std::vector<float>(static_cast<std::size_t>(rows * columns)), tensor);
  return tensor;
}

}  // namespace

// Row k belongs to head k. Padding rows hold zeros, or a copy of what head 0 starts from.
struct MedusaHead::Buffers {
  Tensor index;   // i32 [rows]: the row of the hidden states, for every head
  Tensor x;       // [rows, hidden]
  Tensor branch;  // [rows, hidden]: silu(W x + b)
  Tensor padded_logits;
  View logits;  // [rows, draft vocabulary]

  std::unique_ptr<Recordings> recordings;  // of all the above, so it goes first
};

MedusaHead::MedusaHead(const Transformer& teacher, const HeadFiles& files, const HeadOptions& options)
    : device_(&teacher.device()), hidden_(teacher.config().hidden) {
  const TensorSource& source = *files.tensors;
  const std::int64_t vocabulary = teacher.config().vocabulary;
  if (classify_head(files) != HeadKind::medusa)
    input_error("{}: an EAGLE head, expected Medusa heads", source.description());
  const MedusaLayout layout(source);
  const Settings settings = layout.is_vllm() ? read_settings(files, vocabulary) : Settings{vocabulary};
  WeightReader read(*device_, source, options.weights, OddRows::keep_as_stored);
  for (std::int64_t k = 0; k < layout.heads(); ++k) heads_.push_back(load_blocks(read, source, layout, k));
  const std::string token_map = layout.is_vllm() ? layout.token_map() : "";
  target_ids_ = read_token_map(source, token_map, settings.draft_vocabulary, vocabulary);
  const auto kept = most_frequent_rows(files, options, target_ids_);
  if (kept) target_ids_ = picked(target_ids_, *kept);
  if (settings.shared_output || layout.is_vllm() || layout.has_own_outputs()) {
    load_outputs(read, layout, settings.draft_vocabulary, settings.shared_output, kept);
  } else if (kept) {
    own_shared_output_ = copy_rows(*device_, teacher.weights().output_matrix(), *kept, options.weights);
  } else {
    shared_output_ = &teacher.weights().output_matrix();
  }
  if (own_shared_output_) shared_output_ = own_shared_output_.get();
  logit_scale_ = settings.logit_scale;
  refuse_unread(read, source, token_map);
}

// The heads' own output matrices, `shared`: one for all; of each the rows that are kept, or all.
void MedusaHead::load_outputs(WeightReader& read, const MedusaLayout& layout, std::int64_t rows, bool shared,
                              const std::optional<std::vector<std::int32_t>>& kept) {
  const auto load = [&](const std::string& name) {
    return kept ? read.matrix_rows(name, rows, hidden_, *kept) : read.matrix(name, rows, hidden_);
  };
  if (shared) {
    own_shared_output_ = load(layout.shared_output());
    return;
  }
  for (std::int64_t k = 0; k < layout.heads(); ++k) heads_[static_cast<std::size_t>(k)].output = load(layout.output(k));
}

MedusaHead::Head MedusaHead::load_blocks(WeightReader& read, const TensorSource& source, const MedusaLayout& layout,
                                         std::int64_t k) const {
  Head head;
  for (std::int64_t r = 0; r < layout.blocks(); ++r) {
    Block& block = head.blocks.emplace_back();
    block.weight = read.matrix(layout.weight(k, r), hidden_, hidden_);
    if (source.find(layout.bias(k, r))) block.bias = read.vector(layout.bias(k, r), hidden_);
  }
  return head;
}

MedusaHead::~MedusaHead() = default;
MedusaHead::MedusaHead(MedusaHead&&) noexcept = default;
MedusaHead& MedusaHead::operator=(MedusaHead&&) noexcept = default;

std::int64_t MedusaHead::padded_rows(std::int64_t stride) const {
  return bucket_for(*device_, heads() * stride);
}

ConstView MedusaHead::forward(ConstView hidden, std::span<const std::int32_t> rows, MedusaWorkspace& workspace) const {
  Buffers& b = *workspace.buffers_;
  const std::int64_t stride = rows_of_step(*device_, std::ssize(rows)), padded = padded_rows(stride);
  check(!rows.empty() && padded <= b.index.view.dim(0), "Medusa heads on {} rows, expected 1 to {}", rows.size(),
        b.index.view.dim(0) / heads());
  for (std::int32_t row : rows)
    check(hidden.rank() == 2 && hidden.dim(1) == hidden_ && row >= 0 && row < hidden.dim(0),
          "Medusa heads on row {} of {}, expected a row of [n, {}]", row, hidden.describe(), hidden_);
  std::vector<std::int32_t> index(static_cast<std::size_t>(padded), rows[0]);
  for (std::int64_t k = 0; k < heads(); ++k) std::ranges::copy(rows, index.begin() + k * stride);
  upload<std::int32_t>(*device_, index, b.index.view.rows(0, padded));
  return run(hidden, b.index.view.rows(0, padded), stride, b);
}

ConstView MedusaHead::forward(ConstView hidden, ConstView rows, MedusaWorkspace& workspace) const {
  Buffers& b = *workspace.buffers_;
  check(device_->row_buckets().empty() && rows.rank() == 1 && rows.dim(0) % heads() == 0 &&
            rows.dim(0) <= b.index.view.dim(0),
        "Medusa heads on rows {}, expected a list for each of {} heads, {} in all at most", rows, heads(),
        b.index.view.dim(0));
  return run(hidden, rows, rows.dim(0) / heads(), b);
}

ConstView MedusaHead::run(ConstView hidden, ConstView index, std::int64_t stride, Buffers& b) const {
  const std::int64_t padded = index.dim(0);
  // Not part of the recorded step: the hidden states lie in a buffer of the caller, another one each time if he likes.
  device_->gather_rows(hidden, index, b.x.view.rows(0, padded));
  device_->step(*b.recordings, {.rows = stride}, [&] {
    run_blocks(stride, b);
    run_outputs(stride, b);
  });
  return b.logits.rows(0, padded);
}

void MedusaHead::run_blocks(std::int64_t stride, Buffers& b) const {
  const std::size_t blocks = heads_.front().blocks.size();
  const std::int64_t padded = padded_rows(stride);
  std::vector<Projection> projections;
  for (std::size_t r = 0; r < blocks; ++r) {
    projections.clear();
    for (std::size_t k = 0; k < heads_.size(); ++k) {
      const Block& block = heads_[k].blocks[r];
      const auto row = static_cast<std::int64_t>(k) * stride;
      projections.push_back({block.weight.get(), block.bias.view, b.branch.view.rows(row, stride)});
      // Before the first block all heads hold the same vectors: one call for all of them.
      if (r > 0) device_->linear(b.x.view.rows(row, stride), std::span(&projections.back(), 1));
    }
    if (r == 0) device_->linear(b.x.view.rows(0, stride), projections);
    device_->silu(b.branch.view.rows(0, padded));
    device_->add(b.x.view.rows(0, padded), b.branch.view.rows(0, padded));
  }
}

void MedusaHead::run_outputs(std::int64_t stride, Buffers& b) const {
  if (shared_output_) {
    const std::int64_t padded = padded_rows(stride);
    const Projection all{shared_output_, {}, b.logits.rows(0, padded)};
    device_->linear(b.x.view.rows(0, padded), std::span(&all, 1));
    return;
  }
  for (std::size_t k = 0; k < heads_.size(); ++k) {
    const auto row = static_cast<std::int64_t>(k) * stride;
    const Projection own{heads_[k].output.get(), {}, b.logits.rows(row, stride)};
    device_->linear(b.x.view.rows(row, stride), std::span(&own, 1));
  }
}

// Padding rows are read like all others, so they are written once: with zeros, of which silu and sums make zeros.
MedusaWorkspace::MedusaWorkspace(const MedusaHead& head, std::int64_t rows)
    : buffers_(std::make_unique<MedusaHead::Buffers>()) {
  Device& device = head.device();
  const std::int64_t most = head.padded_rows(rows_of_step(device, rows));
  buffers_->index = device.tensor(DType::i32, {most});
  buffers_->x = device.tensor(DType::f32, {most, head.hidden_});
  buffers_->branch = zeros(device, most, head.hidden_);
  buffers_->padded_logits = zeros(device, most, row_elements(device, head.draft_vocabulary()));
  buffers_->logits = buffers_->padded_logits.view.columns(0, head.draft_vocabulary());
  buffers_->recordings = device.make_recordings();
}

MedusaWorkspace::~MedusaWorkspace() = default;
MedusaWorkspace::MedusaWorkspace(MedusaWorkspace&&) noexcept = default;
MedusaWorkspace& MedusaWorkspace::operator=(MedusaWorkspace&&) noexcept = default;

}  // namespace espalier
