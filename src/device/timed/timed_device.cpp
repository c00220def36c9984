#include "device/timed/timed_device.h"

#include <chrono>

namespace espalier {
namespace {

class Timed final : public TimedDevice {
 public:
  explicit Timed(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  std::string_view isa() const override { return inner_->isa(); }
  std::span<const std::int64_t> row_buckets() const override { return inner_->row_buckets(); }
  bool row_independent() const override { return inner_->row_independent(); }
  bool prefers_dense_mask() const override { return inner_->prefers_dense_mask(); }

  void start() override {
    seconds_ = {};
    running_ = true;
  }
  OpSeconds stop() override {
    running_ = false;
    return seconds_;
  }

 private:
  template <typename Op>
  void timed(double OpSeconds::*kind, const Op& op) {
    if (!running_) return op();
    const auto begin = std::chrono::steady_clock::now();
    op();
    seconds_.*kind += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  template <typename Op>
  void timed_other(const Op& op) {
    timed(&OpSeconds::other, op);
  }

  std::unique_ptr<Buffer> do_allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void do_upload(std::span<const std::byte> from, View to) override { inner_->upload(from, to); }
  void do_download(ConstView from, std::span<std::byte> to) override { inner_->download(from, to); }
  void do_discard(View memory) override { inner_->discard(memory); }
  std::unique_ptr<const Weight> do_load_weight(std::span<const WeightPart> parts) override {
    return inner_->load_weight(parts);
  }
  void do_step(const StepKey& key, const std::function<void()>& ops) override { inner_->step(key, ops); }

  void do_linear(ConstView x, std::span<const Projection> projections) override {
    timed(&OpSeconds::linear, [&] { inner_->linear(x, projections); });
  }
  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    timed(&OpSeconds::attention, [&] { inner_->attention(q, kv, rows, scale, out); });
  }
  void do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    timed(&OpSeconds::attention, [&] { inner_->attention_eager(q, kv, rows, scale, out); });
  }
  void do_embed(const Weight& table, ConstView token, View y) override {
    timed_other([&] { inner_->embed(table, token, y); });
  }
  void do_rms_norm(ConstView x, ConstView w, float eps, View y) override {
    timed_other([&] { inner_->rms_norm(x, w, eps, y); });
  }
  void do_rope(View x, ConstView position, ConstView cosine, ConstView sine) override {
    timed_other([&] { inner_->rope(x, position, cosine, sine); });
  }
  void do_kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) override {
    timed_other([&] { inner_->kv_write(k, v, slot, kv); });
  }
  void do_kv_copy(const KvViews& kv, ConstView from, ConstView to) override {
    timed_other([&] { inner_->kv_copy(kv, from, to); });
  }
  void do_swiglu(ConstView x, View y) override {
    timed_other([&] { inner_->swiglu(x, y); });
  }
  void do_silu(View x) override {
    timed_other([&] { inner_->silu(x); });
  }
  void do_add(View x, ConstView y) override {
    timed_other([&] { inner_->add(x, y); });
  }
  void do_gather_rows(ConstView x, ConstView index, View y) override {
    timed_other([&] { inner_->gather_rows(x, index, y); });
  }
  void do_argmax(ConstView x, View id) override {
    timed_other([&] { inner_->argmax(x, id); });
  }
  void do_top_k(ConstView x, View value, View id) override {
    timed_other([&] { inner_->top_k(x, value, id); });
  }
  void do_log_sum_exp(ConstView x, float scale, View y) override {
    timed_other([&] { inner_->log_sum_exp(x, scale, y); });
  }

  std::unique_ptr<Device> inner_;
  OpSeconds seconds_;
  bool running_ = false;
};

}  // namespace

std::unique_ptr<TimedDevice> make_timed_device(std::unique_ptr<Device> inner) {
  return std::make_unique<Timed>(std::move(inner));
}

}  // namespace espalier
