// What drafters that run a network need for rounds that stay on the device (resident_drafter.h): the rows of a first
// pass, which the host knows, the tables of later ones, which the device fills, and those of their guesses.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/resident_drafter.h"
#include "device/round_ops.h"
#include "model/rows.h"

namespace espalier {

// The rows of a first pass, column by column.
class FirstRows {
 public:
  void add(const Row& row, std::int32_t slot, std::size_t tree);
  std::int64_t size() const { return std::ssize(token_); }

  // Without blocks.
  RowTables add_to(UploadedTables& tables) const;
  const std::vector<std::int32_t>& inputs() const { return input_; }

  static constexpr std::int64_t kWords = 8;  // that add_to() takes for each row

 private:
  std::vector<std::int32_t> token_, position_, slot_, sequence_, begin_, end_, input_;
};

// The tables of later passes, one after the other in the same memory.
class PlacedPasses {
 public:
  PlacedPasses(Device& device, std::int64_t rows, std::int64_t ancestors);
  PlacedRows rows(std::int64_t count, std::int64_t ancestors, bool inputs) const;

 private:
  Tensor columns_, ancestors_;
};

class GuessBuffers {
 public:
  GuessBuffers(Device& device, std::int64_t rows, std::int64_t guesses);
  GuessTables tables(std::int64_t rows, std::int64_t guesses) const;

 private:
  Tensor token_, count_;
  Tensor log_probability_;  // f64
};

// The guesses of a pass that has a row for every node of the frontier, in their order, or for every root.
LevelGuesses rank(RoundOps& ops, RankGuesses guesses, const ResidentTrees& trees);

}  // namespace espalier
