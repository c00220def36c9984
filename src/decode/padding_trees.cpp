#include "decode/padding_trees.h"

#include <algorithm>

namespace espalier {

std::int64_t trees_of_round(const Device& device, std::int64_t trees, std::int64_t most) {
  return std::min(rows_of_step(device, trees), most);
}

std::int64_t padding_tree_slots(const Device& device, std::int64_t most, std::int64_t rows, std::int64_t block_size) {
  std::int64_t padding = 0;
  for (std::int64_t trees = 1; trees <= most; ++trees)
    padding = std::max(padding, trees_of_round(device, trees, most) - trees);
  return padding * ((rows + block_size - 1) / block_size) * block_size;
}

std::span<const std::int32_t> PaddingTrees::blocks(std::int64_t i) const {
  return tables_->padding_blocks().subspan(static_cast<std::size_t>(i * blocks_), static_cast<std::size_t>(blocks_));
}

std::int32_t PaddingTrees::slot(std::int64_t i, std::int64_t place) const {
  return tables_->padding_slot(i * blocks_ * tables_->block_size() + place);
}

}  // namespace espalier
