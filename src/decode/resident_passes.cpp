#include "decode/resident_passes.h"

namespace espalier {
namespace {

constexpr std::int64_t kColumns = 8;  // of the tables of a pass

}  // namespace

void FirstRows::add(const Row& row, std::int32_t slot, std::size_t tree) {
  token_.push_back(row.token);
  position_.push_back(row.position);
  slot_.push_back(slot);
  sequence_.push_back(static_cast<std::int32_t>(tree));
  begin_.push_back(row.begin);
  end_.push_back(row.end);
  input_.push_back(row.input);
}

RowTables FirstRows::add_to(UploadedTables& tables) const {
  const std::vector<std::int32_t> none(token_.size());
  return {.token = tables.add(token_),
          .position = tables.add(position_),
          .slot = tables.add(slot_),
          .sequence = tables.add(sequence_),
          .begin = tables.add(begin_),
          .end = tables.add(end_),
          .ancestor_count = tables.add(none),
          .ancestors = tables.add(none).reshaped({size(), 1}),
          .blocks = {},
          .mask = {}};
}

PlacedPasses::PlacedPasses(Device& device, std::int64_t rows, std::int64_t ancestors)
    : columns_(device.tensor(DType::i32, {kColumns, rows})),
      ancestors_(device.tensor(DType::i32, {rows * ancestors})) {}

PlacedRows PlacedPasses::rows(std::int64_t count, std::int64_t ancestors, bool inputs) const {
  const auto column = [&](std::int64_t i) { return columns_.view.rows(i, 1).columns(0, count).reshaped({count}); };
  return {.token = column(0),
          .position = column(1),
          .slot = column(2),
          .sequence = column(3),
          .begin = column(4),
          .end = column(5),
          .ancestor_count = column(6),
          .ancestors = ancestors_.view.rows(0, count * ancestors).reshaped({count, ancestors}),
          .input = inputs ? column(7) : View()};
}

LevelGuesses rank(RoundOps& ops, RankGuesses guesses, const ResidentTrees& trees) {
  guesses.vocabulary = trees.vocabulary;
  ops.run(guesses);
  const std::int64_t rows = trees.shape.trees * trees.width;
  return {.guesses = guesses.guesses, .row = trees.counting.rows(0, rows).reshaped({trees.shape.trees, trees.width})};
}

GuessBuffers::GuessBuffers(Device& device, std::int64_t rows, std::int64_t guesses)
    : token_(device.tensor(DType::i32, {rows * guesses})),
      count_(device.tensor(DType::i32, {rows})),
      log_probability_(device.tensor(DType::f64, {rows * guesses})) {}

GuessTables GuessBuffers::tables(std::int64_t rows, std::int64_t guesses) const {
  return {.token = token_.view.rows(0, rows * guesses).reshaped({rows, guesses}),
          .log_probability = log_probability_.view.rows(0, rows * guesses).reshaped({rows, guesses}),
          .count = count_.view.rows(0, rows)};
}

}  // namespace espalier
