#include "device/ascend/op_queue.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "device/ascend/run_operator.h"

namespace espalier::ascend {
namespace {

constexpr std::int64_t kFewestConstants = 64;
constexpr std::int64_t kOperandAlignment = 32;
constexpr std::int64_t kRotateHalf = 0;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The first entry is larger than any index; behind it 0, 1, 2, ...
std::int32_t number_at(std::int64_t entry) {
  return entry == 0 ? std::numeric_limits<std::int32_t>::max() : static_cast<std::int32_t>(entry - 1);
}

std::int32_t count_at(std::int64_t entry) {
  return static_cast<std::int32_t>(entry);
}

const AscendWeight& weight_of(const Weight& weight) {
  const auto* const mine = dynamic_cast<const AscendWeight*>(&weight);
  check(mine != nullptr, "a weight of another device");
  return *mine;
}

// KV memory as a list of slots.
Layout slots_of(const View& memory) {
  return {memory.data(), acl_type(memory.type()), {memory.dim(0) * memory.dim(1), memory.dim(2) * memory.dim(3)}};
}

}  // namespace

const std::byte* ConstantTable::entry(std::int64_t i) {
  if (i >= entries_) {
    if (card_->capturing()) throw CaptureNeedsMemory();
    const std::int64_t entries = std::max({i + 1, 2 * entries_, kFewestConstants});
    std::vector<std::byte> values(static_cast<std::size_t>(entries * stride_));
    for (std::int64_t j = 0; j < entries; ++j) {
      const std::int32_t value = value_(j);
      std::memcpy(values.data() + j * stride_, &value, sizeof value);
    }
    auto memory = std::make_unique<Memory>(card_, values.size(), "constants");
    staging_->upload(values, memory->data());
    all_.push_back(std::move(memory));
    entries_ = entries;
  }
  return all_.back()->data() + i * stride_;
}

OpQueue::OpQueue(std::shared_ptr<Card> card, Staging& staging, std::size_t arena_bytes)
    : card_(std::move(card)),
      workspace_(card_, "operators' workspaces", arena_bytes),
      scratch_(card_, "what operators pass on to each other", arena_bytes),
      step_scratch_(card_, "what the layers of a step share", arena_bytes),
      counting_(card_, staging, sizeof(std::int32_t), count_at),
      numbers_(card_, staging, kOperandAlignment, number_at),
      fused_version_(choose_fused_version(api(), card_->chip())) {}

Layout OpQueue::scratch(AclType type, std::initializer_list<std::int64_t> sizes) {
  Layout layout(nullptr, type, sizes);
  layout.data = scratch_.take(static_cast<std::size_t>(layout.elements() * element_bytes(type)));
  return layout;
}

// Exactly what the operator asked for; nothing where it asked for nothing. An operator that will not be launched is
// given up.
std::byte* OpQueue::workspace(std::uint64_t bytes, AclExecutor* executor) {
  if (bytes == 0) return nullptr;
  workspace_.give_back();
  try {
    return workspace_.take(bytes);
  } catch (...) {
    api().aclDestroyAclOpExecutor(executor);
    throw;
  }
}

void OpQueue::begin_step(std::int64_t sequences) {
  in_step_ = true;
  step_sequences_ = sequences;
  step_scratch_.give_back();
  angles_.clear();
}

void OpQueue::end_step() {
  in_step_ = false;
  step_sequences_ = 0;
  angles_.clear();
}

// --- pieces ----------------------------------------------------------------------------------------------------------
void OpQueue::cast(const Layout& from, const Layout& to) {
  run(api().Cast, from, to.type, to);
}

void OpQueue::copy(const Layout& from, const Layout& to) {
  run(api().InplaceCopy, to, from);
}

Layout OpQueue::dense_as(const Layout& x, AclType type) {
  if (x.strides.empty() && x.type == type) return x;
  Layout dense(nullptr, type, {});
  dense.sizes = x.sizes;
  dense.data = scratch_.take(static_cast<std::size_t>(x.elements() * element_bytes(type)));
  x.type == type ? copy(x, dense) : cast(x, dense);
  return dense;
}

template <typename Write>
void OpQueue::write_dense(const View& y, const Write& write) {
  if (y.dense()) return write(Layout(y));
  const Layout dense = scratch(acl_type(y.type()), {y.dim(0), y.dim(1)});
  write(dense);
  copy(dense, y);
}

Layout OpQueue::without_nan(const Layout& x) {
  const Layout dense = scratch(AclType::f32, {x.sizes[0], x.sizes[1]});
  run(api().NanToNum, x, -kInfinity, kInfinity, -kInfinity, dense);
  return dense;
}

Layout OpQueue::counting(std::int64_t n) {
  counting_.entry(n - 1);
  return {counting_.entry(0), AclType::i32, {n}};
}

Layout OpQueue::number(std::int64_t n) {
  return {numbers_.entry(n + 1), AclType::i32, {1}};
}

Layout OpQueue::largest_number() {
  return {numbers_.entry(0), AclType::i32, {1}};
}

// --- rows ------------------------------------------------------------------------------------------------------------
void OpQueue::embed(const Weight& table, ConstView token, View y) {
  begin_op();
  const AscendWeight& weight = weight_of(table);
  if (weight.type() == AclType::f32) return run(api().Embedding, weight.rows(), token, y);
  const Layout rows = scratch(weight.type(), {y.dim(0), y.dim(1)});
  run(api().Embedding, weight.rows(), token, rows);
  cast(rows, y);
}

void OpQueue::rms_norm(ConstView x, ConstView w, float eps, View y) {
  begin_op();
  const Layout factors =
      x.rank() == 3 ? scratch(AclType::f32, {x.dim(0), x.dim(1), 1}) : scratch(AclType::f32, {x.dim(0), 1});
  run(api().RmsNorm, x, w, double{eps}, y, factors);
}

// Inputs are rounded to the weight's type once for all projections.
void OpQueue::linear(ConstView x, std::span<const Projection> projections) {
  begin_op();
  std::vector<Layout> inputs;
  const ScalarDescriptor one = describe_scalar(api(), 1);
  for (const Projection& projection : projections) {
    const AscendWeight& weight = weight_of(*projection.weight);
    auto input = std::ranges::find(inputs, weight.type(), &Layout::type);
    if (input == inputs.end()) input = inputs.insert(input, dense_as(x, weight.type()));
    write_dense(projection.y, [&](const Layout& y) {
      multiply(*input, weight, y);
      if (!projection.bias.empty()) run(api().InplaceAdd, y, projection.bias, one);
    });
  }
}

void OpQueue::multiply(const Layout& x, const AscendWeight& weight, const Layout& y) {
  const AclType type = weight.type();
  if (type == AclType::f32) return run(api().Mm, x, weight.transposed(), y, card_->chip().f32_product);
  const bool unrounded = type == AclType::f16 ? abilities_.f32_from_f16 : abilities_.f32_from_bf16;
  if (unrounded) return run(api().Mm, x, weight.transposed(), y, kKeepType);
  const Layout rounded = scratch(type, {y.sizes[0], y.sizes[1]});
  run(api().Mm, x, weight.transposed(), rounded, kKeepType);
  cast(rounded, y);
}

void OpQueue::rope(View x, ConstView position, ConstView cosine, ConstView sine) {
  begin_op();
  const Angles turn = angles(position, cosine, sine);
  const Layout turned = scratch(AclType::f32, {x.dim(0), x.dim(1), x.dim(2)});
  run(api().RotaryPositionEmbedding, x, turn.cosines, turn.sines, kRotateHalf, turned);
  copy(turned, x);
}

OpQueue::Angles OpQueue::angles(ConstView position, ConstView cosine, ConstView sine) {
  for (const Angles& known : angles_)
    if (known.position == position && known.cosine == cosine && known.sine == sine) return known;
  const Angles chosen{position, cosine, sine, chosen_angles(position, cosine), chosen_angles(position, sine)};
  if (in_step_) angles_.push_back(chosen);
  return chosen;
}

// The table has half of a head's width, the operator wants it twice, side by side.
Layout OpQueue::chosen_angles(ConstView position, ConstView table) {
  const std::int64_t rows = position.dim(0), half = table.dim(1);
  const Layout chosen = scratch(AclType::f32, {rows, half});
  run(api().IndexSelect, table, std::int64_t{0}, position, chosen);
  Arena& arena = in_step_ ? step_scratch_ : scratch_;
  const Layout both(arena.take(static_cast<std::size_t>(rows * 2 * half) * sizeof(float)), AclType::f32,
                    {rows, 2 * half});
  const Layout halves[] = {chosen, chosen};
  run(api().Cat, describe_list(api(), halves), std::int64_t{1}, both);
  return both.reshaped({rows, 1, 2 * half});
}

void OpQueue::swiglu(ConstView x, View y) {
  begin_op();
  run(api().SwiGlu, x, std::int64_t{-1}, y);
}

void OpQueue::silu(View x) {
  begin_op();
  const TensorDescriptor both = describe(api(), x);
  run(api().Silu, both, both);
}

void OpQueue::add(View x, ConstView y) {
  begin_op();
  run(api().InplaceAdd, x, y, describe_scalar(api(), 1));
}

void OpQueue::gather_rows(ConstView x, ConstView index, View y) {
  begin_op();
  write_dense(y, [&](const Layout& dense) { run(api().IndexSelect, x, std::int64_t{0}, index, dense); });
}

// --- choices ---------------------------------------------------------------------------------------------------------
// The lowest column among those that equal the largest: what ArgMax does with equals is not documented.
void OpQueue::argmax(ConstView x, View id) {
  begin_op();
  const std::int64_t rows = x.dim(0), n = x.dim(1);
  const Layout values = without_nan(x);
  const Layout largest = scratch(AclType::f32, {rows, 1}), equal = scratch(AclType::boolean, {rows, n});
  const Layout ids = scratch(AclType::i32, {rows, n});
  const IntArrayDescriptor columns = describe_numbers(api(), {1});
  run(api().Amax, values, columns, true, largest);
  run(api().EqTensor, values, largest, equal);
  run(api().SWhere, equal, counting(n).reshaped({1, n}), largest_number().reshaped({1, 1}), ids);
  run(api().Amin, ids, columns, false, id);
}

// A stable sort, because the order of equals in Topk is not documented.
void OpQueue::top_k(ConstView x, View value, View id) {
  begin_op();
  const std::int64_t rows = x.dim(0), n = x.dim(1), k = value.dim(1);
  const Layout sorted = scratch(AclType::f32, {rows, n}), order = scratch(AclType::i64, {rows, n});
  run(api().Sort, without_nan(x), true, std::int64_t{1}, true, sorted, order);
  copy({sorted.data, sorted.type, {rows, k}, {n, 1}}, value);
  cast({order.data, order.type, {rows, k}, {n, 1}}, id);
}

void OpQueue::log_sum_exp(ConstView x, float scale, View y) {
  begin_op();
  const Layout scaled = scratch(AclType::f32, {x.dim(0), x.dim(1)});
  run(api().Muls, x, describe_scalar(api(), scale), scaled);
  run(api().LogSumExp, without_nan(scaled), describe_numbers(api(), {1}), false, y);
}

// --- KV memory -------------------------------------------------------------------------------------------------------
void OpQueue::kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) {
  begin_op();
  const std::int64_t rows = k.dim(0), width = k.dim(1) * k.dim(2);
  const auto write = [&](ConstView from, const View& memory) {
    const Layout source = dense_as(Layout(from).reshaped({rows, width}), acl_type(memory.type()));
    run(api().InplaceIndexCopy, slots_of(memory), std::int64_t{0}, slot, source);
  };
  write(k, kv.k);
  write(v, kv.v);
}

// Through scratch, since everything is read before anything is written.
void OpQueue::kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to) {
  const auto move = [&](const View& memory) {
    begin_op();
    const Layout slots = slots_of(memory);
    const Layout moved = scratch(slots.type, {from.dim(0), slots.sizes[1]});
    run(api().IndexSelect, slots, std::int64_t{0}, from, moved);
    run(api().InplaceIndexCopy, slots, std::int64_t{0}, to, moved);
  };
  for (const KvViews& kv : layers) {
    move(kv.k);
    move(kv.v);
  }
}

}  // namespace espalier::ascend
