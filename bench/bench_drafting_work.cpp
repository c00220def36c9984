// What the default drafts cost: answers of the default model with its head, N at once, without drafts and with
// `--draft auto`, in one process, a step of these and a step of those in turn, so that a machine that is slower for a
// second is so for both. The tokens of both must be equal. From the repository's root:
//   build/bin/bench_drafting_work [here|cpu|gpu] [prompts] [tokens] [N]...
// here: timed. cpu, gpu: counted, because a busy machine's times say little of one percent. Each product of weights
// then takes the share of a step that its weights are of the teacher's, in a step of as many rows; steps take what they
// took in one quiet minute. The batch reads the same clock, so it decides as it would on such a machine. cpu: two
// AVX-512 cores. gpu: rounds stay on the device, whose rows are cheap and which is dear to wait for.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "decode/batch.h"
#include "device/cpu/cpu_device.h"
#include "device/passing_device.h"
#include "engine/answering.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "eval/prompt_set.h"
#include "session/chat_prompt.h"

namespace espalier {
namespace {

struct Machine {
  StepTimes steps;
  double wait = 0, copy = 0, round_op = 0;  // seconds of a wait for the device, and of ops beside products
  RoundRoute route = RoundRoute::host;
  bool counts = true;  // false: by the clock on the wall, and steps are measured
};

Machine two_cores() {
  return {.steps = {.rows = {1, 8, 9, 16, 17, 32},
                    .contexts = {64},
                    .seconds = {4.9e-3, 8.2e-3, 9.6e-3, 13.9e-3, 15.1e-3, 25.3e-3}},
          .copy = 5e-6};
}

// Steps of 1 to 64 rows are those of an H200; of more, what rounds of so many take there beside their drafts.
Machine gpu() {
  return {.steps = {.rows = {1, 4, 16, 64, 256, 1024},
                    .contexts = {64},
                    .seconds = {0.57e-3, 0.71e-3, 0.86e-3, 1.31e-3, 2.1e-3, 7e-3}},
          .wait = 30e-6,
          .copy = 5e-6,
          .round_op = 3e-6,
          .route = RoundRoute::device};
}

// Where the default drafts are timed: steps as of two cores until they are measured.
Machine here() {
  Machine machine = two_cores();
  machine.counts = false;
  return machine;
}

// A device whose clock goes on by the work that it is asked for.
class PricedDevice final : public PassingDevice {
 public:
  PricedDevice(std::unique_ptr<Device> inner, const Machine& machine)
      : PassingDevice(*inner), owned_(std::move(inner)), machine_(machine), costs_(machine.steps, {}) {}

  double seconds() const { return machine_.counts ? seconds_ : steady_seconds(); }
  double products() const { return products_; }  // of an input's element and a weight, for one row
  // From now on a step of a teacher with so many is one of the machine's.
  void be_of(double teacher) { teacher_ = teacher; }

 private:
  void do_linear(ConstView x, std::span<const Projection> projections) override {
    double own = 0;
    for (const Projection& projection : projections)
      own += static_cast<double>(projection.weight->outputs()) * static_cast<double>(projection.weight->inputs());
    products_ += own;
    seconds_ += own / teacher_ * of_step(x.dim(0));
    inner().linear(x, projections);
  }
  void do_gather_rows(ConstView x, ConstView index, View y) override {
    seconds_ += machine_.copy;
    inner().gather_rows(x, index, y);
  }
  void do_download(std::span<const Download> parts) override {
    seconds_ += machine_.wait;
    inner().download(parts);
  }
  void do_round(const RoundOp& op) override {
    seconds_ += machine_.round_op;
    inner().round_ops()->run(op);
  }
  double of_step(std::int64_t rows) {
    const auto wanted = static_cast<std::size_t>(rows);
    if (by_rows_.size() < wanted) costs_.fill(0, (by_rows_.resize(wanted), by_rows_));
    return by_rows_[wanted - 1];
  }

  std::unique_ptr<Device> owned_;
  Machine machine_;
  StepCosts costs_;
  std::vector<double> by_rows_;
  double teacher_ = 1, products_ = 0, seconds_ = 0;
};

// The default model on such a machine.
class PricedEngine {
 public:
  explicit PricedEngine(const Machine& machine) : machine_(machine) {
    engine_.modes = resolve_modes({});
    engine_.modes.device = "cpu";
    engine_.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    engine_.places = {.heads = {"heads"}, .roots = {"."}};
    engine_.listener = &listener_;
    engine_.path = find_model("", engine_.places);
    auto device = std::make_unique<PricedDevice>(make_cpu_device({.threads = engine_.threads}), machine);
    device_ = device.get();
    engine_.device = std::move(device);
    engine_.text = load_model_text(engine_.path);
    engine_.model = load_transformer(*engine_.device, engine_.path);
    engine_.decoder = {.context = 1024, .round_route = RoundRoute::host};
    const double before = device_->products();
    Batch(*engine_.model, engine_.decoder).generate(std::vector<TokenId>{1}, {.max_tokens = 1});
    device_->be_of(device_->products() - before);
  }

  const OpenEngine& engine() const { return engine_; }
  const PricedDevice& device() const { return *device_; }

  Batch batch(const Drafting& drafting, int conversations) {
    DecoderOptions options = engine_.decoder;
    options.parallel = conversations;
    if (!drafting.drafters().empty()) options.round_route = machine_.route;
    Speculation speculation = drafting.speculation(conversations);
    speculation.budget = ChosenBudget{.cuts = drafting.chooses_nodes(), .clock = [this] { return device_->seconds(); }};
    if (machine_.counts || measured_) speculation.budget->times = machine_.steps;
    speculation.budget->on_measured = [this](const StepTimes& times) { machine_.steps = times, measured_ = true; };
    return Batch(*engine_.model, options, speculation);
  }

 private:
  Machine machine_;
  Listener listener_;
  OpenEngine engine_;
  PricedDevice* device_ = nullptr;
  bool measured_ = false;
};

// All prompts, so many at once: the next one joins when one has ended.
class Company {
 public:
  Company(PricedEngine& priced, const Drafting& drafting, std::span<const std::vector<TokenId>> prompts,
          std::int64_t tokens, int at_once)
      : device_(priced.device()),
        batch_(priced.batch(drafting, at_once)),
        prompts_(prompts),
        wanted_(tokens),
        at_once_(at_once),
        texts_(prompts.size()) {}

  bool has_ended() const { return next_ == prompts_.size() && batch_.running() + batch_.waiting() == 0; }
  void step() {
    const double begin = device_.seconds();
    while (next_ < prompts_.size() && batch_.running() + batch_.waiting() < at_once_) join();
    batch_.step();
    seconds_ += device_.seconds() - begin;
  }

  double seconds() const { return seconds_; }
  double tokens() const { return static_cast<double>(batch_.statistics().answer_tokens); }
  double seconds_per_token() const { return seconds_ / tokens(); }
  double tokens_per_round() const { return tokens() / static_cast<double>(rounds_); }
  double drafted_share() const { return static_cast<double>(drafted_) / static_cast<double>(rounds_); }
  double resident_share() const {
    return static_cast<double>(batch_.statistics().resident_steps) / static_cast<double>(batch_.statistics().steps);
  }
  const std::vector<std::vector<std::int32_t>>& texts() const { return texts_; }

 private:
  void join() {
    const std::size_t own = next_++;
    GenerateRequest request{.prompt = prompts_[own], .options = {.max_tokens = wanted_}};
    request.events.on_end = [this, own](const AnswerEnd& end) {
      texts_[own] = end.result.tokens;
      rounds_ += end.result.rounds();
      drafted_ += end.result.rounds() - end.result.undrafted_rounds;
    };
    batch_.submit(request);
  }

  const PricedDevice& device_;
  Batch batch_;
  std::span<const std::vector<TokenId>> prompts_;
  std::int64_t wanted_;
  int at_once_;
  double seconds_ = 0;
  std::size_t next_ = 0;
  std::int64_t rounds_ = 0, drafted_ = 0;
  std::vector<std::vector<std::int32_t>> texts_;
};

// Whoever has fewer tokens is next. Returns the quartiles of what a token took with drafts over what it took without,
// stretch by stretch.
std::array<double, 2> run_in_turn(Company& plain, Company& drafted, double stretch) {
  std::vector<double> ratios;
  std::array<double, 4> begin = {};  // of the stretch: seconds and tokens of both
  while (!plain.has_ended() || !drafted.has_ended()) {
    const bool is_plain = drafted.has_ended() || (!plain.has_ended() && plain.tokens() <= drafted.tokens());
    (is_plain ? plain : drafted).step();
    const double without = plain.tokens() - begin[1], with = drafted.tokens() - begin[3];
    if (std::min(without, with) < stretch) continue;
    ratios.push_back((drafted.seconds() - begin[2]) / with / ((plain.seconds() - begin[0]) / without));
    begin = {plain.seconds(), plain.tokens(), drafted.seconds(), drafted.tokens()};
  }
  if (ratios.empty()) return {1, 1};
  std::ranges::sort(ratios);
  return {ratios[ratios.size() / 4], ratios[ratios.size() * 3 / 4]};
}

std::vector<std::vector<TokenId>> read_prompts(const PricedEngine& priced, std::size_t count) {
  std::vector<std::vector<TokenId>> prompts;
  for (const EvalPrompt& prompt : read_prompt_set("data/eval/outside.jsonl").prompts)
    if (prompts.size() < count)
      prompts.push_back(encode_chat(*priced.engine().text, {{"user", prompt.turns[0]}}, chat_context({})));
  return prompts;
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  using namespace espalier;
  const auto number = [&](int at, int otherwise) { return argc > at ? std::atoi(argv[at]) : otherwise; };
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string_view machine = argc > 1 ? argv[1] : "cpu";
  std::vector<int> sizes;
  for (int i = 4; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {1, 2, 4, 8, 16};
  PricedEngine priced(machine == "here" ? here() : machine == "gpu" ? gpu() : two_cores());
  const Places& places = priced.engine().places;
  const Drafting none(plan_drafting({.draft = "none"}, places), priced.engine(), 0);
  const Drafting automatic(plan_drafting({}, places), priced.engine(), 0);
  const auto prompts = read_prompts(priced, static_cast<std::size_t>(number(2, 32)));
  const int tokens = number(3, 64);
  fmt::print("{} prompts, {} tokens each, drafts of {}\n", prompts.size(), tokens, automatic.name());
  for (const int at_once : sizes) {
    Company plain(priced, none, prompts, tokens, at_once), drafted(priced, automatic, prompts, tokens, at_once);
    const auto [low, high] = run_in_turn(plain, drafted, static_cast<double>(tokens) * at_once);
    check(plain.texts() == drafted.texts(), "{} at once: other tokens with drafts", at_once);
    fmt::print(
        "{} at once: none {:.3f} ms a token, auto {:.3f} ms, {:.3f} of it (quartiles {:.3f} to {:.3f}); {:.2f} tokens "
        "a round, {:.0f} % of rounds drafted, {:.0f} % of steps on the device\n",
        at_once, 1e3 * plain.seconds_per_token(), 1e3 * drafted.seconds_per_token(),
        drafted.seconds_per_token() / plain.seconds_per_token(), low, high, drafted.tokens_per_round(),
        100 * drafted.drafted_share(), 100 * drafted.resident_share());
  }
}
