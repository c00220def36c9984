// What the host does for a step of a batch, without the network: N answers decode greedily on a device on which a step
// costs nothing, or, with `rounds`, in rounds that stay on the device, of which the recorded step is left out. Should
// not matter beside a step of a GPU, a millisecond. Microseconds a step, the median of ten; from the repository's root:
// build/bin/bench_host_step [rounds] [users...]
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "decode/batch.h"
#include "decode/eagle_drafter.h"
#include "device/cpu/cpu_device.h"
#include "device/host_views.h"
#include "device/passing_device.h"
#include "device/reference/reference_device.h"
#include "model/eagle_head.h"

namespace espalier {
namespace {

constexpr std::int64_t kPrompt = 128, kContext = 512, kMeasured = 256;
constexpr std::int64_t kRounds = 32;
constexpr int kSamples = 10, kFirstTokens = 200;

// Moves bytes and computes nothing: logits stay what they are, and token 0 is the largest.
class IdleDevice final : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;

 private:
  std::span<const std::byte> do_lend(ConstView) override { return {}; }  // as if it had memory of its own
  void do_step(Recordings&, const StepKey&, const std::function<void()>&) override {}
  void do_top_k(ConstView, View, View) override {}
};

// Says how long its steps took, and thinks every second time what the head thinks first: so drafting pays.
class StepClock final : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  double seconds() const { return seconds_; }
  double steps() const { return steps_; }

 private:
  std::span<const std::byte> do_lend(ConstView) override { return {}; }
  void do_step(Recordings&, const StepKey&, const std::function<void()>& ops) override {
    const double begin = steady_seconds();
    ops();
    seconds_ += steady_seconds() - begin;
    ++steps_;
  }
  void do_round(const RoundOp& op) override {
    if (const auto* choose = std::get_if<ChooseTokens>(&op)) choice_ = choose->token;
    if (const auto* walk = std::get_if<WalkTrees>(&op))
      for (std::int64_t tree = 0; tree < walk->tree.trees(); ++tree)
        if (++walks_ % 2 == 0) ints(choice_)[tree * walk->tree.nodes()] = ints(walk->tree.token, tree)[1];
    inner().round_ops()->run(op);
    if (const auto* rank = std::get_if<RankGuesses>(&op)) be_sure(rank->guesses);
  }
  // As sure as a head that is right so often.
  static void be_sure(const GuessTables& guesses) {
    for (std::int64_t row = 0; row < guesses.log_probability.dim(0); ++row)
      for (std::int64_t i = 0; i < guesses.log_probability.dim(1); ++i)
        doubles(guesses.log_probability, row)[i] = -0.7 * static_cast<double>(i + 1);
  }
  double seconds_ = 0, steps_ = 0;
  View choice_;
  std::int64_t walks_ = 0;
};

// Reads a prompt of each user, then takes the time of steps in which all decode; `clock` leaves out what is not the
// host's.
double seconds_of_a_step(Batch& batch, int users, std::int32_t first, std::int64_t steps, const SecondsClock& clock) {
  GenerateOptions options;
  options.max_tokens = kContext - kPrompt;
  for (int user = 0; user < users; ++user) {
    const std::vector<std::int32_t> prompt(static_cast<std::size_t>(kPrompt), first + user);
    batch.submit({.prompt = prompt, .options = options});
  }
  const auto all_decode = [&] {
    return std::ranges::all_of(batch.running_answers(), [](const RunningAnswer& answer) { return answer.decodes; });
  };
  while (batch.waiting() > 0 || !all_decode()) batch.step();
  const double begin = clock();
  for (std::int64_t i = 0; i < steps; ++i) batch.step();
  const double seconds = (clock() - begin) / static_cast<double>(steps);
  check(batch.running() == users, "{} users, expected {}", batch.running(), users);
  while (batch.step()) {
  }
  return seconds;
}

double median_of_steps(Batch& batch, int users, std::int64_t steps, const SecondsClock& clock) {
  std::vector<double> seconds;
  for (int i = 0; i < kSamples; ++i)
    seconds.push_back(seconds_of_a_step(batch, users, i * users % kFirstTokens, steps, clock));
  std::ranges::sort(seconds);
  return seconds[kSamples / 2];
}

void measure_steps(int users) {
  const auto reference = make_reference_device();
  IdleDevice device(*reference);
  const Transformer model = load_transformer(device, "models/SmolLM2-135M-Instruct.Q4_1.gguf");
  Batch batch(model, {.context = kContext, .parallel = users}, {.budget = ChosenBudget{.cuts = false}});
  fmt::print("{:4} users {:8.1f} us a step\n", users, 1e6 * median_of_steps(batch, users, kMeasured, steady_seconds));
}

// Trees of a tiny teacher and its head, whose rows and levels are chosen as if all cost the same.
void measure_rounds(int users) {
  const auto cpu = make_cpu_device({.threads = 1});
  StepClock device(*cpu);
  const Transformer model = load_transformer(device, "tests/data/tiny/llama3");
  const EagleHead head(model, open_head("tests/data/heads/eagle3-specforge"), {});
  const TreeOptions tree;
  const auto drafters = [&](KvCache& cache, int sequences) {
    DrafterSet set;
    set.push_back(std::make_unique<EagleDrafter>(
        head, cache, EagleDrafterOptions{.context = kContext, .tree = tree, .sequences = sequences}));
    return set;
  };
  const ChosenBudget all_cost_the_same{.times = StepTimes{.rows = {1, 1024}, .contexts = {64}, .seconds = {1e-3, 1e-3}},
                                       .clock = [&] { return 1.1e-3 * device.steps(); }};
  Batch batch(
      model, {.context = kContext, .parallel = users, .round_route = RoundRoute::device},
      {.tree = tree, .drafters = drafters, .memories = {head.kv_shape(DType::f16)}, .budget = all_cost_the_same});
  const double seconds = median_of_steps(batch, users, kRounds, [&] { return steady_seconds() - device.seconds(); });
  const BatchStatistics& told = batch.statistics();
  fmt::print("{:4} users {:8.1f} us a round, {:.1f} rows a tree, {:.0f} % of steps on the device\n", users,
             1e6 * seconds, 1.0 + static_cast<double>(told.drafts.tokens) / static_cast<double>(told.drafts.drafts),
             100.0 * static_cast<double>(told.resident_steps) / static_cast<double>(told.steps));
}

}  // namespace
}  // namespace espalier

int main(int count, char** arguments) {
  const bool rounds = count > 1 && std::string_view(arguments[1]) == "rounds";
  std::vector<int> users;
  for (int i = rounds ? 2 : 1; i < count; ++i) users.push_back(std::max(1, std::atoi(arguments[i])));
  if (users.empty()) users = {1, 16, 64};
  for (const int some : users) (rounds ? espalier::measure_rounds : espalier::measure_steps)(some);
}
