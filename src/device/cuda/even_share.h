// How the products of a linear are shared out to the multiprocessors, so that all have about as much to do. A product
// is some groups of outputs times a block of rows. As many as go round evenly are computed whole; what is left is
// computed strand by strand, by whoever is free, and strands meet in memory. What also shares out is how many groups a
// product has.
#pragma once

#include <algorithm>
#include <cstdint>

namespace espalier::cuda {

struct EvenShare {
  int width = 1;       // groups of a product, the last of them may have fewer
  int row_blocks = 1;  // products with the same groups
  int products = 1;
  int whole = 0;  // the first so many; of the others an item is a strand
  int strands = 1;
  int items = 1;
};

// What a linear is, to whoever shares it out.
struct SharedWork {
  int groups = 1, row_blocks = 1, strands = 1;
  int most_width = 1;
  int quad_width = 4;  // groups that are multiplied together, all or none
  // Cycles of a strand of a product: to fetch it, for each group and for the rows; to multiply it, for each quad; to
  // bring its sums to memory and back, for each group, and to wait for the others, once.
  double fetch_group = 1, fetch_rows = 0, multiply_quad = 0, leave_group = 0, meet = 0;
};

// apart: strand by strand what does not go round
inline EvenShare share_of_width(const SharedWork& work, int width, bool apart, int processors) {
  EvenShare share;
  share.width = width;
  share.row_blocks = work.row_blocks;
  share.strands = work.strands;
  share.products = (work.groups + width - 1) / width * work.row_blocks;
  share.whole = apart ? share.products - share.products % processors : share.products;
  share.items = share.whole + (share.products - share.whole) * share.strands;
  return share;
}

// What the busiest multiprocessor has to do.
inline double cycles(const SharedWork& work, const EvenShare& share, int processors) {
  const auto turns = [&](int items) { return (items + processors - 1) / processors; };
  const int left = share.products - share.whole;
  const int quads = (share.width + work.quad_width - 1) / work.quad_width;
  const double strand = std::max(share.width * work.fetch_group + work.fetch_rows, quads * work.multiply_quad);
  const double apart = strand + share.width * work.leave_group;
  return turns(share.whole) * share.strands * strand + turns(left * share.strands) * apart + (left > 0 ? work.meet : 0);
}

inline EvenShare share_evenly(const SharedWork& work, int processors) {
  EvenShare best = share_of_width(work, work.most_width, false, processors);
  for (int width = work.most_width; width >= 1; --width)
    for (const bool apart : {false, true}) {
      const EvenShare other = share_of_width(work, width, apart, processors);
      if (cycles(work, other, processors) < cycles(work, best, processors)) best = other;
    }
  return best;
}

}  // namespace espalier::cuda
