// Operators that move rows by index, and those that only change the shape (F22, F23).
#include <cstring>
#include <set>

#include "op.h"

namespace ascend_fake {
namespace {

// The rows of table that indices name, as [outer, indices, inner] elements.
void take_rows(OpRun& run, const Operand& table, int64_t dim, const std::vector<int64_t>& rows, const Operand& out) {
  const Around shape = around(table.dims, dim);
  Operand slice = table;  // one index of dim
  slice.dims[static_cast<size_t>(dim)] = 1;
  const int64_t bytes = table.element_bytes();
  const int64_t run_bytes = shape.inner * bytes;
  std::vector<uint8_t> result(static_cast<size_t>(shape.outer) * rows.size() * static_cast<size_t>(run_bytes));
  for (size_t i = 0; i < rows.size(); ++i) {
    slice.offset = table.offset + rows[i] * table.strides[static_cast<size_t>(dim)];
    const std::vector<uint8_t> row = run.raw(slice);
    for (int64_t o = 0; o < shape.outer; ++o) {
      std::memcpy(result.data() + (static_cast<size_t>(o) * rows.size() + i) * static_cast<size_t>(run_bytes),
                  row.data() + o * run_bytes, static_cast<size_t>(run_bytes));
    }
  }
  run.store_raw(out, result);
}

void gather(OpCall& op, const Operand& table, int64_t dim, const Operand& index, const Operand& out) {
  op.need(is_index(index.type), "the index is neither i32 nor i64");
  op.need(table.type == out.type && bits_of(table.type) >= 8, "input and output are not of one type");
  const int64_t place = dimension(op, dim, table.rank());
  Shape expected(table.dims.begin(), table.dims.begin() + place);
  expected.insert(expected.end(), index.dims.begin(), index.dims.end());
  expected.insert(expected.end(), table.dims.begin() + place + 1, table.dims.end());
  op.need(out.dims == expected, "the output is " + text_of(out.dims) + ", expected " + text_of(expected));
  op.violation(16, !out.dense(), "a strided output, of which nobody knows whether it works");
  op.runs([=](OpRun& run) {
    const std::vector<int64_t> rows = run.integers(index);
    for (const int64_t row : rows) run.need_index(row, table.dim(place), "index");
    take_rows(run, table, place, rows, out);
  });
}

// F23: any of the rows that name one target may win.
std::vector<size_t> writing_order(OpRun& run, const std::vector<int64_t>& targets) {
  std::vector<size_t> order(targets.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (std::set<int64_t>(targets.begin(), targets.end()).size() == targets.size()) return order;
  run.violation(23, "an index occurs twice");
  if (run.seed() % 2 == 1) return {order.rbegin(), order.rend()};
  return order;
}

void put_rows(OpRun& run, const Operand& table, int64_t dim, const std::vector<int64_t>& rows, const Operand& source) {
  Operand from = source;
  Operand to = table;
  const size_t place = static_cast<size_t>(dim);
  from.dims[place] = 1;
  to.dims[place] = 1;
  for (const size_t i : writing_order(run, rows)) {
    from.offset = source.offset + static_cast<int64_t>(i) * source.strides[place];
    to.offset = table.offset + rows[i] * table.strides[place];
    run.store_raw(to, run.raw(from));
  }
}

// A cache [blocks, block, G, D] seen as its slots.
Operand as_slots(const Operand& cache) {
  Operand slots = cache;
  slots.dims = {cache.dims[0] * cache.dims[1], cache.dims[2] * cache.dims[3]};
  slots.strides = {cache.dims[2] * cache.dims[3], 1};
  return slots;
}

Operand as_rows(const Operand& tokens) {
  Operand rows = tokens;
  rows.dims = {tokens.dims[0], tokens.dims[1] * tokens.dims[2]};
  rows.strides = {tokens.dims[1] * tokens.dims[2], 1};
  return rows;
}

}  // namespace

// A negative index faults; one too large gives garbage.
ASCEND_FAKE_OP(Embedding)
aclnnStatus aclnnEmbeddingGetWorkspaceSize(const aclTensor* weight, const aclTensor* indices, aclTensor* out,
                                           uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Embedding, [&](OpCall& op) {
    const Operand table = op.in(weight, "weight");
    const Operand index = op.in(indices, "indices");
    const Operand y = op.out(out, "out");
    op.need(is_index(index.type), "the index is neither i32 nor i64");
    op.need(table.rank() == 2, "the weight is not 2-D");
    op.need(table.type == y.type && bits_of(table.type) >= 8, "the output is not of the weight's type");
    Shape expected = index.dims;
    expected.push_back(table.dim(1));
    op.need(y.dims == expected, "the output is " + text_of(y.dims) + ", expected " + text_of(expected));
    op.runs([=](OpRun& run) {
      std::vector<int64_t> rows = run.integers(index);
      for (int64_t& row : rows) {
        if (row < 0) run.need_index(row, table.dim(0), "index");
        if (row < table.dim(0)) continue;
        run.violation(23, "embedding index " + std::to_string(row) + " of " + std::to_string(table.dim(0)));
        row = 0;
      }
      take_rows(run, table, 0, rows, y);
    });
  });
}

ASCEND_FAKE_OP(GatherV2)
aclnnStatus aclnnGatherV2GetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out,
                                          uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(GatherV2, [&](OpCall& op) {
    const Operand table = op.in(self, "self");
    const Operand rows = op.in(index, "index");
    gather(op, table, dim, rows, op.out(out, "out"));
  });
}

ASCEND_FAKE_OP(IndexSelect)
aclnnStatus aclnnIndexSelectGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out,
                                             uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(IndexSelect, [&](OpCall& op) {
    const Operand table = op.in(self, "self");
    const Operand rows = op.in(index, "index");
    op.need(rows.rank() == 1, "the index is not 1-D");
    gather(op, table, dim, rows, op.out(out, "out"));
  });
}

ASCEND_FAKE_OP(InplaceIndexCopy)
aclnnStatus aclnnInplaceIndexCopyGetWorkspaceSize(aclTensor* selfRef, int64_t dim, const aclTensor* index,
                                                  const aclTensor* source, uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(InplaceIndexCopy, [&](OpCall& op) {
    op.copies_inside();
    const Operand table = op.in_out(selfRef, "selfRef");
    const Operand rows = op.in(index, "index");
    const Operand values = op.in(source, "source");
    op.need(is_index(rows.type) && rows.rank() == 1, "the index is not 1-D of i32 or i64");
    op.need(table.type == values.type && bits_of(table.type) >= 8, "source and target are not of one type");
    const int64_t place = dimension(op, dim, table.rank());
    Shape expected = table.dims;
    expected[static_cast<size_t>(place)] = rows.dim(0);
    op.need(values.dims == expected, "the source is " + text_of(values.dims) + ", expected " + text_of(expected));
    op.runs([=](OpRun& run) {
      const std::vector<int64_t> targets = run.integers(rows);
      for (const int64_t row : targets) run.need_index(row, table.dim(place), "index");
      put_rows(run, table, place, targets, values);
    });
  });
}

ASCEND_FAKE_OP_SINCE(ScatterPaKvCache, 85)
aclnnStatus aclnnScatterPaKvCacheGetWorkspaceSize(const aclTensor* key, aclTensor* keyCacheRef,
                                                  const aclTensor* slotMapping, const aclTensor* value,
                                                  aclTensor* valueCacheRef, const aclTensor* compressLens,
                                                  const aclTensor* compressSeqOffset, const aclTensor* seqLens,
                                                  char* cacheMode, char* scatterMode, const aclIntArray* strides,
                                                  const aclIntArray* offsets, uint64_t* size,
                                                  aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(ScatterPaKvCache, [&](OpCall& op) {
    const Operand k = op.in(key, "key");
    const Operand k_cache = op.in_out(keyCacheRef, "keyCacheRef");
    const Operand slots = op.in(slotMapping, "slotMapping");
    const Operand v = op.in(value, "value");
    const Operand v_cache = op.in_out(valueCacheRef, "valueCacheRef");
    for (const void* unknown : {static_cast<const void*>(compressLens), static_cast<const void*>(compressSeqOffset),
                                static_cast<const void*>(seqLens), static_cast<const void*>(strides),
                                static_cast<const void*>(offsets), static_cast<const void*>(scatterMode)}) {
      op.unused(unknown, "an optional argument");
    }
    op.need(op.word(cacheMode, "cacheMode") == "Norm", "a cache mode other than Norm");
    op.need(is_16_bit_float(k.type) || k.type == ACL_INT8, "not f16, bf16 or i8");
    op.need(k.type == v.type && k.type == k_cache.type && k.type == v_cache.type, "not of one type");
    op.need(k.rank() == 3 && k.dims == v.dims && k_cache.rank() == 4 && k_cache.dims == v_cache.dims &&
                slots.dims == Shape{k.dim(0)} && k.dim(1) == k_cache.dim(2) && k.dim(2) == k_cache.dim(3),
            "keys [T, G, D], a cache [blocks, block, G, D] and slots [T]");
    op.need(is_index(slots.type) && k.dense() && v.dense() && k_cache.dense() && v_cache.dense(), "not dense");
    op.runs([=](OpRun& run) {
      const std::vector<int64_t> targets = run.integers(slots);
      for (const int64_t slot : targets) run.need_index(slot, k_cache.dim(0) * k_cache.dim(1), "slot");
      put_rows(run, as_slots(k_cache), 0, targets, as_rows(k));
      put_rows(run, as_slots(v_cache), 0, targets, as_rows(v));
    });
  });
}

ASCEND_FAKE_OP(Cat)
aclnnStatus aclnnCatGetWorkspaceSize(const aclTensorList* tensors, int64_t dim, aclTensor* out, uint64_t* size,
                                     aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Cat, [&](OpCall& op) {
    const std::vector<Operand> parts = op.list(tensors, "tensors");
    const Operand y = op.out(out, "out");
    const size_t place = static_cast<size_t>(dimension(op, dim, y.rank()));
    int64_t extent = 0;
    for (const Operand& part : parts) {
      op.need(part.rank() == y.rank() && part.type == y.type && bits_of(part.type) >= 8,
              "parts of another rank or type");
      Shape expected = y.dims;
      expected[place] = part.dims[place];
      op.need(part.dims == expected, "a part of another shape");
      extent += part.dims[place];
    }
    op.need(extent == y.dims[place], "the parts do not fill the output");
    op.runs([=](OpRun& run) {
      Operand target = y;
      for (const Operand& part : parts) {
        target.dims = part.dims;
        run.store_raw(target, run.raw(part));
        target.offset += part.dims[place] * y.strides[place];
      }
    });
  });
}

ASCEND_FAKE_OP(Permute)
aclnnStatus aclnnPermuteGetWorkspaceSize(const aclTensor* self, const aclIntArray* dims, aclTensor* out, uint64_t* size,
                                         aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Permute, [&](OpCall& op) {
    const Operand x = op.in(self, "self");
    const Shape order = op.integers(dims, "dims");
    const Operand y = op.out(out, "out");
    op.need(x.type == y.type && bits_of(x.type) >= 8, "input and output are not of one type");
    op.need(static_cast<int64_t>(order.size()) == x.rank(), "an order of another rank");
    Operand turned = x;
    std::set<int64_t> seen;
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t from = static_cast<size_t>(dimension(op, order[i], x.rank()));
      seen.insert(static_cast<int64_t>(from));
      turned.dims[i] = x.dims[from];
      turned.strides[i] = x.strides[from];
    }
    op.need(seen.size() == order.size() && turned.dims == y.dims, "the output is not the permuted input");
    op.runs([=](OpRun& run) { run.store_raw(y, run.raw(turned)); });
  });
}

}  // namespace ascend_fake
