// The contract between model code and whatever computes: a narrow list of ops, each with formula, shapes, aliasing,
// index rules and the order of its sums. This header is the specification; device/reference/ is the same as plain
// loops, and the conformance suite (device/conformance/) holds every device to it.
//
// Rules for all ops
//  - Row independence. A row's bits depend on that row and the keys it sees, never on the number of rows, on its
//    neighbours, on threads or on how a call is cut into tiles. (A device that cannot promise this says so in
//    row_independent().)
//  - Every index in a table lies in [0, extent), also in rows whose result nobody reads. There are no sentinels.
//  - Views are dense unless the op says "may be strided". Inputs and outputs do not overlap, except where it says so.
//  - float32 arithmetic, IEEE division and square root, subnormals honoured, fused multiply-add exactly where `fma` is
//    written. NaN is any NaN.
//  - dot16(a, b, n): sixteen partial sums, element i goes to lane i mod 16 by p[i%16] = fma(a[i], b[i], p[i%16]), i
//    ascending; then lanes are added in halves: p[j] += p[j+8], p[j] += p[j+4], p[j] += p[j+2], p[0] + p[1].
//  - Public methods check shapes and types and throw std::logic_error; kernels start from facts. Index values are
//    checked by device/checked/, not here.
//
// Another device than the CPU ones may choose other orders of sums, but keeps row independence.
// One thread at a time calls a device. Ops take effect in call order; download() and lend() wait for what came before
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "device/view.h"

namespace espalier {

// Part of a weight matrix as files store it: `outputs` rows of `inputs` elements each, dense, in a linear type.
struct WeightPart {
  DType type = DType::f32;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  std::span<const std::byte> bytes;
};

// An immutable weight matrix [outputs, inputs] in whatever layout its device likes. Opaque to everyone else.
class Weight {
 public:
  virtual ~Weight() = default;
  std::int64_t outputs() const { return outputs_; }
  std::int64_t inputs() const { return inputs_; }

 protected:
  Weight(std::int64_t outputs, std::int64_t inputs) : outputs_(outputs), inputs_(inputs) {}

 private:
  std::int64_t outputs_;
  std::int64_t inputs_;
};

// One of the products a linear op forms from its input.
struct Projection {
  const Weight* weight = nullptr;
  ConstView bias;  // f32 [outputs]; empty: none
  View y;          // f32 [rows, outputs], may be strided
};

// A mask has a multiple of so many columns.
inline constexpr std::int64_t kMaskColumns = 128;

// Ordinals of keys whose sums an attention op forms together.
inline constexpr std::int64_t kKeyTile = 128;

// Where the rows of a step stand, as tables in device memory: what changes from step to step is data.
// R rows, S sequences, A >= 1 columns for ancestors, B blocks per sequence. All int32 but the mask.
struct RowTables {
  ConstView token;           // [R]
  ConstView position;        // [R]     for the rotation
  ConstView slot;            // [R]     the KV slot the row writes; pairwise distinct
  ConstView sequence;        // [R]     row of `blocks`
  ConstView begin;           // [R]     the context: logical positions [begin, end) of the sequence, never containing
  ConstView end;             // [R]     the row itself; empty if a window begins behind its end, among the ancestors
  ConstView ancestor_count;  // [R]
  ConstView ancestors;       // [R, A]  slots, root first, without the row itself and those it must not see; unused: 0
  ConstView blocks;  // [S, B]  block ids; logical position p lives in slot blocks[s, p / size] * size + p % size
  // u8 [1, 1, R, C] or empty. Column c is logical position c of the row's sequence; 1 hides it, 0 shows it. C is a
  // multiple of kMaskColumns; padding columns hold 1; no row hides all. It must say the same as the lists above, with
  // the speculative slots of a tree at the logical positions behind the prefix.
  ConstView mask;
};

// K and V of one layer: [blocks, block size, kv heads, head size] in f16, bf16 or f32.
struct KvViews {
  View k;
  View v;
};

// What two steps of one workspace may differ in besides the contents of its buffers. Equal keys mean the same ops on
// the same views with the same numbers, so whatever else changes is read from the step's tables. Small and rounded up
// (counts of rows to those that the device names, row_buckets() or recorded_rows(); they are exact where it names none,
// or none as large), without an address: whose step it is, its Recordings say. A round that stays on the device has the
// rows of one of its trees.
struct StepKey {
  std::int64_t rows = 0;
  std::int64_t output_rows = 0;
  std::int64_t logit_rows = 0;
  std::int64_t tap_rows = 0;
  // Rows of the table of blocks. On a device whose steps are padded the last one is that of padding rows, whose results
  // nobody reads.
  std::int64_t sequences = 0;
  std::int64_t ancestors = 0;  // columns of their table
  std::int64_t context = 0;    // no row sees a logical position from here on: the width of block tables and mask
  int form = 0;                // which ops, where counts do not say
  auto operator<=>(const StepKey&) const = default;
};

// What a device keeps of the steps of one workspace: made by the device, used with it alone, owned by the workspace. It
// may hold views of the workspace's buffers and memory and of the model's weights, so it goes before they do. This one
// is that of a device that records nothing.
class Recordings {
 public:
  Recordings() = default;
  virtual ~Recordings() = default;
  Recordings(const Recordings&) = delete;
  Recordings& operator=(const Recordings&) = delete;
};

// A part of device memory, and where it goes on the host.
struct Download {
  ConstView from;           // dense
  std::span<std::byte> to;  // as many bytes
};

// What a device asks of memory that its callers divide among themselves: every tensor inside a buffer, and every row of
// a tensor whose rows are operands of their own, starts on a multiple of `alignment` bytes; the `slack` bytes behind a
// tensor belong to nobody, because kernels that move whole blocks may touch them.
struct MemoryLayout {
  std::int64_t alignment = 64;  // a cache line
  std::int64_t slack = 0;
};

// How the contract itself has a linear of float weights add, and what it takes x as.
inline constexpr std::string_view kContractFloatOrder = "ascending";
inline constexpr std::string_view kContractActivations = "f32";

class RoundOps;

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;
  // What its kernels are written for: the name of an instruction set, or "portable": whatever the compiler chose.
  virtual std::string_view isa() const { return "portable"; }
  // The row counts a step may have, ascending; empty: any. A caller pads its rows to the next bucket, and gives a mask
  // the width of the block tables.
  virtual std::span<const std::int64_t> row_buckets() const { return {}; }
  // The row counts of which it wants recorded steps, ascending; empty: of every one. It takes any number, but a
  // recording costs time and memory: a caller pads its rows to the next of these, and no step is recorded whose key
  // has more than the last. Without a meaning on a device with buckets.
  virtual std::span<const std::int64_t> recorded_rows() const { return {}; }
  virtual MemoryLayout memory_layout() const { return {}; }
  virtual bool row_independent() const { return true; }
  // The order in which a linear of float weights adds, and what it takes x as: a word each, without spaces. On devices
  // with equal words such a linear has equal bits. These are the contract's own; all else has one order everywhere.
  virtual std::string_view float_order() const { return kContractFloatOrder; }
  virtual std::string_view activations() const { return kContractActivations; }
  // Bytes that are free now of a memory of its own; nothing: it computes in the host's.
  virtual std::optional<std::int64_t> free_memory() const { return std::nullopt; }
  // Whether attention is faster with a dense mask in the tables of a step, and whether it is only possible with one.
  virtual bool prefers_dense_mask() const { return false; }
  virtual bool needs_dense_mask() const { return false; }
  // Whether a hidden key is multiplied by 0 instead of skipped: then everything that a table of blocks can reach must
  // be a finite number. Memory is all zeros at first on such a device.
  virtual bool multiplies_hidden_keys() const { return false; }
  // The ops of whole rounds (round_ops.h), the device's own; null: it has none, and rounds are driven from the host.
  virtual RoundOps* round_ops() { return nullptr; }
  // Whether it only stands in for another device, as a fake of its API does: what it gives counts, how long it takes
  // does not. Nothing is timed on such a device, and nobody prints a speed of it.
  virtual bool is_stand_in() const { return false; }
  // Whether discard() does anything. Of a cache with many layers it is many calls, which are spared others.
  virtual bool hears_discards() const { return false; }

  // --- memory -------------------------------------------------------------------------------------------------------
  // Not initialised. bytes >= 1. Throws DeviceError when there is not enough.
  std::unique_ptr<Buffer> allocate(std::size_t bytes);
  Tensor tensor(DType type, std::initializer_list<std::int64_t> shape);
  // Host to device; to: dense, exactly from.size() bytes. `from` may be reused at once.
  void upload(std::span<const std::byte> from, View to);
  // Device to host; waits for all ops before it: one synchronisation, however many parts there are. parts: at least one
  void download(std::span<const Download> parts);
  void download(ConstView from, std::span<std::byte> to);
  // The bytes of `from` where they lie, if the host can read them there, after all ops before it: a synchronisation
  // without a copy. Empty: this device has memory of its own, and nothing was waited for. Whoever borrows reads before
  // the next call that writes there.   from: dense, at least one element
  std::span<const std::byte> lend(ConstView from);
  // The contents of `memory` are no longer needed: a freed block, a rejected slot. A checking device poisons them and
  // fails whoever reads them before they are written again; the others do nothing.
  void discard(View memory) { do_discard(memory); }
  // Takes a copy in the device's own layout. Parts are stacked by outputs, share `inputs`, and may differ in type.
  std::unique_ptr<const Weight> load_weight(std::span<const WeightPart> parts);

  std::unique_ptr<Recordings> make_recordings() { return do_make_recordings(); }
  // Runs `ops`, which calls ops of this device only: no allocation, no upload, no download, no loan. A device may
  // record them under the key the first time and replay the recording later instead of calling `ops` again. A step
  // inside of a step is part of that one, and is not recorded on its own.
  void step(Recordings& recordings, const StepKey& key, const std::function<void()>& ops);

  // --- ops ----------------------------------------------------------------------------------------------------------
  // y[r,:] = table[token[r],:] widened to float. Block formats: scale * q, or (scale * q) + min, each op rounded.
  // token: i32 [rows], in [0, table.outputs)   y: f32 [rows, table.inputs]
  void embed(const Weight& table, ConstView token, View y);

  // y[r,c] = (x[r,c] * s) * w[c],  s = 1 / sqrt(dot16(x[r], x[r]) / dim + eps)
  // x, y: f32 [rows, dim], or [rows, heads, dim] with each head normed alone   w: f32 [dim]
  void rms_norm(ConstView x, ConstView w, float eps, View y);

  // y[r,n] = sum_k x[r,k] * W[n,k]  (+ bias[n] after the sum), for each projection
  // x: f32 [rows, inputs], may be strided
  // Float weights: widened to float; one accumulator, acc = fma(W[n,k], x[r,k], acc), k ascending from acc = 0.
  // Block formats: x[r] is quantised, alone, in blocks of 32: absmax below 2^-100: d = 0, q = 0; else d = absmax / 127,
  //   q = rint_to_even(x * (127 / absmax)). Then per block of the weight (the sub-block for K formats: 32 elements, 16
  //   for q6_k), ascending: acc = fma(w_scale * d, float(dot), acc) with dot the exact integer sum of w_q * q, and
  //   where the format has a minimum also acc = fma(w_min, d * float(sum of q), acc). A row of x with a NaN or an
  //   infinity gives NaN in every output.
  void linear(ConstView x, std::span<const Projection> projections);

  // x[r,h,j] = fma(x[r,h,j], c, -(x[r,h,j+half] * s)),  x[r,h,j+half] = fma(x[r,h,j+half], c, old x[r,h,j] * s)
  // with c = cosine[position[r], j], s = sine[position[r], j], j < half = dim / 2. In place.
  // x: f32 [rows, heads, dim]   position: i32 [rows]   cosine, sine: f32 [positions, dim / 2]
  void rope(View x, ConstView position, ConstView cosine, ConstView sine);

  // kv.k[slot[r]] = k[r], kv.v[slot[r]] = v[r], rounded to the stored type (nearest even).
  // k, v: f32 [rows, kv heads, dim]   slot: i32 [rows], pairwise distinct
  void kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv);

  // kv.k[to[i]] = kv.k[from[i]], kv.v[to[i]] = kv.v[from[i]], for every kv of `layers`: slots moved as they are stored.
  // Everything is read before anything is written.
  // layers: at least one, all of one shape and type   from, to: i32 [n]; `to` pairwise distinct
  void kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to);

  // out[r,h] = (sum_i e[i] * v[i]) / (sum_i e[i]),  e[i] = exp(s[i] - max s),  s[i] = scale * dot16(q[r,h], k[i], dim)
  // over the keys row r sees, in this order: positions [begin, end) of its sequence, its ancestors, its own slot; or,
  // with a mask, the shown columns in ascending order (the same keys in the same order). Query head h reads kv head h /
  // (heads / kv heads). Key i, from 0, has the ordinal begin[r] + i, also with a mask and where begin > end. Sums are
  // unnormalised and run in tiles of the ordinals [128 t, 128 t + 128), every accumulator from +0. In each tile, with
  // m_t its largest score, keys ascending: e = exp(s - m_t), den_t = den_t + e, acc_t = fma(e, v, acc_t). Then, with m
  // = max m_t and w_t = exp(m_t - m), tiles ascending, also if there is only one: den = fma(w_t, den_t, den), acc =
  // fma(w_t, acc_t, acc); out = acc / den. A tile with m_t = -infinity is left out. A hidden key is skipped, never
  // multiplied by 0. If a score is NaN or m is not finite, out[r,h] is NaN. K and V are read in their stored type, the
  // row's own and those of this step too. q, out: f32 [rows, heads, dim]
  void attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out);

  // The same result from the mask and `begin` alone, by the plain route where a device has one: all scores of a row,
  // hidden columns left out by selection, then the softmax and the weighted sums of the same tiles. rows.mask must not
  // be empty.
  void attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out);

  // y[r,c] = silu(x[r,c]) * x[r,c+F],  silu(a) = a / (1 + exp(-a))
  // x: f32 [rows, 2F], gate first   y: f32 [rows, F]
  void swiglu(ConstView x, View y);

  // x[r,c] = silu(x[r,c]). In place.   x: f32 [rows, dim]
  void silu(View x);

  // x[r,c] = x[r,c] + y[r,c]. In place.   x, y: f32 [rows, dim]
  void add(View x, ConstView y);

  // y[i,:] = x[index[i],:]   x: f32 [rows, dim]   index: i32 [n]   y: f32 [n, dim], may be strided
  void gather_rows(ConstView x, ConstView index, View y);

  // id[r] = the column of the largest x[r,:]; the lowest id wins among equals; NaN counts as minus infinity.
  // x: f32 [rows, n], may be strided   id: i32 [rows]
  void argmax(ConstView x, View id);

  // The k largest of each row, by (value descending, id ascending); NaN counts, and is written, as minus infinity.
  // x: f32 [rows, n], may be strided, k <= n   value: f32 [rows, k]   id: i32 [rows, k]
  void top_k(ConstView x, View value, View id);

  // y[r] = log(sum_j exp(t[j])),  t[j] = scale * x[r,j]; NaN counts as minus infinity. As float(m + log(s)), the
  // logarithm and its sum with m in double; m = max t, s the float sum of exp(t[j] - m) in 256 partial sums, element j
  // to lane j mod 256, j ascending, lanes added in halves: 128, 64, ..., 1. If m is not finite, y[r] is m.
  // x: f32 [rows, n], may be strided   scale > 0   y: f32 [rows]
  void log_sum_exp(ConstView x, float scale, View y);

 private:
  virtual std::unique_ptr<Buffer> do_allocate(std::size_t bytes) = 0;
  virtual void do_upload(std::span<const std::byte> from, View to) = 0;
  virtual void do_download(std::span<const Download> parts) = 0;
  virtual std::span<const std::byte> do_lend(ConstView) { return {}; }
  virtual void do_discard(View) {}
  virtual std::unique_ptr<const Weight> do_load_weight(std::span<const WeightPart> parts) = 0;
  virtual std::unique_ptr<Recordings> do_make_recordings() { return std::make_unique<Recordings>(); }
  virtual void do_step(Recordings&, const StepKey&, const std::function<void()>& ops) { ops(); }
  virtual void do_embed(const Weight& table, ConstView token, View y) = 0;
  virtual void do_rms_norm(ConstView x, ConstView w, float eps, View y) = 0;
  virtual void do_linear(ConstView x, std::span<const Projection> projections) = 0;
  virtual void do_rope(View x, ConstView position, ConstView cosine, ConstView sine) = 0;
  virtual void do_kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) = 0;
  virtual void do_kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to) = 0;
  virtual void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) = 0;
  virtual void do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) = 0;
  virtual void do_swiglu(ConstView x, View y) = 0;
  virtual void do_silu(View x) = 0;
  virtual void do_add(View x, ConstView y) = 0;
  virtual void do_gather_rows(ConstView x, ConstView index, View y) = 0;
  virtual void do_argmax(ConstView x, View id) = 0;
  virtual void do_top_k(ConstView x, View value, View id) = 0;
  virtual void do_log_sum_exp(ConstView x, float scale, View y) = 0;

  bool in_step_ = false;
};

// What follows from what a device declares.
// The smallest bucket that holds n; n itself on devices without buckets.
std::int64_t bucket_for(const Device& device, std::int64_t n);
// What a step of n rows, or a list of n of its rows, is padded to: the bucket, or the next number of rows of which
// there are recordings; n itself behind the last of them, and on devices without either.
std::int64_t rows_of_step(const Device& device, std::int64_t n);
// The row counts between which steps are padded, ascending; empty: they never are.
std::span<const std::int64_t> padded_row_counts(const Device& device);
// The most rows of a step that are padding, on a device with buckets as many as the largest has.
std::int64_t most_padding(const Device& device);
// As many rows as are wanted, or as the largest bucket has.
std::int64_t largest_step(const Device& device, std::int64_t wanted);
// Elements of four bytes from one row of n to the next, where rows are operands of their own.
std::int64_t row_elements(const Device& device, std::int64_t n);
// Elements of four bytes from one tensor of n to the next in the same buffer.
std::int64_t part_elements(const Device& device, std::int64_t n);

// Host values in device tensors and back, for set-up, tests and results.
template <typename T>
void upload(Device& device, std::span<const T> from, View to) {
  device.upload(std::as_bytes(from), to);
}
template <typename T>
void download(Device& device, ConstView from, std::span<T> to) {
  device.download(from, std::as_writable_bytes(to));
}
// One part of a download of several.
template <typename T>
Download part_of_download(ConstView from, std::span<T> to) {
  return {from, std::as_writable_bytes(to)};
}

}  // namespace espalier
