// What the host does for a step of a batch, without the network: N answers decode greedily on a device on which a step
// costs nothing. Should not matter beside a step of a GPU, a millisecond. Microseconds a step, the median of ten; from
// the repository's root: build/bin/bench_host_step [users...]
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "decode/batch.h"
#include "device/passing_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

constexpr std::int64_t kPrompt = 128, kContext = 512, kMeasured = 256;
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

// Reads a prompt of each user, then takes the time of steps in which all decode.
double seconds_of_a_step(Batch& batch, int users, std::int32_t first) {
  GenerateOptions options;
  options.max_tokens = kContext - kPrompt;
  std::int64_t made = 0;
  for (int user = 0; user < users; ++user) {
    const std::vector<std::int32_t> prompt(static_cast<std::size_t>(kPrompt), first + user);
    GenerateRequest request{.prompt = prompt, .options = options};
    request.events.on_token = [&](const GeneratedToken&) { return ++made, true; };
    batch.submit(request);
  }
  const auto all_decode = [&] {
    return std::ranges::all_of(batch.running_answers(), [](const RunningAnswer& answer) { return answer.decodes; });
  };
  while (batch.waiting() > 0 || !all_decode()) batch.step();
  const std::int64_t before = made;
  const double begin = steady_seconds();
  for (std::int64_t i = 0; i < kMeasured; ++i) batch.step();
  const double seconds = (steady_seconds() - begin) / static_cast<double>(kMeasured);
  check(made - before == users * kMeasured, "{} tokens, expected {}", made - before, users * kMeasured);
  while (batch.step()) {
  }
  return seconds;
}

void measure(int users) {
  const auto reference = make_reference_device();
  IdleDevice device(*reference);
  const Transformer model = load_transformer(device, "models/SmolLM2-135M-Instruct.Q4_1.gguf");
  Batch batch(model, {.context = kContext, .parallel = users}, {.budget = ChosenBudget{.cuts = false}});
  std::vector<double> seconds;
  for (int i = 0; i < kSamples; ++i) seconds.push_back(seconds_of_a_step(batch, users, i * users % kFirstTokens));
  std::ranges::sort(seconds);
  fmt::print("{:4} users {:8.1f} us a step\n", users, seconds[kSamples / 2] * 1e6);
}

}  // namespace
}  // namespace espalier

int main(int count, char** arguments) {
  std::vector<int> users;
  for (int i = 1; i < count; ++i) users.push_back(std::max(1, std::atoi(arguments[i])));
  if (users.empty()) users = {1, 16, 64};
  for (int some : users) espalier::measure(some);
}
