#include "device/conformance/remote_device.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/round_ops.h"

namespace espalier {
namespace {

constexpr std::ptrdiff_t kDistance = std::ptrdiff_t{1} << 45;

template <typename Pointer>
BasicView<Pointer> real(const BasicView<Pointer>& view) {
  if (view.empty()) return view;
  Pointer data = view.data() - kDistance;
  switch (view.rank()) {
    case 1: return {data, view.type(), {view.dim(0)}};
    case 2: return BasicView<Pointer>(data, view.type(), {view.dim(0), view.row_stride()}).columns(0, view.dim(1));
    case 3: return {data, view.type(), {view.dim(0), view.dim(1), view.dim(2)}};
    default: return {data, view.type(), {view.dim(0), view.dim(1), view.dim(2), view.dim(3)}};
  }
}

KvViews real(const KvViews& kv) {
  return {real(kv.k), real(kv.v)};
}

RowTables real(const RowTables& rows) {
  return {real(rows.token), real(rows.position),       real(rows.slot),      real(rows.sequence), real(rows.begin),
          real(rows.end),   real(rows.ancestor_count), real(rows.ancestors), real(rows.blocks),   real(rows.mask)};
}

// Round ops on memory that looks as if it were elsewhere.
class RemoteRoundOps final : public RoundOps {
 public:
  explicit RemoteRoundOps(RoundOps& inner) : inner_(inner) {}
  std::int64_t most_nodes() const override { return inner_.most_nodes(); }

 private:
  void do_run(const RoundOp& op) override {
    RoundOp here = op;
    std::visit(
        [](auto& one) {
          one.operands(one, [](std::string_view, std::string_view, auto& view, Access) { view = real(view); });
        },
        here);
    inner_.run(here);
  }
  RoundOps& inner_;
};

class RemoteBuffer final : public Buffer {
 public:
  explicit RemoteBuffer(std::unique_ptr<Buffer> inner) : inner_(std::move(inner)) {}
  std::byte* data() override { return inner_->data() + kDistance; }
  std::size_t size() const override { return inner_->size(); }

 private:
  std::unique_ptr<Buffer> inner_;
};

class RemoteDevice final : public Device {
 public:
  RemoteDevice(std::unique_ptr<Device> inner, AfterOp after_op)
      : inner_(std::move(inner)), after_op_(std::move(after_op)), name_("remote(" + std::string(inner_->name()) + ")") {
    if (inner_->round_ops() != nullptr) round_ops_.emplace(*inner_->round_ops());
  }

  std::string_view name() const override { return name_; }
  std::string_view float_order() const override { return inner_->float_order(); }
  std::string_view activations() const override { return inner_->activations(); }
  RoundOps* round_ops() override { return round_ops_ ? &*round_ops_ : nullptr; }

 private:
  void done(std::string_view op, const View& output) {
    if (after_op_) after_op_(op, real(output));
  }

  std::unique_ptr<Buffer> do_allocate(std::size_t bytes) override {
    return std::make_unique<RemoteBuffer>(inner_->allocate(bytes));
  }
  void do_upload(std::span<const std::byte> from, View to) override { inner_->upload(from, real(to)); }
  void do_download(std::span<const Download> parts) override {
    std::vector<Download> here;
    for (const auto& [from, to] : parts) here.push_back({real(from), to});
    inner_->download(here);
  }
  std::unique_ptr<const Weight> do_load_weight(std::span<const WeightPart> parts) override {
    return inner_->load_weight(parts);
  }
  void do_embed(const Weight& table, ConstView token, View y) override {
    inner_->embed(table, real(token), real(y));
    done("embed", y);
  }
  void do_rms_norm(ConstView x, ConstView w, float eps, View y) override {
    inner_->rms_norm(real(x), real(w), eps, real(y));
    done("rms_norm", y);
  }
  void do_linear(ConstView x, std::span<const Projection> projections) override {
    std::vector<Projection> here;
    for (const Projection& p : projections) here.push_back({p.weight, real(p.bias), real(p.y)});
    inner_->linear(real(x), here);
    done("linear", projections[0].y);
  }
  void do_rope(View x, ConstView position, ConstView cosine, ConstView sine) override {
    inner_->rope(real(x), real(position), real(cosine), real(sine));
    done("rope", x);
  }
  void do_kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) override {
    inner_->kv_write(real(k), real(v), real(slot), real(kv));
    done("kv_write", kv.k);
  }
  void do_kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to) override {
    std::vector<KvViews> here;
    for (const KvViews& kv : layers) here.push_back(real(kv));
    inner_->kv_copy(here, real(from), real(to));
    done("kv_copy", layers[0].k);
  }
  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    inner_->attention(real(q), real(kv), real(rows), scale, real(out));
    done("attention", out);
  }
  void do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    inner_->attention_eager(real(q), real(kv), real(rows), scale, real(out));
    done("attention_eager", out);
  }
  void do_swiglu(ConstView x, View y) override {
    inner_->swiglu(real(x), real(y));
    done("swiglu", y);
  }
  void do_silu(View x) override {
    inner_->silu(real(x));
    done("silu", x);
  }
  void do_add(View x, ConstView y) override {
    inner_->add(real(x), real(y));
    done("add", x);
  }
  void do_gather_rows(ConstView x, ConstView index, View y) override {
    inner_->gather_rows(real(x), real(index), real(y));
    done("gather_rows", y);
  }
  void do_argmax(ConstView x, View id) override {
    inner_->argmax(real(x), real(id));
    done("argmax", id);
  }
  void do_top_k(ConstView x, View value, View id) override {
    inner_->top_k(real(x), real(value), real(id));
    done("top_k", value);
  }
  void do_log_sum_exp(ConstView x, float scale, View y) override {
    inner_->log_sum_exp(real(x), scale, real(y));
    done("log_sum_exp", y);
  }

  std::unique_ptr<Device> inner_;
  AfterOp after_op_;
  std::string name_;
  std::optional<RemoteRoundOps> round_ops_;
};

}  // namespace

std::unique_ptr<Device> make_remote_device(std::unique_ptr<Device> inner, AfterOp after_op) {
  return std::make_unique<RemoteDevice>(std::move(inner), std::move(after_op));
}

}  // namespace espalier
