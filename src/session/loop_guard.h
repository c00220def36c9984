// Notices an answer that goes round in circles: three equal stretches of tokens in a row, each of at least 32. Judged
// token by token, so how many of them a round brings does not matter.
#pragma once

#include <cstdint>
#include <vector>

namespace espalier {

class LoopGuard {
 public:
  static constexpr std::size_t kShortestStretch = 32;
  static constexpr std::size_t kStretches = 3;

  // Takes the next token of the answer; true when it completes the third stretch.
  bool push(std::int32_t token);

 private:
  std::vector<std::int32_t> tokens_;
  // How many of the last tokens equal those `period` before them, by period; below kShortestStretch never used.
  std::vector<std::size_t> equal_;
};

}  // namespace espalier
