// Elements of a view, read and written one by one: types, strides and layouts end here.
#pragma once

#include <cstdint>
#include <vector>

#include "descriptors.h"

namespace ascend_fake {

// Calls visit(first element, step, count) for every innermost row of the view, in the order of its dimensions.
template <typename Visit>
void for_each_row(const Operand& operand, Visit&& visit) {
  const size_t rank = operand.dims.size();
  const int64_t count = operand.dims[rank - 1];
  const int64_t step = operand.strides[rank - 1];
  const int64_t rows = operand.elements() / count;
  std::vector<int64_t> index(rank, 0);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t first = operand.offset;
    for (size_t i = 0; i + 1 < rank; ++i) first += index[i] * operand.strides[i];
    visit(first, step, count);
    for (size_t i = rank - 1; i-- > 0;) {
      if (++index[i] < operand.dims[i]) break;
      index[i] = 0;
    }
  }
}

std::vector<float> read_floats(const Operand& operand, const uint8_t* storage);
std::vector<int64_t> read_integers(const Operand& operand, const uint8_t* storage);
std::vector<uint8_t> read_raw(const Operand& operand, const uint8_t* storage);
// The matrix of an NZ operand, as its view tells it: plain or transposed.
std::vector<float> read_nz(const Operand& operand, const NzMatrix& matrix, const uint8_t* storage);
void write_floats(const Operand& operand, const std::vector<float>& values, uint8_t* storage);
void write_integers(const Operand& operand, const std::vector<int64_t>& values, uint8_t* storage);
void write_raw(const Operand& operand, const std::vector<uint8_t>& bytes, uint8_t* storage);

}  // namespace ascend_fake
