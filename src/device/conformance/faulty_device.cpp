#include "device/conformance/faulty_device.h"

#include <utility>

#include "base/error.h"

namespace espalier {

FaultyDevice::FaultyDevice(std::unique_ptr<Device> inner)
    : inner_(std::move(inner)), name_("faulty(" + std::string(inner_->name()) + ")") {}

void FaultyDevice::may_fail(std::string_view call) {
  if (calls_left_ > 0 && --calls_left_ == 0) device_error("{}: failed as told", call);
}

std::unique_ptr<Buffer> FaultyDevice::do_allocate(std::size_t bytes) {
  may_fail("allocate");
  return inner_->allocate(bytes);
}

void FaultyDevice::do_upload(std::span<const std::byte> from, View to) {
  may_fail("upload");
  inner_->upload(from, to);
  ++uploads_;
}

void FaultyDevice::do_download(ConstView from, std::span<std::byte> to) {
  may_fail("download");
  inner_->download(from, to);
}

void FaultyDevice::do_discard(View memory) {
  inner_->discard(memory);
}

std::unique_ptr<const Weight> FaultyDevice::do_load_weight(std::span<const WeightPart> parts) {
  may_fail("load_weight");
  return inner_->load_weight(parts);
}

void FaultyDevice::do_step(const StepKey& key, const std::function<void()>& ops) {
  inner_->step(key, ops);
}

void FaultyDevice::do_embed(const Weight& table, ConstView token, View y) {
  may_fail("embed");
  inner_->embed(table, token, y);
}

void FaultyDevice::do_rms_norm(ConstView x, ConstView w, float eps, View y) {
  may_fail("rms_norm");
  inner_->rms_norm(x, w, eps, y);
}

void FaultyDevice::do_linear(ConstView x, std::span<const Projection> projections) {
  may_fail("linear");
  inner_->linear(x, projections);
}

void FaultyDevice::do_rope(View x, ConstView position, ConstView cosine, ConstView sine) {
  may_fail("rope");
  inner_->rope(x, position, cosine, sine);
}

void FaultyDevice::do_kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) {
  may_fail("kv_write");
  inner_->kv_write(k, v, slot, kv);
}

void FaultyDevice::do_kv_copy(const KvViews& kv, ConstView from, ConstView to) {
  may_fail("kv_copy");
  inner_->kv_copy(kv, from, to);
  ++kv_copies_;
}

void FaultyDevice::do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  may_fail("attention");
  inner_->attention(q, kv, rows, scale, out);
}

void FaultyDevice::do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  may_fail("attention_eager");
  inner_->attention_eager(q, kv, rows, scale, out);
}

void FaultyDevice::do_swiglu(ConstView x, View y) {
  may_fail("swiglu");
  inner_->swiglu(x, y);
}

void FaultyDevice::do_silu(View x) {
  may_fail("silu");
  inner_->silu(x);
}

void FaultyDevice::do_add(View x, ConstView y) {
  may_fail("add");
  inner_->add(x, y);
}

void FaultyDevice::do_gather_rows(ConstView x, ConstView index, View y) {
  may_fail("gather_rows");
  inner_->gather_rows(x, index, y);
}

void FaultyDevice::do_argmax(ConstView x, View id) {
  may_fail("argmax");
  inner_->argmax(x, id);
}

void FaultyDevice::do_top_k(ConstView x, View value, View id) {
  may_fail("top_k");
  inner_->top_k(x, value, id);
}

void FaultyDevice::do_log_sum_exp(ConstView x, float scale, View y) {
  may_fail("log_sum_exp");
  inner_->log_sum_exp(x, scale, y);
}

}  // namespace espalier
