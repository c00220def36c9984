#include "decode/network_sequence.h"

namespace espalier {
namespace {

const NetworkSequence& sequence_of(const DraftJob& job) {
  return *static_cast<const NetworkSequence*>(job.sequence);
}

}  // namespace

DraftedNodes NetworkSequence::drafted_nodes(const DraftJob& job, const DraftPart& part) const {
  const std::int64_t behind = std::ssize(job.nodes) - part.end;
  const NodePlaces places = node_places();
  return {.candidates = job.candidates,
          .nodes = std::span(drafted_).first(drafted_.size() - static_cast<std::size_t>(behind)),
          .step_rows = part.end - part.begin,
          .branch = branch_->id(),
          .prefix = places.prefix,
          .begin = places.begin,
          .root_position = places.root_position};
}

StepCheck check_of_first_pass(std::span<const DraftJob> jobs, std::span<const DraftPart> parts,
                              const BlockTables& blocks, const StepLimits& limits) {
  return [=, &blocks](const HostTables& tables) {
    std::vector<RunOfStep> runs;
    for (const DraftPart& part : parts) runs.push_back(sequence_of(jobs[part.job]).expected_run(part));
    check_draft_step(tables, runs, blocks, limits);
  };
}

StepCheck check_of_nodes(std::span<const DraftJob> jobs, std::span<const DraftPart> parts, const BlockTables& blocks,
                         const StepLimits& limits) {
  return [=, &blocks](const HostTables& tables) {
    std::vector<DraftedNodes> drafted;
    for (const DraftPart& part : parts)
      drafted.push_back(sequence_of(jobs[part.job]).drafted_nodes(jobs[part.job], part));
    check_draft_step(tables, drafted, blocks, limits);
  };
}

}  // namespace espalier
