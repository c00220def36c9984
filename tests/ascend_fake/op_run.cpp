// What operators compute with: values in and out of device memory, shapes and broadcasting.
#include <algorithm>

#include "op.h"

namespace ascend_fake {

uint8_t* OpRun::storage(const Operand& operand) {
  const Ranges bytes = operand.bytes();
  Allocation* home = fake_.memory.at(operand.address);
  if (home == nullptr || bytes.back().end > home->address() + home->size()) {
    throw Fault{kCoreFault, "memory that was freed"};
  }
  return home->at(operand.address);
}

bool OpRun::written(const Operand& operand) {
  return fake_.memory.written(operand.bytes());
}

void OpRun::need_written(const Operand& operand) {
  if (!written(operand)) violation(24, "reads an element of " + text_of(operand) + " that nobody wrote");
}

std::vector<float> OpRun::floats_of_any(const Operand& operand) {
  const uint8_t* bytes = storage(operand);
  if (operand.format != ACL_FORMAT_FRACTAL_NZ) return read_floats(operand, bytes);
  const NzMatrix* matrix = fake_.memory.converted({operand.address, operand.address + 1});
  if (matrix == nullptr) throw Fault{kCoreFault, "a converted weight that was overwritten"};
  return read_nz(operand, *matrix, bytes);
}

std::vector<float> OpRun::floats(const Operand& operand) {
  need_written(operand);
  return floats_of_any(operand);
}

std::vector<int64_t> OpRun::integers(const Operand& operand) {
  need_written(operand);
  return read_integers(operand, storage(operand));
}

std::vector<uint8_t> OpRun::raw(const Operand& operand) {
  need_written(operand);
  return read_raw(operand, storage(operand));
}

std::vector<uint8_t> OpRun::truths(const Operand& operand) {
  std::vector<uint8_t> values = raw(operand);
  if (std::any_of(values.begin(), values.end(), [](uint8_t value) { return value > 1; })) {
    violation(34, "a byte of a mask is neither 0 nor 1");
  }
  return values;
}

void OpRun::mark_written(const Operand& operand) {
  for (const Range& range : operand.bytes()) fake_.memory.containing(range)->mark_written(range);
}

void OpRun::store(const Operand& operand, const std::vector<float>& values) {
  write_floats(operand, values, storage(operand));
  mark_written(operand);
}

void OpRun::store(const Operand& operand, const std::vector<int64_t>& values) {
  write_integers(operand, values, storage(operand));
  mark_written(operand);
}

void OpRun::store(const Operand& operand, const std::vector<uint8_t>& truths) {
  write_raw(operand, truths, storage(operand));
  mark_written(operand);
}

void OpRun::store_raw(const Operand& operand, const std::vector<uint8_t>& bytes) {
  write_raw(operand, bytes, storage(operand));
  mark_written(operand);
}

void OpRun::need_index(int64_t index, int64_t extent, const char* what, int code) const {
  if (index >= 0 && index < extent) return;
  throw Fault{code,
              std::string(what) + " " + std::to_string(index) + " is outside [0, " + std::to_string(extent) + ")"};
}

int64_t dimension(const OpCall& op, int64_t dim, int64_t rank) {
  op.need(dim >= -rank && dim < rank, "dimension " + std::to_string(dim) + " of rank " + std::to_string(rank));
  return dim < 0 ? dim + rank : dim;
}

Around around(const Shape& dims, int64_t dim) {
  Around result{1, dims[static_cast<size_t>(dim)], 1};
  for (size_t i = 0; i < dims.size(); ++i) {
    if (static_cast<int64_t>(i) < dim) result.outer *= dims[i];
    if (static_cast<int64_t>(i) > dim) result.inner *= dims[i];
  }
  return result;
}

Shape broadcast(const OpCall& op, const Shape& a, const Shape& b) {
  Shape result = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  const size_t skip = result.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t& dim = result[skip + i];
    op.need(dim == shorter[i] || dim == 1 || shorter[i] == 1, text_of(a) + " and " + text_of(b) + " do not fit");
    dim = std::max(dim, shorter[i]);
  }
  return result;
}

std::vector<int64_t> broadcast_indices(const Shape& shape, const Shape& target) {
  Operand view{.dims = target, .strides = Shape(target.size(), 0)};
  const size_t skip = target.size() - shape.size();
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] > 1) view.strides[skip + i] = stride;
    stride *= shape[i];
  }
  std::vector<int64_t> indices;
  indices.reserve(static_cast<size_t>(product(target)));
  for_each_row(view, [&](int64_t first, int64_t step, int64_t count) {
    for (int64_t i = 0; i < count; ++i) indices.push_back(first + i * step);
  });
  return indices;
}

}  // namespace ascend_fake
