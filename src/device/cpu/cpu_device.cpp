#include "device/cpu/cpu_device.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/math.h"
#include "base/thread_pool.h"
#include "device/cpu/attention_runner.h"
#include "device/cpu/host_memory.h"
#include "device/cpu/kernels.h"
#include "device/cpu/linear_runner.h"
#include "device/cpu/packed_weight.h"
#include "device/cpu/read_ahead.h"
#include "device/host_device.h"
#include "device/host_views.h"
#include "device/reference/round_loops.h"

namespace espalier {
namespace cpu {
namespace {

// Elements that take about as long as handing work to another thread.
constexpr std::int64_t kCheapElements = 8192;  // loads, stores and a few operations
constexpr std::int64_t kExponentialElements = 512;

const Kernels& kernels_for(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2: return avx2_kernels();
    case Isa::avx512: return avx512_kernels();
#elif defined(__aarch64__)
    case Isa::neon: return neon_kernels();
    case Isa::dotprod: return dotprod_kernels();
    case Isa::i8mm: return i8mm_kernels();
#endif
    default: throw std::logic_error(fmt::format("no kernels for {} in this build", espalier::name(isa)));
  }
}

class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(std::size_t bytes) : memory_(allocate_memory(bytes)), size_(bytes) {}
  std::byte* data() override { return memory_.get(); }
  std::size_t size() const override { return size_; }

 private:
  HostMemory memory_;
  std::size_t size_;
};

constexpr std::int64_t kFewSlots = 64;

// Whether copying one slot after the other reads everything before it is overwritten. Looks at every pair, so it is
// asked about the few slots of a tree only; long lists, which gather a whole sequence, go through scratch memory.
bool safe_in_order(const std::int32_t* from, const std::int32_t* to, std::int64_t n) {
  if (n > kFewSlots) return false;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t later = i + 1; later < n; ++later)
      if (to[i] == from[later] && to[i] != from[i]) return false;
  return true;
}

class CpuDevice final : public HostDevice {
 public:
  CpuDevice(int threads, Isa isa)
      : isa_(isa),
        kernels_(kernels_for(isa)),
        read_ahead_(threads),
        pool_(threads),
        linear_(kernels_, pool_, read_ahead_),
        attention_(kernels_, pool_) {
    pool_.set_idle_work([](void* ahead, int thread) { return static_cast<ReadAhead*>(ahead)->fetch(thread); },
                        &read_ahead_);
  }

  std::string_view name() const override { return "cpu"; }
  std::string_view isa() const override { return espalier::name(isa_); }
  RoundOps* round_ops() override { return round_ops_.get(); }

 private:
  std::unique_ptr<Buffer> do_allocate(std::size_t bytes) override { return std::make_unique<HostBuffer>(bytes); }

  std::unique_ptr<const Weight> do_load_weight(std::span<const WeightPart> parts) override {
    return std::make_unique<PackedWeight>(parts, arena_, pool_);
  }

  // Calls body(r) for every row; `elements` of one row cost as much as kCheapElements says.
  template <typename Body>
  void for_each_row(std::int64_t rows, std::int64_t elements, const Body& body) {
    const auto range = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) body(r);
    };
    pool_.run(rows, range, std::max<std::int64_t>(1, kCheapElements / std::max<std::int64_t>(1, elements)));
  }

  void do_embed(const Weight& table, ConstView token, View y) override {
    const auto& packed = static_cast<const PackedWeight&>(table);
    const std::int64_t dim = y.dim(1), slowness = 16;  // one element at a time
    for_each_row(y.dim(0), dim * slowness, [&](std::int64_t r) {
      packed.widen_row(ints(token)[r], std::span(floats(y, r), static_cast<std::size_t>(dim)));
    });
  }

  void do_rms_norm(ConstView x, ConstView w, float eps, View y) override {
    const std::int64_t dim = w.dim(0);
    for_each_row(x.elements() / dim, 2 * dim, [&](std::int64_t r) {
      kernels_.rms_norm(floats(x) + r * dim, floats(w), eps, dim, floats(y) + r * dim);
    });
  }

  void do_linear(ConstView x, std::span<const Projection> projections) override { linear_.run(x, projections); }

  void do_rope(View x, ConstView position, ConstView cosine, ConstView sine) override {
    const std::int64_t heads = x.dim(1), dim = x.dim(2);
    for_each_row(x.dim(0), heads * dim, [&](std::int64_t r) {
      const float* const c = floats(cosine, ints(position)[r]);
      const float* const s = floats(sine, ints(position)[r]);
      for (std::int64_t h = 0; h < heads; ++h) kernels_.rope(floats(x, r) + h * dim, c, s, dim / 2);
    });
  }

  void do_kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) override {
    const std::int64_t width = k.dim(1) * k.dim(2);
    for_each_row(k.dim(0), 2 * width, [&](std::int64_t r) {
      const std::int64_t offset = ints(slot)[r] * width;
      store(floats(k, r), width, kv.k, offset);
      store(floats(v, r), width, kv.v, offset);
    });
  }

  void store(const float* from, std::int64_t n, View memory, std::int64_t offset) const {
    if (memory.type() == DType::f32) {
      std::memcpy(memory.data() + offset * 4, from, static_cast<std::size_t>(n) * sizeof(float));
      return;
    }
    auto* const to = reinterpret_cast<std::uint16_t*>(memory.data()) + offset;
    (memory.type() == DType::f16 ? kernels_.to_f16 : kernels_.to_bf16)(from, to, n);
  }

  void do_kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to) override {
    const bool in_place = safe_in_order(ints(from), ints(to), from.dim(0));
    for (const KvViews& kv : layers)
      for (const View& memory : {kv.k, kv.v}) move_slots(memory, from, to, in_place);
  }

  void move_slots(View memory, ConstView from, ConstView to, bool in_place) {
    const std::int64_t n = from.dim(0);
    const std::int64_t bytes = memory.dim(2) * memory.dim(3) * traits(memory.type()).block_bytes;
    const auto size = static_cast<std::size_t>(bytes);
    const std::byte* source = memory.data();
    if (!in_place) {
      std::byte* const read = copies_.at_least(static_cast<std::size_t>(n) * size);
      for (std::int64_t i = 0; i < n; ++i) std::memcpy(read + i * bytes, source + ints(from)[i] * bytes, size);
      source = read;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const std::byte* const slot = source + (in_place ? ints(from)[i] : i) * bytes;
      std::byte* const target = memory.data() + ints(to)[i] * bytes;
      if (slot != target) std::memcpy(target, slot, size);
    }
  }

  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    attention_.run(q, kv, rows, scale, out);
  }

  // One kernel for both: here `eager` says that the mask decides which keys a row sees (docs/modes.md).
  void do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    attention_.run(q, kv, rows, scale, out);
  }

  void do_swiglu(ConstView x, View y) override {
    const std::int64_t width = y.dim(1), pieces = (width + kExponentialElements - 1) / kExponentialElements;
    pool_.run(y.dim(0) * pieces, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t r = unit / pieces, first = unit % pieces * kExponentialElements;
        kernels_.swiglu(floats(x, r) + first, floats(x, r) + width + first, floats(y, r) + first,
                        std::min(kExponentialElements, width - first));
      }
    });
  }

  void do_silu(View x) override {
    const auto range = [&](std::int64_t begin, std::int64_t end) { kernels_.silu(floats(x) + begin, end - begin); };
    pool_.run(x.elements(), range, kExponentialElements);
  }

  void do_add(View x, ConstView y) override {
    const auto range = [&](std::int64_t begin, std::int64_t end) {
      kernels_.add(floats(x) + begin, floats(y) + begin, end - begin);
    };
    pool_.run(x.elements(), range, kCheapElements);
  }

  void do_gather_rows(ConstView x, ConstView index, View y) override {
    const std::int64_t dim = x.dim(1);
    for_each_row(y.dim(0), dim, [&](std::int64_t i) {
      std::memcpy(floats(y, i), floats(x, ints(index)[i]), static_cast<std::size_t>(dim) * sizeof(float));
    });
  }

  void do_argmax(ConstView x, View id) override {
    for_each_row(x.dim(0), x.dim(1), [&](std::int64_t r) { ints(id)[r] = kernels_.argmax(floats(x, r), x.dim(1)); });
  }

  void do_top_k(ConstView x, View value, View id) override {
    for_each_row(x.dim(0), x.dim(1), [&](std::int64_t r) {
      kernels_.top_k(floats(x, r), x.dim(1), value.dim(1), floats(value, r), ints(id, r));
    });
  }

  void do_log_sum_exp(ConstView x, float scale, View y) override {
    const std::int64_t slowness = kCheapElements / kExponentialElements;
    for_each_row(x.dim(0), x.dim(1) * slowness, [&](std::int64_t r) {
      const ExpSum sum = kernels_.exp_sum(floats(x, r), scale, x.dim(1));
      const bool finite = std::isfinite(sum.max);
      floats(y)[r] = finite ? static_cast<float>(double{sum.max} + log_f64(sum.sum)) : sum.max;
    });
  }

  Isa isa_;
  const Kernels& kernels_;
  ReadAhead read_ahead_;  // before the pool, whose threads use it as long as they live
  ThreadPool pool_;
  WeightArena arena_;
  LinearRunner linear_;
  AttentionRunner attention_;
  Scratch copies_;
  std::unique_ptr<RoundOps> round_ops_ = make_round_loops(*this);
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  const std::vector<Isa> supported = supported_isas();
  const Isa isa = options.isa.value_or(supported.back());
  if (std::find(supported.begin(), supported.end(), isa) == supported.end()) {
    std::string names;
    for (Isa known : supported) names += (names.empty() ? "" : ", ") + std::string(name(known));
    input_error("--isa {}: this machine runs {}", name(isa), names);
  }
  return std::make_unique<cpu::CpuDevice>(options.threads, isa);
}

}  // namespace espalier
