// Attention over the paged cache, fused and eager. Both take one sequence at a time: all rows against its keys, and
// where a step has several, each row then keeps the result of its own.
#include <limits>

#include "base/error.h"
#include "device/ascend/op_queue.h"
#include "device/ascend/run_operator.h"

namespace espalier::ascend {
namespace {

constexpr std::int64_t kNoBand = 2147483647;  // of positions before and behind a row: the mask alone decides
constexpr std::int64_t kCustomMask = 0;       // the sparse mode
constexpr std::int64_t kPreciseManyRows = 2;  // for more than one row and a custom mask
constexpr std::int64_t kMostHeads = 256, kMostGroup = 64, kMostHeadSize = 512, kMostKvWidth = 65535;
constexpr std::int64_t kSmallestPage = 128, kLargestPage = 512;
constexpr std::uintptr_t kTableAlignment = 32;

bool is_page(std::int64_t slots) {
  return slots % kSmallestPage == 0 && slots <= kLargestPage;
}

}  // namespace

int choose_fused_version(const Api& api, const Chip& chip) {
  const bool v2 = static_cast<bool>(api.FusedInferAttentionScoreV2.plan);
  // An early form of V4 lacks an argument.
  const bool late = chip.acl_major > 1 || (chip.acl_major == 1 && chip.acl_minor >= 16);
  const bool v4 = late && static_cast<bool>(api.FusedInferAttentionScoreV4.plan);
  const bool v5 = static_cast<bool>(api.FusedInferAttentionScoreV5.plan);
  if (chip.name.starts_with("Ascend310P")) return 0;
  if (chip.name.starts_with("Ascend950")) return v5 ? 5 : v2 ? 2 : 0;
  // V2 is documented for a 910C since 9.0, which brought V5.
  if (chip.name.starts_with("Ascend910_93")) return v4 ? 4 : late && v2 && v5 ? 2 : 0;
  return v2 ? 2 : v4 ? 4 : 0;
}

void OpQueue::attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  check(!rows.mask.empty(), "attention: this device sees by the dense mask alone, and there is none");
  const AttentionCall call{q, kv, rows, scale};
  if (!can_fuse(call)) return attention_eager(q, kv, rows, scale, out);
  attend_by_sequence(call, out, [&](std::int64_t sequence, const Layout& to) { fused(call, sequence, to); });
}

void OpQueue::attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  const AttentionCall call{q, kv, rows, scale};
  attend_by_sequence(call, out, [&](std::int64_t sequence, const Layout& to) { eager(call, sequence, to); });
}

// A single row with a mask is another kernel, which forgets the mask behind key 512.
bool OpQueue::can_fuse(const AttentionCall& call) const {
  const View& k = call.kv.k;
  const std::int64_t heads = call.q.dim(1), kv_heads = k.dim(2), dim = k.dim(3), page = k.dim(1);
  const bool probed = k.type() == DType::f16 ? abilities_.fused_f16 : abilities_.fused_bf16;
  return fused_version_ > 0 && k.type() != DType::f32 && probed && call.q.dim(0) > 1 && dim % 16 == 0 &&
         dim <= kMostHeadSize && heads <= kMostHeads && heads / kv_heads <= kMostGroup &&
         kv_heads * dim <= kMostKvWidth && is_page(page) && call.rows.mask.dim(3) == call.rows.blocks.dim(1) * page;
}

// Nobody reads what padding rows attend to, so they need no pass of their own.
std::int64_t OpQueue::real_sequences(const RowTables& rows) const {
  const std::int64_t all = rows.blocks.dim(0);
  return all > 1 && all == step_sequences_ ? all - 1 : all;
}

template <typename Attend>
void OpQueue::attend_by_sequence(const AttentionCall& call, View out, const Attend& attend) {
  begin_op();
  const std::int64_t sequences = real_sequences(call.rows), rows = out.dim(0);
  if (sequences == 1) return attend(0, Layout(out));
  const auto like_out = [&] { return scratch(AclType::f32, {rows, out.dim(1), out.dim(2)}); };
  const Layout mine = like_out(), kept[] = {like_out(), like_out()}, chosen = scratch(AclType::boolean, {rows, 1, 1});
  attend(0, kept[0]);
  const std::size_t mark = scratch_.used();
  for (std::int64_t s = 1; s < sequences; ++s) {
    scratch_.give_back(mark);
    attend(s, mine);
    run(api().EqTensor, Layout(call.rows.sequence).reshaped({rows, 1, 1}), number(s).reshaped({1, 1, 1}), chosen);
    run(api().SWhere, chosen, mine, kept[(s - 1) % 2], s + 1 == sequences ? Layout(out) : kept[s % 2]);
  }
}

// A row of the table begins anywhere, an operand on 32 bytes.
Layout OpQueue::block_table(const RowTables& rows, std::int64_t sequence) {
  const Layout table(rows.blocks.rows(sequence, 1));
  if (reinterpret_cast<std::uintptr_t>(table.data) % kTableAlignment == 0) return table;
  const Layout moved = scratch(AclType::i32, {1, rows.blocks.dim(1)});
  copy(table, moved);
  return moved;
}

// --- fused -----------------------------------------------------------------------------------------------------------
void OpQueue::fused(const AttentionCall& call, std::int64_t sequence, const Layout& out) {
  const AclType type = acl_type(call.kv.k.type());
  const std::int64_t rows = call.q.dim(0), heads = call.q.dim(1), dim = call.q.dim(2);
  const Layout q = dense_as(call.q, type), result = scratch(type, {1, rows, heads, dim});
  run_fused(call, q.reshaped({1, rows, heads, dim}), sequence, result);
  cast(result.reshaped({rows, heads, dim}), out);
}

// Lengths and mask are as wide as the table, so that all that changes from step to step is in device memory.
void OpQueue::run_fused(const AttentionCall& call, const Layout& q, std::int64_t sequence, const Layout& out) {
  const View& k = call.kv.k;
  const std::int64_t page = k.dim(1), kv_heads = k.dim(2), dim = k.dim(3), heads = call.q.dim(1);
  const std::int64_t keys = call.rows.mask.dim(3);
  const Layout key_memory(k.data(), acl_type(k.type()), {k.dim(0), page, kv_heads * dim});
  const Layout value_memory(call.kv.v.data(), acl_type(k.type()), {k.dim(0), page, kv_heads * dim});
  const TensorListDescriptor key = describe_list(api(), {&key_memory, 1});
  const TensorListDescriptor value = describe_list(api(), {&value_memory, 1});
  const IntArrayDescriptor lengths = describe_numbers(api(), {keys});
  char layout[] = "BSND";
  const T none = nullptr;
  const IA no_numbers = nullptr;
  const std::int64_t unused_mode = 0;
  const auto with = [&](const auto& version, auto... newer) {
    return [&, newer...](auto... later) {
      run(version, q, key, value, none, call.rows.mask, no_numbers, lengths,  //
          none, none, none, none, none, none, none, block_table(call.rows, sequence), none,
          none,                                            // quantisation, pages
          none, none, none, none, none, none, no_numbers,  // quantisation, prefix
          newer...,                                        //
          heads, double{call.scale}, kNoBand, kNoBand, static_cast<char*>(layout), kv_heads, kCustomMask,
          kPreciseManyRows, page, unused_mode, false, unused_mode, unused_mode, later..., out, none);
    };
  };
  if (fused_version_ == 2) return with(api().FusedInferAttentionScoreV2)();
  if (fused_version_ == 4) return with(api().FusedInferAttentionScoreV4, none, none, none, none, none)(unused_mode);
  with(api().FusedInferAttentionScoreV5, none, none, none, none, none, no_numbers, no_numbers)(unused_mode,
                                                                                               unused_mode);
}

// --- eager -----------------------------------------------------------------------------------------------------------
// In f32: scores of all keys of the table, minus infinity where the mask hides, softmax, weighted sums. The query heads
// of a kv head are rows of one product.
void OpQueue::eager(const AttentionCall& call, std::int64_t sequence, const Layout& out) {
  const View& k = call.kv.k;
  const std::int64_t rows = call.q.dim(0), heads = call.q.dim(1), dim = call.q.dim(2);
  const std::int64_t kv_heads = k.dim(2), group = heads / kv_heads, columns = call.rows.mask.dim(3);
  const std::int64_t keys = std::min(columns, call.rows.blocks.dim(1) * k.dim(1));
  const Layout blocks = block_table(call.rows, sequence).reshaped({call.rows.blocks.dim(1)});
  const Layout mask(call.rows.mask.data(), AclType::boolean, {rows, keys}, {columns, 1});

  const Layout q = scratch(AclType::f32, {kv_heads, rows, group, dim});
  copy({call.q.data(), AclType::f32, {kv_heads, rows, group, dim}, {group * dim, heads * dim, dim, 1}}, q);
  const Layout key = gathered_heads(k, blocks, keys), value = gathered_heads(call.kv.v, blocks, keys);
  hide_values(value, mask);

  const Layout scores = scratch(AclType::f32, {kv_heads, rows * group, keys});
  const Layout shares = scratch(AclType::f32, {kv_heads, rows * group, keys});
  const Layout sums = scratch(AclType::f32, {kv_heads, rows * group, dim});
  const std::int8_t product = card_->chip().f32_product;
  run(api().BatchMatMul, q.reshaped({kv_heads, rows * group, dim}),
      Layout(key.data, key.type, {kv_heads, dim, keys}, {keys * dim, 1, dim}), scores, product);
  run(api().InplaceMuls, scores, describe_scalar(api(), call.scale));
  run(api().InplaceMaskedFillScalar, scores.reshaped({kv_heads, rows, group, keys}),
      Layout(mask.data, mask.type, {1, rows, 1, keys}, {rows * columns, columns, columns, 1}),
      describe_scalar(api(), -std::numeric_limits<float>::infinity()));
  run(api().Softmax, scores, std::int64_t{-1}, shares);
  run(api().BatchMatMul, shares, value, sums, product);
  copy({sums.data, sums.type, {rows, kv_heads, group, dim}, {group * dim, rows * group * dim, dim, 1}},
       out.reshaped({rows, kv_heads, group, dim}));
}

// The blocks of a table, one head behind the other: f32 [kv heads, keys, dim].
Layout OpQueue::gathered_heads(const View& memory, const Layout& blocks, std::int64_t keys) {
  const std::int64_t heads = memory.dim(2), dim = memory.dim(3), page = memory.dim(1) * heads * dim;
  const AclType type = acl_type(memory.type());
  const Layout gathered = scratch(type, {blocks.sizes[0], page});
  run(api().IndexSelect, Layout(memory.data(), type, {memory.dim(0), page}), std::int64_t{0}, blocks, gathered);
  const Layout apart = scratch(AclType::f32, {heads, keys, dim});
  copy({gathered.data, type, {heads, keys, dim}, {dim, heads * dim, 1}}, apart);
  return apart;
}

// A key that nobody sees has the weight 0, which does not make nothing of an infinity.
void OpQueue::hide_values(const Layout& values, const Layout& mask) {
  const std::int64_t keys = mask.sizes[1];
  const Layout hidden = scratch(AclType::boolean, {1, keys});
  run(api().All, mask, describe_numbers(api(), {0}), true, hidden);
  run(api().InplaceMaskedFillScalar, values, hidden.reshaped({1, keys, 1}), describe_scalar(api(), 0));
}

}  // namespace espalier::ascend
