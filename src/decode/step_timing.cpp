#include "decode/step_timing.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"

namespace espalier {
namespace {

constexpr std::array<std::int32_t, 18> kRows = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512};
// The cost of attention is a straight line over the context: two points of it. Where steps are slow the second comes
// earlier, but not before kNearest: two that are too near say nothing of those far away.
constexpr std::array<std::int64_t, 2> kContexts = {64, 512};
constexpr std::int64_t kNearest = 192;
// The part of the time after which each of them is finished with, and after which no more text is read.
constexpr std::array<double, 2> kDone = {0.45, 1.0};
constexpr double kRead = 0.75;
constexpr int kMostRepetitions = 7;
// Large steps are long, and noise is a smaller part of them. Where they are not, a device may record them: then the
// first two tell nothing.
constexpr int kRepetitionsOfLarge = 2;
constexpr std::int32_t kLarge = 24;
constexpr double kShort = 0.005;

// On a GPU many rows cost far less than in proportion, and no time to speak of.
std::int64_t most_rows(const Device& device, const KvCache& cache, const WorkspaceShape& shape, std::int64_t wanted) {
  const std::int64_t room = std::min(shape.positions, cache.free_positions()) / 2;
  const bool all = !device.row_buckets().empty();
  const std::int64_t most = all ? wanted : device.free_memory() ? std::max(kTimedRows, room) : kTimedRows;
  return std::min({wanted, most, shape.rows, shape.positions});
}

// The row counts that are worth measuring: buckets where the device has them.
std::vector<std::int32_t> row_counts(const Device& device, std::int64_t most) {
  std::vector<std::int32_t> counts = {1};
  if (device.row_buckets().empty())
    counts.assign(kRows.begin(), kRows.end());
  else
    for (std::int64_t bucket : device.row_buckets())
      if (bucket > 1) counts.push_back(static_cast<std::int32_t>(bucket));
  std::erase_if(counts, [=](std::int32_t rows) { return rows > most; });
  return counts;
}

class StepTiming {
 public:
  StepTiming(const Transformer& model, KvCache& cache, Workspace& workspace, const TimingOptions& options)
      : model_(model),
        cache_(cache),
        workspace_(workspace),
        options_(options),
        begin_(options.clock()),
        rows_(row_counts(model.device(), most_rows(model.device(), cache, workspace.shape(), options.rows))),
        longest_(workspace.shape().positions - rows_.back()),
        sequence_(cache.create()) {}
  ~StepTiming() { cache_.release(sequence_); }
  StepTiming(const StepTiming&) = delete;
  StepTiming& operator=(const StepTiming&) = delete;

  StepTimes measure() {
    StepTimes times;
    for (std::size_t i = 0; i < kContexts.size(); ++i) {
      const std::int64_t context = prefill(std::min(kContexts[i], std::max<std::int64_t>(longest_, 0)));
      if (i > 0 && context < kNearest) break;
      const std::vector<double> seconds = measure_rows(context, i);
      times.contexts.push_back(context);
      times.seconds.insert(times.seconds.end(), seconds.begin(), seconds.end());
    }
    times.rows = rows_;
    return times;
  }

 private:
  bool time_is_up(double share) const { return options_.clock() - begin_ > share * options_.seconds; }

  // Text up to `context`, or as much as there is time for. Tells how much.
  std::int64_t prefill(std::int64_t context) {
    while (cache_.length(sequence_) < context) {
      const std::int64_t first = cache_.length(sequence_);
      if (first >= kContexts[0] && time_is_up(kRead)) break;
      const std::int64_t count = std::min({context - first, workspace_.shape().rows, kTimedRows});
      std::optional<Branch> branch = cache_.begin(sequence_, count);
      std::vector<Row> rows;
      for (std::int64_t p = first; p < first + count; ++p) rows.push_back(model_.prefill_row(branch->id(), p, 0));
      rows.back().wants_logits = true;
      model_.forward(rows, workspace_);
      branch->commit_length(count);
    }
    return cache_.length(sequence_);
  }

  // The fastest of several steps for each number of rows: others can only have made one slower. In the first context
  // the row counts that take too long fall away.
  std::vector<double> measure_rows(std::int64_t context, std::size_t index) {
    std::vector<double> fastest;
    step_seconds(1, context);                   // brings weights and buffers into the caches
    if (index == 0) begin_ = options_.clock();  // getting there may take long, and says nothing of steps
    for (int repetition = 0; repetition < kMostRepetitions; ++repetition) {
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        if (i > 1 && index == 0 && repetition == 0 && time_is_up(kDone[index])) rows_.resize(i);
        if (i >= rows_.size()) break;
        if (rows_[i] >= kLarge && repetition >= kRepetitionsOfLarge && fastest[i] > kShort) break;
        const double seconds = step_seconds(rows_[i], context);
        if (repetition == 0)
          fastest.push_back(seconds);
        else
          fastest[i] = std::min(fastest[i], seconds);
      }
      if (time_is_up(kDone[index])) break;
    }
    return fastest;
  }

  // A root and its children; what the tokens are does not matter.
  double step_seconds(std::int32_t count, std::int64_t context) {
    std::optional<Branch> branch = cache_.begin(sequence_, count);
    check(branch.has_value(), "timing: no room for {} rows behind {} positions", count, context);
    const auto root = static_cast<std::int32_t>(context);
    std::vector<Row> rows;
    for (std::int32_t k = 0; k < count; ++k) {
      const std::vector<std::int32_t> above(k == 0 ? 0 : 1, root);
      rows.push_back(model_.tree_row(branch->id(), context, root + k, 0, above));
      rows.back().wants_logits = k < workspace_.shape().outputs;
      rows.back().wants_taps = options_.taps;
    }
    const double begin = options_.clock();
    const StepOutput output = model_.forward(rows, workspace_);
    logits_.resize(static_cast<std::size_t>(output.logits.dim(1)));
    download<float>(model_.device(), output.logits.rows(0, 1), logits_);  // a step ends when its root can be looked at
    return std::max(options_.clock() - begin, 1e-9);                      // a clock may be coarse
  }

  const Transformer& model_;
  KvCache& cache_;
  Workspace& workspace_;
  const TimingOptions& options_;
  double begin_;
  std::vector<std::int32_t> rows_;
  std::int64_t longest_;  // the longest context behind which a step fits
  SequenceId sequence_;
  std::vector<float> logits_;
};

}  // namespace

StepTimes measure_step_times(const Transformer& model, KvCache& cache, Workspace& workspace,
                             const TimingOptions& options) {
  return StepTiming(model, cache, workspace, options).measure();
}

}  // namespace espalier
