#include "device/cuda/op_queue.h"

#include <algorithm>
#include <utility>

#include "device/cuda/weights.h"
#include "device/host_views.h"

namespace espalier::cuda {
namespace {

// What attention keeps of tiles at a time; larger calls are cut by rows.
constexpr std::int64_t kTileBytes = 64 << 20;
constexpr std::int64_t kMostAttentionRows = 32768;  // of a grid
constexpr std::int64_t kMostFreshSlots = 16;        // so many that looking for them does not cost what it saves
// What kv_copy keeps of slots at a time, for as many layers as that holds.
constexpr std::int64_t kSlotBytes = 32 << 20;

Rows rows_of(View view) {
  return {floats(view), view.dim(0), view.row_elements(), view.row_stride()};
}
ConstRows rows_of(ConstView view) {
  return {floats(view), view.dim(0), view.row_elements(), view.row_stride()};
}

// The same bytes, by rows.
bool same_rows(const ConstView& a, const ConstView& b) {
  return a.data() == b.data() && a.dim(0) == b.dim(0) && a.row_elements() == b.row_elements() &&
         a.row_stride() == b.row_stride();
}

AttentionCall attention_call(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  AttentionCall call;
  call.q = floats(q);
  call.k = kv.k.data();
  call.v = kv.v.data();
  call.kv_type = kv.k.type();
  call.out = floats(out);
  call.tables = {.slot = ints(rows.slot),
                 .sequence = ints(rows.sequence),
                 .begin = ints(rows.begin),
                 .end = ints(rows.end),
                 .ancestor_count = ints(rows.ancestor_count),
                 .ancestors = ints(rows.ancestors),
                 .blocks = ints(rows.blocks),
                 .mask = rows.mask.empty() ? nullptr : reinterpret_cast<const std::uint8_t*>(rows.mask.data()),
                 .ancestor_columns = rows.ancestors.dim(1),
                 .block_columns = rows.blocks.dim(1),
                 .mask_columns = rows.mask.empty() ? 0 : rows.mask.dim(3)};
  call.rows = q.dim(0);
  call.heads = q.dim(1);
  call.kv_heads = kv.k.dim(2);
  call.dim = q.dim(2);
  call.block_size = kv.k.dim(1);
  call.scale = scale;
  return call;
}

// Rows [begin, begin + count) of a call.
AttentionCall rows_of_call(AttentionCall call, std::int64_t begin, std::int64_t count) {
  AttentionTables& t = call.tables;
  call.q += begin * call.heads * call.dim;
  call.out += begin * call.heads * call.dim;
  for (const std::int32_t** table : {&t.slot, &t.sequence, &t.begin, &t.end, &t.ancestor_count}) *table += begin;
  t.ancestors += begin * t.ancestor_columns;
  if (t.mask != nullptr) t.mask += begin * t.mask_columns;
  call.rows = count;
  return call;
}

bool of_blocks(const LinearPart& part) {
  return is_block_quantised(part.type);
}

bool of_f32(const LinearPart& part) {
  return part.type == DType::f32;
}

std::vector<LinearPart> parts_of(std::span<const Projection> projections, std::int64_t inputs) {
  std::vector<LinearPart> parts;
  for (const Projection& p : projections)
    for (const DevicePart& part : static_cast<const CudaWeight*>(p.weight)->parts())
      parts.push_back({.type = part.type,
                       .packed = part.memory.data(),
                       .outputs = part.outputs,
                       .inputs = inputs,
                       .bias = p.bias.empty() ? nullptr : floats(p.bias) + part.first_output,
                       .y = rows_of(p.y.columns(part.first_output, part.outputs))});
  return parts;
}

}  // namespace

void OpQueue::step(const std::function<void()>& ops) {
  struct Leave {
    OpQueue& queue;
    ~Leave() {
      queue.in_step_ = false;
      queue.waiting_ = Nothing{};
      queue.queue_.held = nullptr;
      queue.held_.clear();
    }
  } leave{*this};
  in_step_ = true;
  if (fused_ && queue_.cluster > 0) queue_.held = &held_;
  ops();
  flush();
  held_.launch(queue_);
}

void OpQueue::wait_with(Waiting op) {
  waiting_ = std::move(op);
  if (!in_step_ || !fused_) flush();
}

void OpQueue::flush() {
  const Waiting op = std::exchange(waiting_, Nothing{});
  just_written_ = {};
  if (const auto* norm = std::get_if<Norm>(&op)) {
    const std::int64_t dim = norm->w.dim(0);
    cuda::rms_norm(queue_, floats(norm->x), floats(norm->w), norm->eps, norm->x.elements() / dim, dim, floats(norm->y));
  } else if (const auto* swiglu = std::get_if<Swiglu>(&op)) {
    cuda::swiglu(queue_, floats(swiglu->x), rows_of(swiglu->y));
  } else if (const auto* attention = std::get_if<Attention>(&op)) {
    cuda::attention(queue_, attention->call, attention->scratch, {});
  } else if (const auto* linear = std::get_if<Linear>(&op)) {
    launch_linear(*linear);
  } else if (const auto* rotations = std::get_if<Rotations>(&op)) {
    for (const Rotations::One& one : rotations->all) launch(queue_, one);
  }
}

void OpQueue::launch(Queue queue, const Rotations::One& one) {
  cuda::rope(queue, floats(one.x), ints(one.position), floats(one.cosine), floats(one.sine),
             {one.x.dim(0), one.x.dim(1), one.x.dim(2) / 2});
}

void OpQueue::embed(const Weight& table, ConstView token, View y) {
  flush();
  for (const DevicePart& part : static_cast<const CudaWeight&>(table).parts())
    cuda::embed(queue_, {part.type, part.memory.data(), part.first_output, part.outputs}, ints(token), rows_of(y));
}

void OpQueue::rms_norm(ConstView x, ConstView w, float eps, View y) {
  flush();
  wait_with(Norm{x, w, eps, y});
}

// --- linears --------------------------------------------------------------------------------------------------------
OpQueue::RowForms OpQueue::forms_for(ConstView x, std::span<const LinearPart> parts) {
  const auto any = [&](DType type) { return std::ranges::find(parts, type, &LinearPart::type) != parts.end(); };
  const auto terms = static_cast<std::size_t>(term_bytes(queue_, x.dim(0), x.dim(1)));
  RowForms forms;
  if (std::ranges::any_of(parts, of_blocks))
    forms.quantised = quantised_.at_least(static_cast<std::size_t>(quantised_bytes(x.dim(0), x.dim(1))));
  if (any(DType::bf16)) forms.bf16_terms = bf16_terms_.at_least(terms);
  if (any(DType::f16)) forms.f16_terms = f16_terms_.at_least(terms);
  return forms;
}

void OpQueue::make_with_what_waits(ConstView x, RowForms& forms) {
  std::byte* const quantised = std::exchange(forms.quantised, nullptr);
  std::byte* const terms = quantised == nullptr ? std::exchange(forms.bf16_terms, nullptr) : nullptr;
  const std::int64_t dim = x.dim(1);
  if (quantised == nullptr && terms == nullptr) return;
  if (const auto* norm = std::get_if<Norm>(&waiting_);
      norm != nullptr && norm->y.rank() == 2 && same_rows(norm->y, x)) {
    if (quantised != nullptr)
      rms_norm_quantised(queue_, {floats(norm->x), floats(norm->w), norm->eps, rows_of(norm->y), quantised});
    else
      rms_norm_split(queue_, floats(norm->x), floats(norm->w), norm->eps, rows_of(norm->y), terms);
  } else if (const auto* swiglu = std::get_if<Swiglu>(&waiting_); swiglu != nullptr && same_rows(swiglu->y, x)) {
    if (quantised != nullptr)
      swiglu_quantised(queue_, {floats(swiglu->x), rows_of(swiglu->y), quantised});
    else
      swiglu_split(queue_, floats(swiglu->x), rows_of(swiglu->y), terms);
  } else if (const auto* attention = std::get_if<Attention>(&waiting_);
             attention != nullptr && same_rows(attention->out, x) &&
             (quantised != nullptr ? attention->call.dim % 32 == 0 : dim % 128 == 0)) {
    cuda::attention(queue_, attention->call, attention->scratch, {quantised, terms});
  } else {
    (quantised != nullptr ? forms.quantised : forms.bf16_terms) = quantised != nullptr ? quantised : terms;
    return;
  }
  waiting_ = Nothing{};
}

void OpQueue::make_forms(ConstView x, RowForms forms) {
  if (const auto* linear = std::get_if<Linear>(&waiting_);
      linear != nullptr && linear->forms == forms && same_rows(linear->x, x))
    return flush();
  make_with_what_waits(x, forms);
  flush();
  if (forms.quantised != nullptr) quantise_rows(queue_, rows_of(x), forms.quantised);
  if (forms.bf16_terms != nullptr) split_rows(queue_, DType::bf16, rows_of(x), forms.bf16_terms);
  if (forms.f16_terms != nullptr) split_rows(queue_, DType::f16, rows_of(x), forms.f16_terms);
}

void OpQueue::linear(ConstView x, std::span<const Projection> projections) {
  Linear linear{parts_of(projections, x.dim(1)), x, {}, {}};
  if (projections.size() == 1) linear.y = projections[0].y;
  linear.forms = forms_for(x, linear.parts);
  make_forms(x, linear.forms);
  wait_with(std::move(linear));
}

void OpQueue::launch_parts(std::span<const LinearPart> parts, const Linear& linear) {
  const DType type = parts[0].type;
  for (std::span<const LinearPart> left = parts; !left.empty();) {
    const auto count = static_cast<int>(std::min<std::size_t>(left.size(), of_f32(left[0]) ? 1 : kMostParts));
    if (of_f32(left[0])) {
      linear_f32(queue_, left[0], rows_of(linear.x));
    } else if (of_blocks(left[0])) {
      linear_blocks(queue_, left.data(), count, linear.forms.quantised);
    } else {
      const FloatScratchBytes bytes = float_scratch_bytes(queue_, left.data(), count);
      const FloatScratch scratch{tiles_.at_least(static_cast<std::size_t>(bytes.sums)),
                                 counts_.at_least(static_cast<std::size_t>(bytes.counts))};
      linear_floats(queue_, left.data(), count, type == DType::bf16 ? linear.forms.bf16_terms : linear.forms.f16_terms,
                    scratch);
    }
    left = left.subspan(static_cast<std::size_t>(count));
  }
}

void OpQueue::launch_linear(const Linear& linear) {
  std::vector<LinearPart> parts = linear.parts;
  std::ranges::stable_sort(parts, {}, &LinearPart::type);
  for (std::span<const LinearPart> left = parts; !left.empty();) {
    const auto other = [&](const LinearPart& part) { return part.type != left[0].type; };
    const auto same = static_cast<std::size_t>(std::ranges::find_if(left, other) - left.begin());
    launch_parts(left.first(same), linear);
    left = left.subspan(same);
  }
}

void OpQueue::add(View x, ConstView y) {
  if (auto* linear = std::get_if<Linear>(&waiting_); linear != nullptr && !linear->y.empty() &&
                                                     same_rows(linear->y, y) &&
                                                     std::ranges::none_of(linear->parts, of_f32)) {
    for (LinearPart& part : linear->parts) {
      part.added_to = floats(x) + (part.y.data - floats(linear->y));
      part.added_stride = x.dim(1);
    }
    flush();
    return;
  }
  flush();
  cuda::add(queue_, floats(x), floats(y), x.elements());
}

// --- attention ------------------------------------------------------------------------------------------------------
void OpQueue::rope(View x, ConstView position, ConstView cosine, ConstView sine) {
  const Rotations::One one{x, position, cosine, sine};
  if (auto* rotations = std::get_if<Rotations>(&waiting_); rotations != nullptr && rotations->all.size() == 1) {
    rotations->all.push_back(one);
    return;
  }
  behind_linear_ = std::holds_alternative<Linear>(waiting_);
  flush();
  wait_with(Rotations{{one}});
}

void OpQueue::kv_write(ConstView k, ConstView v, ConstView slot, const KvViews& kv) {
  const auto* rotations = std::get_if<Rotations>(&waiting_);
  if (rotations != nullptr && rotations->all.size() == 2 && same_rows(rotations->all[1].x, k) &&
      rotations->all[0].position == rotations->all[1].position &&
      rotations->all[0].cosine == rotations->all[1].cosine && rotations->all[0].sine == rotations->all[1].sine &&
      rotations->all[0].x.dim(2) == k.dim(2)) {
    const auto& [q, position, cosine, sine] = rotations->all[0];
    rotate_and_write(queue_, kv.k.type(),
                     {.q = floats(q),
                      .k = floats(rotations->all[1].x),
                      .v = floats(v),
                      .position = ints(position),
                      .slot = ints(slot),
                      .cosine = floats(cosine),
                      .sine = floats(sine),
                      .rows = k.dim(0),
                      .heads = q.dim(1),
                      .kv_heads = k.dim(1),
                      .half = k.dim(2) / 2,
                      .kv_k = kv.k.data(),
                      .kv_v = kv.v.data()});
    waiting_ = Nothing{};
    if (behind_linear_) just_written_ = slot;
    return;
  }
  flush();
  const std::int64_t width = k.dim(1) * k.dim(2);
  cuda::kv_write(queue_, kv.k.type(), floats(k), ints(slot), k.dim(0), width, kv.k.data());
  cuda::kv_write(queue_, kv.v.type(), floats(v), ints(slot), k.dim(0), width, kv.v.data());
}

void OpQueue::kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to) {
  flush();
  const View& first = layers[0].k;
  const std::int64_t n = from.dim(0), bytes = first.dim(2) * first.dim(3) * traits(first.type()).block_bytes;
  const std::int64_t fit = std::clamp<std::int64_t>(kSlotBytes / (n * bytes), 2, kMostMemories) / 2;  // layers
  for (std::span<const KvViews> left = layers; !left.empty();) {
    const std::size_t count = std::min(left.size(), static_cast<std::size_t>(fit));
    SlotMemories memories;
    for (const KvViews& kv : left.first(count))
      for (const View& memory : {kv.k, kv.v}) memories.first[memories.count++] = memory.data();
    std::byte* const copies = slots_.at_least(static_cast<std::size_t>(memories.count * n * bytes));
    gather_slots(queue_, memories, ints(from), n, bytes, copies);
    scatter_slots(queue_, copies, ints(to), n, bytes, memories);
    left = left.subspan(count);
  }
}

void OpQueue::attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  const ConstView written = just_written_;
  flush();
  AttentionCall call = attention_call(q, kv, rows, scale, out);
  const std::int64_t for_row = attention_tile_bytes(call);
  const std::int64_t at_once =
      std::clamp<std::int64_t>(kTileBytes / for_row, 1, std::min(call.rows, kMostAttentionRows));
  const AttentionScratch scratch{tiles_.at_least(static_cast<std::size_t>(at_once * for_row)),
                                 counts_.at_least(static_cast<std::size_t>(attention_count_bytes(call)))};
  if (at_once == call.rows) {
    if (!written.empty() && written.dim(0) <= kMostFreshSlots) {
      call.fresh = ints(written);
      call.fresh_count = written.dim(0);
    }
    return wait_with(Attention{call, scratch, out});
  }
  for (std::int64_t begin = 0; begin < call.rows; begin += at_once)
    cuda::attention(queue_, rows_of_call(call, begin, std::min(at_once, call.rows - begin)), scratch, {});
}

// --- the rest -------------------------------------------------------------------------------------------------------
void OpQueue::swiglu(ConstView x, View y) {
  flush();
  wait_with(Swiglu{x, y});
}
void OpQueue::silu(View x) {
  flush();
  cuda::silu(queue_, floats(x), x.elements());
}
void OpQueue::gather_rows(ConstView x, ConstView index, View y) {
  flush();
  cuda::gather_rows(queue_, rows_of(x), ints(index), rows_of(y));
}
void OpQueue::argmax(ConstView x, View id) {
  flush();
  cuda::argmax(queue_, rows_of(x), scratch_for(rows_of(x), {}), ints(id));
}
void OpQueue::top_k(ConstView x, View value, View id) {
  flush();
  const std::int64_t k = value.dim(1);
  cuda::top_k(queue_, rows_of(x), k, scratch_for(rows_of(x), {k, 0}), floats(value), ints(id));
}
void OpQueue::log_sum_exp(ConstView x, float scale, View y) {
  flush();
  cuda::log_sum_exp(queue_, rows_of(x), scale, scratch_for(rows_of(x), {}), floats(y));
}
VocabularyScratch OpQueue::scratch_for(ConstRows x, VocabularyRanks wanted) {
  return vocabulary_scratch(x, wanted, vocabulary_.at_least(static_cast<std::size_t>(vocabulary_bytes(x, wanted))),
                            counts_.at_least(static_cast<std::size_t>(vocabulary_count_bytes(x))));
}

}  // namespace espalier::cuda
