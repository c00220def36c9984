// A device whose ops go one by one to a queue of its own kind. A new op must be handed on here.
#pragma once

#include "device/device.h"

namespace espalier {

template <typename Queue>
class QueuedDevice : public Device {
 private:
  // Ready for an op of the thread that calls.
  virtual Queue& queue() = 0;

  void do_embed(const Weight& table, ConstView token, View y) override { queue().embed(table, token, y); }
  void do_rms_norm(ConstView x, ConstView w, float eps, View y) override { queue().rms_norm(x, w, eps, y); }
  void do_linear(ConstView x, std::span<const Projection> projections) override { queue().linear(x, projections); }
  void do_rope(View x, ConstView position, ConstView cosine, ConstView sine) override {
    queue().rope(x, position, cosine, sine);
  }
  void do_kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) override {
    queue().kv_write(k, v, slot, kv);
  }
  void do_kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to) override {
    queue().kv_copy(layers, from, to);
  }
  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    queue().attention(q, kv, rows, scale, out);
  }
  void do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    queue().attention_eager(q, kv, rows, scale, out);
  }
  void do_swiglu(ConstView x, View y) override { queue().swiglu(x, y); }
  void do_silu(View x) override { queue().silu(x); }
  void do_add(View x, ConstView y) override { queue().add(x, y); }
  void do_gather_rows(ConstView x, ConstView index, View y) override { queue().gather_rows(x, index, y); }
  void do_argmax(ConstView x, View id) override { queue().argmax(x, id); }
  void do_top_k(ConstView x, View value, View id) override { queue().top_k(x, value, id); }
  void do_log_sum_exp(ConstView x, float scale, View y) override { queue().log_sum_exp(x, scale, y); }
};

}  // namespace espalier
