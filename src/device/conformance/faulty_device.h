// A device that fails when it is told to: a chosen call throws DeviceError and does nothing. All else is the inner
// device's. For tests of what a failure leaves behind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/device.h"

namespace espalier {

class FaultyDevice final : public Device {
 public:
  explicit FaultyDevice(std::unique_ptr<Device> inner);

  // The n-th call from now, n >= 1, throws; the calls behind it work again. Calls are allocations, uploads, downloads,
  // weights and ops; discarding never fails.
  void fail_at(std::int64_t n) { calls_left_ = n; }
  void never_fail() { calls_left_ = 0; }
  bool will_fail() const { return calls_left_ > 0; }

  std::int64_t uploads() const { return uploads_; }      // that worked
  std::int64_t kv_copies() const { return kv_copies_; }  // likewise

  std::string_view name() const override { return name_; }
  std::span<const std::int64_t> row_buckets() const override { return inner_->row_buckets(); }
  bool row_independent() const override { return inner_->row_independent(); }
  bool prefers_dense_mask() const override { return inner_->prefers_dense_mask(); }

 private:
  void may_fail(std::string_view call);

  std::unique_ptr<Buffer> do_allocate(std::size_t bytes) override;
  void do_upload(std::span<const std::byte> from, View to) override;
  void do_download(ConstView from, std::span<std::byte> to) override;
  void do_discard(View memory) override;
  std::unique_ptr<const Weight> do_load_weight(std::span<const WeightPart> parts) override;
  void do_step(const StepKey& key, const std::function<void()>& ops) override;
  void do_embed(const Weight& table, ConstView token, View y) override;
  void do_rms_norm(ConstView x, ConstView w, float eps, View y) override;
  void do_linear(ConstView x, std::span<const Projection> projections) override;
  void do_rope(View x, ConstView position, ConstView cosine, ConstView sine) override;
  void do_kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) override;
  void do_kv_copy(const KvViews& kv, ConstView from, ConstView to) override;
  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override;
  void do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override;
  void do_swiglu(ConstView x, View y) override;
  void do_silu(View x) override;
  void do_add(View x, ConstView y) override;
  void do_gather_rows(ConstView x, ConstView index, View y) override;
  void do_argmax(ConstView x, View id) override;
  void do_top_k(ConstView x, View value, View id) override;
  void do_log_sum_exp(ConstView x, float scale, View y) override;

  std::unique_ptr<Device> inner_;
  std::string name_;
  std::int64_t calls_left_ = 0;  // 0: it works
  std::int64_t uploads_ = 0;
  std::int64_t kv_copies_ = 0;
};

}  // namespace espalier
