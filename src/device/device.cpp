#include "device/device.h"

#include <algorithm>

#include "base/error.h"
#include "device/expected_view.h"

namespace espalier {
namespace {

void expect_kv(std::string_view op, const KvViews& kv, std::int64_t kv_heads, std::int64_t dim) {
  check(is_float(kv.k.type()), "{}: KV memory of type {}, expected f16, bf16 or f32", op, name(kv.k.type()));
  expect(op, "kv.k", kv.k, kv.k.type(), {kAny, kAny, kv_heads, dim});
  expect(op, "kv.v", kv.v, kv.k.type(), {kv.k.dim(0), kv.k.dim(1), kv_heads, dim});
}

void expect_row_tables(std::string_view op, const RowTables& rows, std::int64_t count) {
  expect(op, "rows.slot", rows.slot, DType::i32, {count});
  expect(op, "rows.sequence", rows.sequence, DType::i32, {count});
  expect(op, "rows.begin", rows.begin, DType::i32, {count});
  expect(op, "rows.end", rows.end, DType::i32, {count});
  expect(op, "rows.ancestor_count", rows.ancestor_count, DType::i32, {count});
  expect(op, "rows.ancestors", rows.ancestors, DType::i32, {count, kAny});
  expect(op, "rows.blocks", rows.blocks, DType::i32, {kAny, kAny});
  if (!rows.mask.empty()) expect(op, "rows.mask", rows.mask, DType::u8, {1, 1, count, kAny});
}

void expect_attention(std::string_view op, const ConstView& q, const KvViews& kv, const RowTables& rows,
                      const View& out) {
  expect(op, "q", q, DType::f32, {kAny, kAny, kAny});
  expect(op, "out", out, DType::f32, {q.dim(0), q.dim(1), q.dim(2)});
  expect_kv(op, kv, kv.k.rank() == 4 ? kv.k.dim(2) : 0, q.dim(2));
  check(q.dim(1) % kv.k.dim(2) == 0, "{}: {} query heads over {} kv heads", op, q.dim(1), kv.k.dim(2));
  expect_row_tables(op, rows, q.dim(0));
}

constexpr std::int64_t kElementBytes = 4;

// `bytes` rounded up to what the device wants things to start on.
std::int64_t aligned_elements(const Device& device, std::int64_t bytes) {
  const std::int64_t step = device.memory_layout().alignment;
  return (bytes + step - 1) / step * step / kElementBytes;
}

}  // namespace

std::unique_ptr<Buffer> Device::allocate(std::size_t bytes) {
  check(bytes >= 1, "allocate: 0 bytes");
  return do_allocate(bytes);
}

Tensor Device::tensor(DType type, std::initializer_list<std::int64_t> shape) {
  const View shaped(nullptr, type, shape);
  std::unique_ptr<Buffer> buffer = allocate(static_cast<std::size_t>(shaped.bytes_spanned()));
  std::byte* data = buffer->data();
  return {std::move(buffer), View(data, type, shape)};
}

void Device::upload(std::span<const std::byte> from, View to) {
  check(to.dense() && to.bytes_spanned() == static_cast<std::int64_t>(from.size()), "upload: {} bytes into {}",
        from.size(), to);
  do_upload(from, to);
}

void Device::download(std::span<const Download> parts) {
  check(!parts.empty(), "download: no parts");
  for (const auto& [from, to] : parts)
    check(from.dense() && from.bytes_spanned() == static_cast<std::int64_t>(to.size()), "download: {} into {} bytes",
          from, to.size());
  do_download(parts);
}

void Device::download(ConstView from, std::span<std::byte> to) {
  const Download part{from, to};
  download(std::span(&part, 1));
}

std::span<const std::byte> Device::lend(ConstView from) {
  check(from.dense() && from.elements() >= 1, "lend: {}, expected a dense view with elements", from);
  return do_lend(from);
}

std::unique_ptr<const Weight> Device::load_weight(std::span<const WeightPart> parts) {
  check(!parts.empty(), "load_weight: no parts");
  for (const WeightPart& part : parts) {
    check(part.outputs >= 1 && part.inputs >= 1 && part.inputs == parts[0].inputs,
          "load_weight: part [{}, {}], expected [>= 1, {}]", part.outputs, part.inputs, parts[0].inputs);
    check(is_float(part.type) || is_block_quantised(part.type), "load_weight: type {}", traits(part.type).name);
    const std::int64_t expected = part.outputs * row_bytes(part.type, part.inputs);
    check(static_cast<std::int64_t>(part.bytes.size()) == expected, "load_weight: {} bytes, expected {}",
          part.bytes.size(), expected);
  }
  return do_load_weight(parts);
}

void Device::step(Recordings& recordings, const StepKey& key, const std::function<void()>& ops) {
  if (in_step_) return ops();
  struct Inside {
    explicit Inside(bool& flag) : flag_(flag) { flag_ = true; }
    ~Inside() { flag_ = false; }
    bool& flag_;
  } const inside(in_step_);
  do_step(recordings, key, ops);
}

void Device::embed(const Weight& table, ConstView token, View y) {
  expect("embed", "token", token, DType::i32, {kAny});
  expect("embed", "y", y, DType::f32, {token.dim(0), table.inputs()});
  do_embed(table, token, y);
}

void Device::rms_norm(ConstView x, ConstView w, float eps, View y) {
  if (x.rank() == 3) {
    expect("rms_norm", "x", x, DType::f32, {kAny, kAny, kAny});
    expect("rms_norm", "y", y, DType::f32, {x.dim(0), x.dim(1), x.dim(2)});
  } else {
    expect("rms_norm", "x", x, DType::f32, {kAny, kAny});
    expect("rms_norm", "y", y, DType::f32, {x.dim(0), x.dim(1)});
  }
  expect("rms_norm", "w", w, DType::f32, {x.dim(x.rank() - 1)});
  do_rms_norm(x, w, eps, y);
}

void Device::linear(ConstView x, std::span<const Projection> projections) {
  expect("linear", "x", x, DType::f32, {kAny, kAny}, true);
  check(!projections.empty(), "linear: no projections");
  for (const Projection& p : projections) {
    check(p.weight != nullptr && p.weight->inputs() == x.dim(1), "linear: weight with {} inputs for x {}",
          p.weight ? p.weight->inputs() : 0, x);
    expect("linear", "y", p.y, DType::f32, {x.dim(0), p.weight->outputs()}, true);
    if (!p.bias.empty()) expect("linear", "bias", p.bias, DType::f32, {p.weight->outputs()});
  }
  do_linear(x, projections);
}

void Device::rope(View x, ConstView position, ConstView cosine, ConstView sine) {
  expect("rope", "x", x, DType::f32, {kAny, kAny, kAny});
  check(x.dim(2) % 2 == 0, "rope: head size {} is odd", x.dim(2));
  expect("rope", "position", position, DType::i32, {x.dim(0)});
  expect("rope", "cosine", cosine, DType::f32, {kAny, x.dim(2) / 2});
  expect("rope", "sine", sine, DType::f32, {cosine.dim(0), x.dim(2) / 2});
  do_rope(x, position, cosine, sine);
}

void Device::kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) {
  expect("kv_write", "k", k, DType::f32, {kAny, kAny, kAny});
  expect("kv_write", "v", v, DType::f32, {k.dim(0), k.dim(1), k.dim(2)});
  expect("kv_write", "slot", slot, DType::i32, {k.dim(0)});
  expect_kv("kv_write", kv, k.dim(1), k.dim(2));
  do_kv_write(k, v, slot, kv);
}

void Device::kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to) {
  expect("kv_copy", "from", from, DType::i32, {kAny});
  expect("kv_copy", "to", to, DType::i32, {from.dim(0)});
  check(!layers.empty(), "kv_copy: no layers");
  const View& first = layers[0].k;
  expect_kv("kv_copy", layers[0], first.rank() == 4 ? first.dim(2) : 0, first.rank() == 4 ? first.dim(3) : 0);
  for (const KvViews& kv : layers) {
    expect("kv_copy", "kv.k", kv.k, first.type(), {first.dim(0), first.dim(1), first.dim(2), first.dim(3)});
    expect("kv_copy", "kv.v", kv.v, first.type(), {first.dim(0), first.dim(1), first.dim(2), first.dim(3)});
  }
  do_kv_copy(layers, from, to);
}

void Device::attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  expect_attention("attention", q, kv, rows, out);
  do_attention(q, kv, rows, scale, out);
}

void Device::attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  expect_attention("attention_eager", q, kv, rows, out);
  check(!rows.mask.empty(), "attention_eager: rows.mask is empty");
  do_attention_eager(q, kv, rows, scale, out);
}

void Device::swiglu(ConstView x, View y) {
  expect("swiglu", "y", y, DType::f32, {kAny, kAny});
  expect("swiglu", "x", x, DType::f32, {y.dim(0), 2 * y.dim(1)});
  do_swiglu(x, y);
}

void Device::silu(View x) {
  expect("silu", "x", x, DType::f32, {kAny, kAny});
  do_silu(x);
}

void Device::add(View x, ConstView y) {
  expect("add", "x", x, DType::f32, {kAny, kAny});
  expect("add", "y", y, DType::f32, {x.dim(0), x.dim(1)});
  do_add(x, y);
}

void Device::gather_rows(ConstView x, ConstView index, View y) {
  expect("gather_rows", "x", x, DType::f32, {kAny, kAny});
  expect("gather_rows", "index", index, DType::i32, {kAny});
  expect("gather_rows", "y", y, DType::f32, {index.dim(0), x.dim(1)}, true);
  do_gather_rows(x, index, y);
}

void Device::argmax(ConstView x, View id) {
  expect("argmax", "x", x, DType::f32, {kAny, kAny}, true);
  expect("argmax", "id", id, DType::i32, {x.dim(0)});
  do_argmax(x, id);
}

void Device::top_k(ConstView x, View value, View id) {
  expect("top_k", "x", x, DType::f32, {kAny, kAny}, true);
  expect("top_k", "value", value, DType::f32, {x.dim(0), kAny});
  check(value.dim(1) <= x.dim(1), "top_k: k {} of {} columns", value.dim(1), x.dim(1));
  expect("top_k", "id", id, DType::i32, {x.dim(0), value.dim(1)});
  do_top_k(x, value, id);
}

void Device::log_sum_exp(ConstView x, float scale, View y) {
  expect("log_sum_exp", "x", x, DType::f32, {kAny, kAny}, true);
  expect("log_sum_exp", "y", y, DType::f32, {x.dim(0)});
  check(scale > 0, "log_sum_exp: scale {}, expected more than 0", scale);
  do_log_sum_exp(x, scale, y);
}

std::int64_t bucket_for(const Device& device, std::int64_t n) {
  const auto buckets = device.row_buckets();
  if (buckets.empty() || n == 0) return n;
  const auto bucket = std::ranges::lower_bound(buckets, n);
  check(bucket != buckets.end(), "a step of {} rows: the largest bucket is {}", n, buckets.back());
  return *bucket;
}

std::span<const std::int64_t> padded_row_counts(const Device& device) {
  const auto buckets = device.row_buckets();
  return buckets.empty() ? device.recorded_rows() : buckets;
}

std::int64_t rows_of_step(const Device& device, std::int64_t n) {
  if (!device.row_buckets().empty() || n == 0) return bucket_for(device, n);
  const auto recorded = device.recorded_rows();
  const auto next = std::ranges::lower_bound(recorded, n);
  return next == recorded.end() ? n : *next;
}

std::int64_t most_padding(const Device& device) {
  if (const auto buckets = device.row_buckets(); !buckets.empty()) return buckets.back();
  std::int64_t before = 0, most = 0;
  for (const std::int64_t rows : device.recorded_rows()) most = std::max(most, rows - before - 1), before = rows;
  return most;
}

std::int64_t largest_step(const Device& device, std::int64_t wanted) {
  const auto buckets = device.row_buckets();
  return buckets.empty() ? wanted : std::min(wanted, buckets.back());
}

std::int64_t row_elements(const Device& device, std::int64_t n) {
  return aligned_elements(device, n * kElementBytes);
}

std::int64_t part_elements(const Device& device, std::int64_t n) {
  return aligned_elements(device, n * kElementBytes + device.memory_layout().slack);
}

}  // namespace espalier
