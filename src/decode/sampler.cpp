#include "decode/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/arithmetic.h"
#include "base/error.h"
#include "base/math.h"

namespace espalier {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void expect_range(const char* option, float value, float low, float high) {
  if (!(value >= low && value <= high)) input_error("{}: expected {} to {}, got {}", option, low, high, value);
}

// How often each id occurs; sorted by id.
std::vector<std::pair<std::int32_t, int>> count_tokens(std::span<const std::int32_t> tokens) {
  std::vector<std::int32_t> sorted(tokens.begin(), tokens.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::pair<std::int32_t, int>> counts;
  for (std::int32_t token : sorted) {
    if (counts.empty() || counts.back().first != token) counts.emplace_back(token, 0);
    ++counts.back().second;
  }
  return counts;
}

void ban(std::span<const std::int32_t> ids, std::vector<float>& logits) {
  for (std::int32_t id : ids)
    if (id >= 0 && static_cast<std::size_t>(id) < logits.size()) logits[static_cast<std::size_t>(id)] = -kInfinity;
}

void apply_bias(const SamplingOptions& options, std::vector<float>& logits) {
  for (const auto& [id, bias] : options.logit_bias)
    if (id >= 0 && static_cast<std::size_t>(id) < logits.size()) logits[static_cast<std::size_t>(id)] += bias;
}

void apply_penalties(const SamplingOptions& options, const TokenPath& path, std::vector<float>& logits) {
  if (options.repeat_penalty != 1.0f)
    for (const auto& [id, count] : count_tokens(path.tokens)) {
      float& logit = logits[static_cast<std::size_t>(id)];
      logit = logit > 0 ? logit / options.repeat_penalty : logit * options.repeat_penalty;
    }
  if (options.presence_penalty != 0.0f || options.frequency_penalty != 0.0f)
    for (const auto& [id, count] : count_tokens(path.tokens.subspan(path.prompt))) {
      float& logit = logits[static_cast<std::size_t>(id)];
      logit = logit - options.presence_penalty;
      logit = logit - options.frequency_penalty * static_cast<float>(count);
    }
}

std::int32_t argmax(const std::vector<float>& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The ids that may still be drawn, ordered by (logit descending, id ascending), and the weight exp(logit - max) of
// each. Only the first `sorted_` are in their final order: few draws look far down the list.
class Ranking {
 public:
  explicit Ranking(const std::vector<float>& logits) : logits_(logits), ids_(logits.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
    largest_ = *std::max_element(logits.begin(), logits.end());
    std::erase_if(ids_, [this](std::int32_t id) { return logit(id) == -kInfinity; });
  }

  std::size_t size() const { return ids_.size(); }
  double weight(std::int32_t id) const { return exp_f32(logit(id) - largest_); }

  // The id at this rank, sorting as far as needed.
  std::int32_t at(std::size_t rank) {
    if (rank >= sorted_) {
      const std::size_t end = std::min(ids_.size(), std::max<std::size_t>(64, 2 * (rank + 1)));
      const auto first = ids_.begin() + static_cast<std::ptrdiff_t>(sorted_);
      std::partial_sort(
          first, ids_.begin() + static_cast<std::ptrdiff_t>(end), ids_.end(),
          [this](std::int32_t a, std::int32_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
      sorted_ = end;
    }
    return ids_[rank];
  }

  void keep_first(std::size_t count) {
    if (count >= ids_.size()) return;
    at(count - 1);
    ids_.resize(count);
    sorted_ = count;
  }

  // The sum of all weights, in double: the weight of id j goes to lane j mod 256, ids ascending, an order that no sort
  // can change; ids that were not kept are left out.
  double total() const {
    std::vector<std::int32_t> ascending(ids_);
    if (sorted_ > 0) std::sort(ascending.begin(), ascending.end());
    double lane[kVocabularyLanes] = {};
    for (std::int32_t id : ascending) lane[static_cast<std::size_t>(id) % kVocabularyLanes] += weight(id);
    return add_halves(lane);
  }

 private:
  float logit(std::int32_t id) const { return logits_[static_cast<std::size_t>(id)]; }

  const std::vector<float>& logits_;
  std::vector<std::int32_t> ids_;
  std::size_t sorted_ = 0;
  float largest_;
};

void keep_top_p(double p, Ranking& ranking) {
  const double enough = p * ranking.total();
  double sum = 0;
  std::size_t count = 0;
  while (count < ranking.size() && (count == 0 || sum < enough)) sum += ranking.weight(ranking.at(count++));
  ranking.keep_first(count);
}

void keep_min_p(double share, Ranking& ranking) {
  std::size_t count = 1;  // the largest has weight 1
  while (count < ranking.size() && ranking.weight(ranking.at(count)) >= share) ++count;
  ranking.keep_first(count);
}

std::int32_t draw(Ranking& ranking, double u) {
  const double target = u * ranking.total();
  double sum = 0;
  std::int32_t last = ranking.at(0);
  for (std::size_t rank = 0; rank < ranking.size(); ++rank) {
    const double weight = ranking.weight(ranking.at(rank));
    if (weight == 0) break;  // the rest has no share
    last = ranking.at(rank);
    sum += weight;
    if (sum > target) return last;
  }
  return last;  // rounding left u a hair above the last step
}

void check_largest(float largest) {
  if (largest == kInfinity) input_error("the model's logits contain plus infinity");
  if (largest == -kInfinity) input_error("the model's logits contain no finite number");
}

// The most probable id of unchanged logits, without a copy: sixteen maxima side by side, then the first that equals
// the largest. NaN is never larger than anything.
std::int32_t greedy(std::span<const float> logits) {
  float lanes[16];
  std::fill(std::begin(lanes), std::end(lanes), -kInfinity);
  const std::size_t whole = logits.size() / 16 * 16;
  for (std::size_t i = 0; i < whole; i += 16)
    for (std::size_t j = 0; j < 16; ++j) lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
  for (std::size_t i = whole; i < logits.size(); ++i) lanes[0] = logits[i] > lanes[0] ? logits[i] : lanes[0];
  const float largest = *std::max_element(std::begin(lanes), std::end(lanes));
  check_largest(largest);
  return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
}

// A copy with NaN as minus infinity.
std::vector<float> usable_logits(std::span<const float> logits) {
  std::vector<float> values(logits.begin(), logits.end());
  bool finite = false;
  for (float& value : values) {
    if (value == kInfinity) input_error("the model's logits contain plus infinity");
    if (std::isnan(value)) value = -kInfinity;
    finite = finite || value != -kInfinity;
  }
  if (!finite) input_error("the model's logits contain no finite number");
  return values;
}

}  // namespace

bool changes_logits(const SamplingOptions& options) {
  return !options.logit_bias.empty() || options.repeat_penalty != 1.0f || options.presence_penalty != 0.0f ||
         options.frequency_penalty != 0.0f;
}

void check_options(const SamplingOptions& options) {
  for (const auto& [id, bias] : options.logit_bias)
    if (std::isnan(bias) || bias == kInfinity) input_error("--logit-bias {}: expected a number, got {}", id, bias);
  expect_range("--repeat-penalty", options.repeat_penalty, 0.01f, 100);
  expect_range("--presence-penalty", options.presence_penalty, -100, 100);
  expect_range("--frequency-penalty", options.frequency_penalty, -100, 100);
  expect_range("--temperature", options.temperature, 0, 100);
  if (options.top_k < 0) input_error("--top-k: expected 0 or more, got {}", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1)) input_error("--top-p: expected above 0 to 1, got {}", options.top_p);
  expect_range("--min-p", options.min_p, 0, 1);
}

bool largest_decides(const SamplingOptions& options) {
  return options.temperature == 0.0f && !changes_logits(options);
}

std::int32_t sample_largest(float largest, std::int32_t best) {
  check_largest(largest);
  return best;
}

std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, const TokenPath& path, double u,
                    std::span<const std::int32_t> banned) {
  check(u >= 0 && u < 1, "sample: u = {}, expected 0 <= u < 1", u);
  if (largest_decides(options) && banned.empty()) return greedy(logits);
  std::vector<float> values = usable_logits(logits);
  ban(banned, values);
  apply_bias(options, values);
  apply_penalties(options, path, values);
  values = usable_logits(values);
  const std::int32_t best = argmax(values);
  if (options.temperature == 0.0f) return best;
  // Relative to the largest, so that no temperature can overflow.
  const float largest = values[static_cast<std::size_t>(best)];
  for (float& value : values) value = (value - largest) / options.temperature;
  Ranking ranking(values);
  if (options.top_k > 0) ranking.keep_first(static_cast<std::size_t>(options.top_k));
  if (options.top_p < 1.0f) keep_top_p(options.top_p, ranking);
  if (options.min_p > 0.0f) keep_min_p(options.min_p, ranking);
  return draw(ranking, u);
}

Logprobs logprobs(std::span<const float> logits, std::int32_t token, std::int64_t n) {
  const std::vector<float> values = usable_logits(logits);
  Ranking ranking(values);
  const double log_total = log_f64(ranking.total());  // before anything is sorted: then no id is out of place
  const float largest = values[static_cast<std::size_t>(ranking.at(0))];
  const auto of = [&](std::int32_t id) {
    return TokenLogprob{id, double{values[static_cast<std::size_t>(id)]} - double{largest} - log_total};
  };
  Logprobs result{of(token), {}};
  for (std::size_t rank = 0; rank < std::min(ranking.size(), static_cast<std::size_t>(n)); ++rank)
    result.top.push_back(of(ranking.at(rank)));
  return result;
}

}  // namespace espalier
