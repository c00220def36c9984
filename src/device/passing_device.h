// A device that passes everything on to another one: the beginning of devices that look at, or change, one op. A
// new op must be passed on here.
#pragma once

#include <functional>
#include <memory>

#include "device/device.h"
#include "device/round_ops.h"

namespace espalier {

class PassingDevice : public Device {
 public:
  // The inner device must outlive this.
  explicit PassingDevice(Device& inner) : inner_(&inner) {}
  PassingDevice(const PassingDevice&) = delete;  // its round ops point to it
  PassingDevice& operator=(const PassingDevice&) = delete;

  std::string_view name() const override { return inner_->name(); }
  std::string_view isa() const override { return inner_->isa(); }
  std::span<const std::int64_t> row_buckets() const override { return inner_->row_buckets(); }
  std::span<const std::int64_t> recorded_rows() const override { return inner_->recorded_rows(); }
  MemoryLayout memory_layout() const override { return inner_->memory_layout(); }
  bool row_independent() const override { return inner_->row_independent(); }
  std::string_view float_order() const override { return inner_->float_order(); }
  std::string_view activations() const override { return inner_->activations(); }
  std::optional<std::int64_t> free_memory() const override { return inner_->free_memory(); }
  bool prefers_dense_mask() const override { return inner_->prefers_dense_mask(); }
  bool needs_dense_mask() const override { return inner_->needs_dense_mask(); }
  bool multiplies_hidden_keys() const override { return inner_->multiplies_hidden_keys(); }
  RoundOps* round_ops() override { return inner_->round_ops() == nullptr ? nullptr : &round_ops_; }
  bool is_stand_in() const override { return inner_->is_stand_in(); }
  bool hears_discards() const override { return inner_->hears_discards(); }

 protected:
  Device& inner() const { return *inner_; }

 private:
  // Called with the name of each call that is about to be passed on, but for discards and steps. If it throws, the
  // inner device hears nothing of that call.
  virtual void before(std::string_view /*call*/) {}
  Device& inner_for(std::string_view call) {
    before(call);
    return *inner_;
  }

  std::unique_ptr<Buffer> do_allocate(std::size_t bytes) override { return inner_for("allocate").allocate(bytes); }
  void do_upload(std::span<const std::byte> from, View to) override { inner_for("upload").upload(from, to); }
  void do_download(std::span<const Download> parts) override { inner_for("download").download(parts); }
  std::span<const std::byte> do_lend(ConstView from) override { return inner_for("lend").lend(from); }
  void do_discard(View memory) override { inner_->discard(memory); }
  std::unique_ptr<const Weight> do_load_weight(std::span<const WeightPart> parts) override {
    return inner_for("load_weight").load_weight(parts);
  }
  // Never recorded: whoever overrides an op may do inside what a recording would not repeat.
  void do_step(Recordings&, const StepKey&, const std::function<void()>& ops) override { ops(); }
  void do_embed(const Weight& table, ConstView token, View y) override { inner_for("embed").embed(table, token, y); }
  void do_rms_norm(ConstView x, ConstView w, float eps, View y) override {
    inner_for("rms_norm").rms_norm(x, w, eps, y);
  }
  void do_linear(ConstView x, std::span<const Projection> projections) override {
    inner_for("linear").linear(x, projections);
  }
  void do_rope(View x, ConstView position, ConstView cosine, ConstView sine) override {
    inner_for("rope").rope(x, position, cosine, sine);
  }
  void do_kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) override {
    inner_for("kv_write").kv_write(k, v, slot, kv);
  }
  void do_kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to) override {
    inner_for("kv_copy").kv_copy(layers, from, to);
  }
  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    inner_for("attention").attention(q, kv, rows, scale, out);
  }
  void do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    inner_for("attention_eager").attention_eager(q, kv, rows, scale, out);
  }
  void do_swiglu(ConstView x, View y) override { inner_for("swiglu").swiglu(x, y); }
  void do_silu(View x) override { inner_for("silu").silu(x); }
  void do_add(View x, ConstView y) override { inner_for("add").add(x, y); }
  void do_gather_rows(ConstView x, ConstView index, View y) override {
    inner_for("gather_rows").gather_rows(x, index, y);
  }
  void do_argmax(ConstView x, View id) override { inner_for("argmax").argmax(x, id); }
  void do_top_k(ConstView x, View value, View id) override { inner_for("top_k").top_k(x, value, id); }
  void do_log_sum_exp(ConstView x, float scale, View y) override { inner_for("log_sum_exp").log_sum_exp(x, scale, y); }

  // Whoever looks at ops of rounds overrides this.
  virtual void do_round(const RoundOp& op) { inner_for(espalier::name(op)).round_ops()->run(op); }

  class PassedRoundOps final : public RoundOps {
   public:
    explicit PassedRoundOps(PassingDevice& device) : device_(device) {}
    std::int64_t most_nodes() const override { return device_.inner_->round_ops()->most_nodes(); }

   private:
    void do_run(const RoundOp& op) override { device_.do_round(op); }
    PassingDevice& device_;
  };

  Device* inner_;
  PassedRoundOps round_ops_{*this};
};

}  // namespace espalier
