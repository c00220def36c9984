// The ops of device.h as sequences of aclnn operators in the stream of a card (docs/ascend.md has the table). Scratch
// comes from arenas: it is free again when the op's operators are in the stream, whose order keeps them apart. What the
// layers of a step share, the rows of the rotation tables that its positions choose, stays until the step ends.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/ascend/card.h"
#include "device/ascend/descriptors.h"
#include "device/ascend/errors.h"
#include "device/ascend/memory.h"
#include "device/ascend/staging.h"
#include "device/ascend/weights.h"
#include "device/device.h"

namespace espalier::ascend {

// What was found out about a card before the first op (probes.h).
struct Abilities {
  bool f32_from_f16 = true;  // a product of 16-bit matrices can be written unrounded
  bool f32_from_bf16 = true;
  bool fused_f16 = true;  // the fused attention gives the eager one's results over keys of this type
  bool fused_bf16 = true;
};

// The newest form of the fused attention that this chip is documented to have; 0: none.
int choose_fused_version(const Api& api, const Chip& chip);

// Numbers that operators compare with, in the NPU's memory. Like an arena it grows and keeps what it had.
class ConstantTable {
 public:
  // value: of an entry    stride: bytes from one to the next
  ConstantTable(std::shared_ptr<Card> card, Staging& staging, std::int64_t stride, std::int32_t (*value)(std::int64_t))
      : card_(std::move(card)), staging_(&staging), stride_(stride), value_(value) {}
  // Where entry i lies; those before it lie before it.
  const std::byte* entry(std::int64_t i);

 private:
  std::shared_ptr<Card> card_;
  Staging* staging_;
  std::int64_t stride_;
  std::int32_t (*value_)(std::int64_t);
  std::int64_t entries_ = 0;
  std::vector<std::unique_ptr<Memory>> all_;
};

class OpQueue {
 public:
  // arena_bytes: what its arenas begin with
  OpQueue(std::shared_ptr<Card> card, Staging& staging, std::size_t arena_bytes);

  Abilities& abilities() { return abilities_; }
  const Abilities& abilities() const { return abilities_; }
  // Which version of the fused attention this card has; 0: none.
  int fused_version() const { return fused_version_; }

  // Around the ops of a step. sequences: rows of its block tables, the last of which is that of padding rows; 0: not
  // known, all of them count
  void begin_step(std::int64_t sequences);
  void end_step();

  void embed(const Weight& table, ConstView token, View y);
  void rms_norm(ConstView x, ConstView w, float eps, View y);
  void linear(ConstView x, std::span<const Projection> projections);
  void rope(View x, ConstView position, ConstView cosine, ConstView sine);
  void kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv);
  void kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to);
  void attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out);
  void attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out);
  void swiglu(ConstView x, View y);
  void silu(View x);
  void add(View x, ConstView y);
  void gather_rows(ConstView x, ConstView index, View y);
  void argmax(ConstView x, View id);
  void top_k(ConstView x, View value, View id);
  void log_sum_exp(ConstView x, float scale, View y);

 private:
  struct AttentionCall {
    ConstView q;
    const KvViews& kv;
    const RowTables& rows;
    float scale;
  };
  // Full-width rows of the rotation tables for the rows of a step: [rows, 1, dim] each.
  struct Angles {
    ConstView position, cosine, sine;
    Layout cosines, sines;
  };

  const Api& api() const { return card_->api(); }
  // The first call of every op: what the op before it took is free again.
  void begin_op() { scratch_.give_back(); }
  Layout scratch(AclType type, std::initializer_list<std::int64_t> sizes);
  // Both phases of an operator.
  template <typename... Parameters, typename... Arguments>
  void run(const Op<Parameters...>& op, const Arguments&... arguments);
  std::byte* workspace(std::uint64_t bytes, AclExecutor* executor);

  void cast(const Layout& from, const Layout& to);
  void copy(const Layout& from, const Layout& to);
  // x as dense rows of this type, in place where it is that already.
  Layout dense_as(const Layout& x, AclType type);
  // Dense rows for an operator to write, and their way to y where that is strided.
  template <typename Write>
  void write_dense(const View& y, const Write& write);
  void multiply(const Layout& x, const AscendWeight& weight, const Layout& y);

  Angles angles(ConstView position, ConstView cosine, ConstView sine);
  Layout chosen_angles(ConstView position, ConstView table);

  bool can_fuse(const AttentionCall& call) const;
  std::int64_t real_sequences(const RowTables& rows) const;
  template <typename Attend>
  void attend_by_sequence(const AttentionCall& call, View out, const Attend& attend);
  Layout block_table(const RowTables& rows, std::int64_t sequence);
  void fused(const AttentionCall& call, std::int64_t sequence, const Layout& out);
  void eager(const AttentionCall& call, std::int64_t sequence, const Layout& out);
  Layout gathered_heads(const View& memory, const Layout& blocks, std::int64_t keys);
  void hide_values(const Layout& values, const Layout& mask);
  void run_fused(const AttentionCall& call, const Layout& q, std::int64_t sequence, const Layout& out);

  // NaN as minus infinity, dense.
  Layout without_nan(const Layout& x);
  // 0, 1, ..., n - 1 as i32 [n].
  Layout counting(std::int64_t n);
  // One number, as i32 [1].
  Layout number(std::int64_t n);
  Layout largest_number();

  std::shared_ptr<Card> card_;
  Arena workspace_, scratch_, step_scratch_;
  ConstantTable counting_, numbers_;
  int fused_version_ = 0;
  Abilities abilities_;
  bool in_step_ = false;
  std::int64_t step_sequences_ = 0;
  std::vector<Angles> angles_;
};

}  // namespace espalier::ascend
