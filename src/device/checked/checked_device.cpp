#include "device/checked/checked_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "device/checked/memory_ledger.h"
#include "device/checked/operation.h"
#include "device/checked/round_rules.h"
#include "device/checked/row_rules.h"

namespace espalier {
namespace {

// From two upwards: one query row with a mask is silently wrong past key 512 there.
constexpr std::int64_t kAscendBuckets[] = {2, 8, 16, 32, 64};
constexpr MemoryLayout kAscendLayout = {.alignment = 64, .slack = 32};  // R3, and with it R2

// Shares the ledger with its device: it may be freed after the device is gone.
class CheckedBuffer final : public Buffer {
 public:
  CheckedBuffer(std::shared_ptr<MemoryLedger> ledger, MemoryLedger::Region& region)
      : ledger_(std::move(ledger)), region_(region) {}
  ~CheckedBuffer() override { ledger_->release(region_); }
  CheckedBuffer(const CheckedBuffer&) = delete;
  CheckedBuffer& operator=(const CheckedBuffer&) = delete;
  std::byte* data() override { return region_.data(); }
  std::size_t size() const override { return region_.size(); }

 private:
  std::shared_ptr<MemoryLedger> ledger_;
  MemoryLedger::Region& region_;
};

class CheckedWeight final : public Weight {
 public:
  CheckedWeight(const Device& owner, std::unique_ptr<const Weight> inner)
      : Weight(inner->outputs(), inner->inputs()), owner_(owner), inner_(std::move(inner)) {}

  static const Weight& unwrap(const CallSite& site, const Device& owner, const Weight& weight) {
    const auto* checked = dynamic_cast<const CheckedWeight*>(&weight);
    if (checked == nullptr || &checked->owner_ != &owner)
      throw RuleViolation(site, "R8", "the weight was not loaded by this device");
    return *checked->inner_;
  }

 private:
  const Device& owner_;
  std::unique_ptr<const Weight> inner_;
};

// KV memory as a list of slots.
ConstView slots_of(const ConstView& memory) {
  return memory.reshaped({memory.dim(0) * memory.dim(1), memory.dim(2), memory.dim(3)});
}

bool is_slot_written(const MemoryLedger::Region& region, const ConstView& memory, std::int64_t slot) {
  return region.is_written(ranges_of(slots_of(memory).rows(slot, 1))[0]);
}

class RulesOnADevice final : public CheckedDevice {
 public:
  RulesOnADevice(std::unique_ptr<Device> inner, CheckedOptions options)
      : options_(options),
        inner_(std::move(inner)),
        name_(fmt::format("checked{}({})", options.profile == CheckedProfile::ascend ? "=ascend" : "", inner_->name())),
        ledger_(std::make_shared<MemoryLedger>(
            *inner_, MemoryLedger::Options{
                         .slack = options.profile == CheckedProfile::ascend,
                         .quarantine_bytes = options.quarantine_bytes,
                         .finite = options.profile == CheckedProfile::ascend || inner_->multiplies_hidden_keys()})) {}
  ~RulesOnADevice() override { ledger_->close(); }

  std::string_view name() const override { return name_; }
  std::string_view isa() const override { return inner_->isa(); }
  std::span<const std::int64_t> row_buckets() const override {
    const std::span<const std::int64_t> declared = inner_->row_buckets();
    return declared.empty() && ascend() ? std::span<const std::int64_t>(kAscendBuckets) : declared;
  }
  std::span<const std::int64_t> recorded_rows() const override { return inner_->recorded_rows(); }
  MemoryLayout memory_layout() const override { return ascend() ? kAscendLayout : inner_->memory_layout(); }
  bool row_independent() const override { return inner_->row_independent(); }
  std::optional<std::int64_t> free_memory() const override { return inner_->free_memory(); }
  std::string_view float_order() const override { return inner_->float_order(); }
  std::string_view activations() const override { return inner_->activations(); }
  bool prefers_dense_mask() const override { return ascend() || inner_->prefers_dense_mask(); }
  bool needs_dense_mask() const override { return inner_->needs_dense_mask(); }
  bool multiplies_hidden_keys() const override { return inner_->multiplies_hidden_keys(); }
  // An Ascend device has none.
  RoundOps* round_ops() override { return ascend() || inner_->round_ops() == nullptr ? nullptr : &round_ops_; }
  bool is_stand_in() const override { return inner_->is_stand_in(); }
  bool hears_discards() const override { return true; }

  const CheckedCounts& counts() const override { return counts_; }
  void verify() override {
    ledger_->throw_pending();
    ledger_->check_all_guards("verify");
  }

 private:
  bool ascend() const { return options_.profile == CheckedProfile::ascend; }

  Operation operation(std::string_view name) { return Operation(*ledger_, options_, counts_, name); }

  // An op over `rows` rows, which the argument named has. Steps are bound to buckets, and attention always is; other
  // ops between steps may have fewer rows than the smallest holds.
  Operation operation(std::string_view name, std::string_view argument, std::int64_t rows) {
    if (in_step_ || rows >= smallest_bucket()) check_bucket({name, argument}, rows);
    return operation(name);
  }
  std::int64_t smallest_bucket() const { return row_buckets().empty() ? 0 : row_buckets().front(); }
  void check_bucket(const CallSite& site, std::int64_t rows) const {
    const auto buckets = row_buckets();
    if (ascend() && std::ranges::find(buckets, rows) == buckets.end())
      throw RuleViolation(site, "R46", fmt::format("{} rows, which is no bucket of this device", rows));
  }

  void refuse_in_step(std::string_view name, std::string_view argument) const {
    if (in_step_) throw RuleViolation({name, argument}, "R45", "called inside a step");
  }

  std::vector<std::int32_t> indices(const ConstView& view) const { return ledger_->read<std::int32_t>(view); }

  // --- memory -------------------------------------------------------------------------------------------------------
  std::unique_ptr<Buffer> do_allocate(std::size_t bytes) override {
    refuse_in_step("allocate", "buffer");
    ledger_->throw_pending();
    auto buffer = std::make_unique<CheckedBuffer>(ledger_, ledger_->allocate(bytes));
    if (ascend() && reinterpret_cast<std::uintptr_t>(buffer->data()) % 64 != 0)
      throw RuleViolation({"allocate", "buffer"}, "R3", "the inner device's memory does not start on 64 bytes");
    return buffer;
  }

  void do_upload(std::span<const std::byte> from, View to) override {
    refuse_in_step("upload", "to");
    if (from.empty()) return refuse_empty("upload", "to");
    Operation op = operation("upload");
    op.writes("to", to).check_copy();
    op.run([&] { inner_->upload(from, to); });
  }

  void do_download(std::span<const Download> parts) override {
    refuse_in_step("download", "from");
    Operation op = operation("download");
    std::vector<Download> with_elements;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::string argument = parts.size() == 1 ? "from" : fmt::format("parts[{}].from", i);
      if (parts[i].to.empty()) {
        refuse_empty("download", argument);
        continue;
      }
      op.reads(argument, parts[i].from);
      with_elements.push_back(parts[i]);
    }
    if (with_elements.empty()) return;
    ++counts_.synchronisations;
    op.check_copy();
    op.run([&] { inner_->download(with_elements); });
  }

  // An Ascend device has memory of its own.
  std::span<const std::byte> do_lend(ConstView from) override {
    refuse_in_step("lend", "from");
    if (ascend()) return {};
    Operation op = operation("lend");
    op.reads("from", from).check_copy();
    std::span<const std::byte> lent;
    op.run([&] { lent = inner_->lend(from); });
    if (!lent.empty()) ++counts_.synchronisations;
    return lent;
  }

  void refuse_empty(std::string_view name, std::string_view argument) const {
    if (ascend()) throw RuleViolation({name, argument}, "R1", "a tensor without elements");
  }

  void do_discard(View memory) override {
    refuse_in_step("discard", "memory");
    MemoryLedger::Region& region = ledger_->region_of({"discard", "memory"}, memory);
    for (ByteRange range : ranges_of(memory)) ledger_->forget(region, range);
  }

  std::unique_ptr<const Weight> do_load_weight(std::span<const WeightPart> parts) override {
    refuse_in_step("load_weight", "parts");
    return std::make_unique<CheckedWeight>(*this, inner_->load_weight(parts));
  }

  void do_step(Recordings&, const StepKey&, const std::function<void()>& ops) override {
    struct Leave {
      bool& in_step;
      ~Leave() { in_step = false; }
    } leave{in_step_};
    in_step_ = true;
    ops();
  }

  // --- ops ----------------------------------------------------------------------------------------------------------
  void do_embed(const Weight& table, ConstView token, View y) override {
    Operation op = operation("embed", "token", token.dim(0));
    const Weight& inner_table = CheckedWeight::unwrap(op.site("table"), *this, table);
    op.reads("token", token).writes("y", y).check();
    std::int64_t r = 0;
    for (std::int32_t id : indices(token)) check_index(op.site("token", r++), "token", id, table.outputs());
    op.run([&] { inner_->embed(inner_table, token, y); });
  }

  void do_rms_norm(ConstView x, ConstView w, float eps, View y) override {
    Operation op = operation("rms_norm", "x", x.dim(0));
    op.reads("x", x).reads("w", w).writes("y", y).check();
    op.run([&] { inner_->rms_norm(x, w, eps, y); });
  }

  void do_linear(ConstView x, std::span<const Projection> projections) override {
    Operation op = operation("linear", "x", x.dim(0));
    op.reads("x", x);
    std::vector<Projection> inner_projections(projections.begin(), projections.end());
    for (std::size_t i = 0; i < projections.size(); ++i) {
      const std::string prefix = fmt::format("projections[{}].", i);
      inner_projections[i].weight = &CheckedWeight::unwrap(op.site(prefix + "weight"), *this, *projections[i].weight);
      if (!projections[i].bias.empty()) op.reads(prefix + "bias", projections[i].bias);
      op.writes(prefix + "y", projections[i].y);
    }
    op.check();
    count_non_finite_rows(x);
    op.run([&] { inner_->linear(x, inner_projections); });
  }

  void count_non_finite_rows(const ConstView& x) {
    const std::vector<float> values = ledger_->read<float>(x);
    for (auto row = values.begin(); row != values.end(); row += x.dim(1))
      if (!std::all_of(row, row + x.dim(1), [](float value) { return std::isfinite(value); }))
        ++counts_.non_finite_rows;
  }

  void do_rope(View x, ConstView position, ConstView cosine, ConstView sine) override {
    Operation op = operation("rope", "x", x.dim(0));
    op.updates("x", x).reads("position", position).reads_rows("cosine", cosine).reads_rows("sine", sine).check();
    std::int64_t r = 0;
    for (std::int32_t p : indices(position)) {
      check_index(op.site("position", r), "position", p, cosine.dim(0), "R14");
      op.touches_row("cosine", p, r);
      op.touches_row("sine", p, r++);
    }
    op.run([&] { inner_->rope(x, position, cosine, sine); });
  }

  void check_block_size(const Operation& op, const KvViews& kv, std::string_view argument = "kv.k") const {
    const std::int64_t size = kv.k.dim(1);
    if (ascend() && (size % 128 != 0 || size > 512))
      throw RuleViolation(op.site(argument), "R32",
                          fmt::format("blocks of {} slots, expected 128, 256, 384 or 512", size));
  }

  void do_kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) override {
    Operation op = operation("kv_write", "k", k.dim(0));
    check_block_size(op, kv);
    op.reads("k", k).reads("v", v).reads("slot", slot);
    op.writes_rows("kv.k", slots_of(kv.k)).writes_rows("kv.v", slots_of(kv.v)).check();
    const std::vector<std::int32_t> slots = indices(slot);
    check_slots("kv_write", "slot", slots, kv.k.dim(0) * kv.k.dim(1));
    std::int64_t r = 0;
    for (std::int32_t s : slots) {
      op.touches_row("kv.k", s, r);
      op.touches_row("kv.v", s, r++);
    }
    op.run([&] { inner_->kv_write(k, v, slot, kv); });
  }

  void do_kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to) override {
    Operation op = operation("kv_copy", "from", from.dim(0));
    check_block_size(op, layers[0], "layers[0].k");  // the others have its shape
    op.reads("from", from).reads("to", to);
    std::vector<std::string> memories;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      op.writes_rows(memories.emplace_back(fmt::format("layers[{}].k", i)), slots_of(layers[i].k));
      op.writes_rows(memories.emplace_back(fmt::format("layers[{}].v", i)), slots_of(layers[i].v));
    }
    op.check();
    const std::int64_t slots = layers[0].k.dim(0) * layers[0].k.dim(1);
    const std::vector<std::int32_t> sources = indices(from), targets = indices(to);
    check_slots("kv_copy", "to", targets, slots);
    for (std::int64_t r = 0; r < from.dim(0); ++r) {
      const std::int32_t source = sources[static_cast<std::size_t>(r)], target = targets[static_cast<std::size_t>(r)];
      check_index(op.site("from", r), "slot", source, slots, "R12");
      for (const std::string& memory : memories) {
        op.needs_row(memory, source, r);
        op.touches_row(memory, target, r);
      }
    }
    op.run([&] { inner_->kv_copy(layers, from, to); });
  }

  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    Operation op = attention_operation("attention", q, kv, rows, out);
    op.run([&] { inner_->attention(q, kv, rows, scale, out); });
  }

  void do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    Operation op = attention_operation("attention_eager", q, kv, rows, out);
    op.run([&] { inner_->attention_eager(q, kv, rows, scale, out); });
  }

  // Both forms read the same operands under the same rules.
  Operation attention_operation(std::string_view name, const ConstView& q, const KvViews& kv, const RowTables& rows,
                                const View& out) {
    check_bucket({name, "q"}, q.dim(0));
    Operation op = operation(name);
    check_block_size(op, kv);
    op.reads("q", q).reads_rows("kv.k", kv.k).reads_rows("kv.v", kv.v);
    op.reads("rows.slot", rows.slot).reads("rows.sequence", rows.sequence);
    op.reads("rows.begin", rows.begin).reads("rows.end", rows.end);
    op.reads("rows.ancestor_count", rows.ancestor_count).reads("rows.ancestors", rows.ancestors);
    op.reads("rows.blocks", rows.blocks);
    if (!rows.mask.empty()) op.reads("rows.mask", rows.mask);
    op.writes("out", out).check();
    check_mask_width(op, kv, rows);
    check_row_tables(name, host_tables(rows), kv_state(op, kv));
    return op;
  }

  void check_mask_width(const Operation& op, const KvViews& kv, const RowTables& rows) const {
    const std::int64_t positions = rows.blocks.dim(1) * kv.k.dim(1);
    if (ascend() && !rows.mask.empty() && rows.mask.dim(3) < positions)
      throw RuleViolation(op.site("rows.mask"), "R32",
                          fmt::format("{} columns for a block table of {} positions", rows.mask.dim(3), positions));
  }

  HostRowTables host_tables(const RowTables& rows) const {
    return {.ancestor_columns = rows.ancestors.dim(1),
            .sequences = rows.blocks.dim(0),
            .blocks_per_sequence = rows.blocks.dim(1),
            .mask_columns = rows.mask.empty() ? 0 : rows.mask.dim(3),
            .slot = indices(rows.slot),
            .sequence = indices(rows.sequence),
            .begin = indices(rows.begin),
            .end = indices(rows.end),
            .ancestor_count = indices(rows.ancestor_count),
            .ancestors = indices(rows.ancestors),
            .blocks = indices(rows.blocks),
            .mask = rows.mask.empty() ? std::vector<std::uint8_t>() : ledger_->read<std::uint8_t>(rows.mask)};
  }

  KvState kv_state(const Operation& op, const KvViews& kv) const {
    const MemoryLedger::Region& k_region = ledger_->region_of(op.site("kv.k"), kv.k);
    const MemoryLedger::Region& v_region = ledger_->region_of(op.site("kv.v"), kv.v);
    return {.blocks = kv.k.dim(0), .block_size = kv.k.dim(1), .written = [&, kv](std::int64_t slot) {
              return is_slot_written(k_region, kv.k, slot) && is_slot_written(v_region, kv.v, slot);
            }};
  }

  void do_swiglu(ConstView x, View y) override {
    Operation op = operation("swiglu", "x", x.dim(0));
    op.reads("x", x).writes("y", y).check();
    op.run([&] { inner_->swiglu(x, y); });
  }

  void do_silu(View x) override {
    Operation op = operation("silu", "x", x.dim(0));
    op.updates("x", x).check();
    op.run([&] { inner_->silu(x); });
  }

  void do_add(View x, ConstView y) override {
    Operation op = operation("add", "x", x.dim(0));
    op.updates("x", x).reads("y", y).check();
    op.run([&] { inner_->add(x, y); });
  }

  void do_gather_rows(ConstView x, ConstView index, View y) override {
    Operation op = operation("gather_rows", "index", index.dim(0));
    op.reads_rows("x", x).reads("index", index).writes("y", y).check();
    std::int64_t r = 0;
    for (std::int32_t i : indices(index)) {
      check_index(op.site("index", r), "row", i, x.dim(0));
      op.touches_row("x", i, r++);
    }
    op.run([&] { inner_->gather_rows(x, index, y); });
  }

  void do_argmax(ConstView x, View id) override {
    Operation op = operation("argmax", "x", x.dim(0));
    op.reads("x", x).writes("id", id).check();
    op.run([&] { inner_->argmax(x, id); });
  }

  void do_top_k(ConstView x, View value, View id) override {
    Operation op = operation("top_k", "x", x.dim(0));
    op.reads("x", x).writes("value", value).writes("id", id).check();
    op.run([&] { inner_->top_k(x, value, id); });
  }

  void do_log_sum_exp(ConstView x, float scale, View y) override {
    Operation op = operation("log_sum_exp", "x", x.dim(0));
    op.reads("x", x).writes("y", y).check();
    op.run([&] { inner_->log_sum_exp(x, scale, y); });
  }

  // --- round ops ----------------------------------------------------------------------------------------------------
  template <typename Op>
  void declare_operands(const Op& op, Operation& operation) {
    op.operands(op, [&](std::string_view prefix, std::string_view argument, const ConstView& view, Access access) {
      if (view.empty()) return;
      const std::string name = fmt::format("{}{}", prefix, argument);
      switch (access) {
        case Access::read: operation.reads(name, view); break;
        case Access::write: operation.writes(name, view); break;
        case Access::update: operation.updates(name, view); break;
      }
    });
  }

  // The columns of the levels before are read, those of this one written; in the first level all are.
  void declare_operands(const GrowLevel& op, Operation& operation) {
    const std::int64_t width = op.entry.dim(0), known = op.nodes.nodes() - width;
    op.operands(op, [&](std::string_view prefix, std::string_view argument, const ConstView& view, Access access) {
      if (view.empty()) return;
      const std::string name = fmt::format("{}{}", prefix, argument);
      if (access == Access::read) {
        operation.reads(name, view);
      } else if (access == Access::write || op.level == 1) {
        operation.writes(name, view);
      } else {
        operation.reads(name + " before", view.columns(0, known)).writes(name, view.columns(known, width));
      }
    });
  }

  void run_round(const RoundOp& op) {
    Operation declared = operation(espalier::name(op));
    std::visit([&](const auto& one) { declare_operands(one, declared); }, op);
    declared.check();
    check_round_values(op, *ledger_);
    declared.run([&] { inner_->round_ops()->run(op); });
  }

  class CheckedRoundOps final : public RoundOps {
   public:
    explicit CheckedRoundOps(RulesOnADevice& device) : device_(device) {}
    std::int64_t most_nodes() const override { return device_.inner_->round_ops()->most_nodes(); }

   private:
    void do_run(const RoundOp& op) override { device_.run_round(op); }
    RulesOnADevice& device_;
  };

  CheckedOptions options_;
  std::unique_ptr<Device> inner_;
  std::string name_;
  std::shared_ptr<MemoryLedger> ledger_;
  CheckedCounts counts_;
  CheckedRoundOps round_ops_{*this};
  bool in_step_ = false;
};

}  // namespace

std::unique_ptr<CheckedDevice> make_checked_device(std::unique_ptr<Device> inner, CheckedOptions options) {
  return std::make_unique<RulesOnADevice>(std::move(inner), options);
}

}  // namespace espalier
