// The rows of one draft pass over several sequences, for drafters that run a network: computed in as few steps as they
// fit into, and the guesses handed back to whom they belong.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "decode/drafter.h"
#include "model/rows.h"

namespace espalier {

// Rows [begin, end) of those that a job has in the pass.
struct DraftPart {
  std::size_t job = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

class DraftPass {
 public:
  // The rows of the next job. The order of its rows that want logits is that of the job's nodes.
  void add(std::span<const Row> rows);

  // Computes the rows, at most `step_rows` at a time. `step` is told whose they are, and returns the guesses of those
  // that want logits. Returns all of them, one list after the other.
  using Step = std::function<Guesses(std::span<const Row> rows, std::span<const DraftPart> parts)>;
  Guesses run(std::int64_t step_rows, const Step& step) const;

 private:
  std::vector<DraftPart> parts(std::int64_t begin, std::int64_t end) const;

  std::vector<Row> rows_;
  std::vector<std::int64_t> ends_;  // of each job's rows
};

// The lists of `flat` for the jobs that had rows, in their order; empty ones for the others.
std::vector<Guesses> guesses_by_job(std::span<const DraftJob> jobs, const std::vector<bool>& had_rows, Guesses flat);

}  // namespace espalier
