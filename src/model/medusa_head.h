// Medusa draft heads (arXiv 2401.10774): small residual blocks on the teacher's final hidden state. Head k guesses the
// token k + 2 places after the position of that state, whatever stands between; docs/drafters.md describes the layouts.
//
//   x = hidden;  x = x + silu(W[k,r] x + b[k,r]) for each block r;  logits[k] = U[k] x
//
// Never changes after construction; whatever changes is passed in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "model/head_files.h"
#include "model/transformer.h"

namespace espalier {

class MedusaLayout;
class MedusaWorkspace;

class MedusaHead {
 public:
  // The teacher gives the output matrix where the heads have none (layout B); device and teacher must outlive this.
  // Throws InputError for every file that would be computed wrongly.
  MedusaHead(const Transformer& teacher, const HeadFiles& files, const HeadOptions& options = {});
  ~MedusaHead();
  MedusaHead(MedusaHead&&) noexcept;
  MedusaHead& operator=(MedusaHead&&) noexcept;

  Device& device() const { return *device_; }
  std::int64_t hidden() const { return hidden_; }  // of the teacher
  std::int64_t heads() const { return static_cast<std::int64_t>(heads_.size()); }
  std::int64_t draft_vocabulary() const { return static_cast<std::int64_t>(target_ids_.size()); }  // rows of U
  // [draft vocabulary]: the teacher's id of every row of U.
  const std::vector<std::int32_t>& target_ids() const { return target_ids_; }
  float logit_scale() const { return logit_scale_; }  // above 0; multiplies the logits; they come without it

  // All heads on the hidden states of some rows. hidden: f32 [n, teacher hidden], the state after the final norm; rows:
  // which of them, no more than the workspace has room for. Returns f32 [.., draft vocabulary], strided where the
  // device's alignment asks for it: row k * stride + i is head k on rows[i], where stride is rows_of_step(rows.size());
  // the others hold numbers nobody asked for. Valid until the next call.
  ConstView forward(ConstView hidden, std::span<const std::int32_t> rows, MedusaWorkspace& workspace) const;
  // The same of rows in a list on the device, i32 [heads() * n]: the n rows, once for each head. May be called inside
  // of a step; for devices without row buckets.
  ConstView forward(ConstView hidden, ConstView rows, MedusaWorkspace& workspace) const;

 private:
  friend class MedusaWorkspace;
  struct Block {
    std::unique_ptr<const Weight> weight;  // W: [hidden, hidden]
    Tensor bias;                           // b: [hidden]; empty: none, which is zeros
  };
  struct Head {
    std::vector<Block> blocks;             // as many in every head
    std::unique_ptr<const Weight> output;  // U: [draft vocabulary, hidden]; null: the shared one
  };
  struct Buffers;

  void load_outputs(WeightReader& read, const MedusaLayout& layout, std::int64_t rows, bool shared,
                    const std::optional<std::vector<std::int32_t>>& kept);
  Head load_blocks(WeightReader& read, const TensorSource& source, const MedusaLayout& layout, std::int64_t k) const;
  // Rows of all heads, each of which has `stride` of them.
  std::int64_t padded_rows(std::int64_t stride) const;
  ConstView run(ConstView hidden, ConstView index, std::int64_t stride, Buffers& buffers) const;
  void run_blocks(std::int64_t stride, Buffers& buffers) const;
  void run_outputs(std::int64_t stride, Buffers& buffers) const;

  Device* device_;
  std::int64_t hidden_;
  std::vector<Head> heads_;
  std::unique_ptr<const Weight> own_shared_output_;  // layout D with one matrix for all
  const Weight* shared_output_ = nullptr;            // that one, or the teacher's; null: each head has its own
  std::vector<std::int32_t> target_ids_;
  float logit_scale_ = 1;
};

// The buffers of one call, allocated once, and what the device recorded of it.
class MedusaWorkspace {
 public:
  // For calls with up to `rows` hidden states.
  explicit MedusaWorkspace(const MedusaHead& head, std::int64_t rows = 1);
  ~MedusaWorkspace();
  MedusaWorkspace(MedusaWorkspace&&) noexcept;
  MedusaWorkspace& operator=(MedusaWorkspace&&) noexcept;

 private:
  friend class MedusaHead;
  std::unique_ptr<MedusaHead::Buffers> buffers_;
};

}  // namespace espalier
