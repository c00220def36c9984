#include "bench/benchmark.h"

#include <algorithm>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "format/tensor_info.h"

namespace espalier {
namespace {

constexpr std::int64_t kHostRows = 16;
constexpr std::int64_t kHostContext = 1024;

// A line of /proc/self/status, "VmHWM:   12345 kB".
std::int64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") {
      std::int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  return 0;
}

std::int64_t weight_bytes(const std::filesystem::path& path) {
  const std::unique_ptr<TensorSource> source = open_tensors(path);
  std::int64_t bytes = 0;
  for (const TensorInfo& tensor : source->tensors()) bytes += static_cast<std::int64_t>(tensor.bytes.size());
  return bytes;
}

// Of `values`, the wanted one, else the largest.
std::size_t index_of(const std::vector<std::int64_t>& values, std::int64_t wanted) {
  const auto found = std::ranges::find(values, wanted);
  return found == values.end() ? values.size() - 1 : static_cast<std::size_t>(found - values.begin());
}

// Everything on the model once per repeat, in the same order; each figure of ours is followed by the same of the peers,
// so that whatever else the machine does meets all of them alike.
class Benchmark {
 public:
  Benchmark(const BenchJob& job, BenchResult& result)
      : job_(job),
        result_(result),
        steps_(job.engine, result.sizes),
        loop_(job.engine, drafts() ? &job.drafting : nullptr, result.sizes, job.cancelled) {
    for (const std::string& program : job.against)
      peers_.emplace_back(program, PeerOptions{result.model, result.threads, result.kv});
    add_steps();
    add_loop();
    if (drafts()) add_rounds();
    add_host_work();
    result_.memory.kv = steps_.kv_bytes();
    result_.memory.kv_per_token = steps_.kv_bytes_per_token();
  }

  // False when it was cancelled.
  bool run() {
    const double total = static_cast<double>(result_.figures.size()) * result_.repeats;
    double done = 0;
    for (int repeat = 0; repeat < result_.repeats; ++repeat)
      for (Figure& figure : result_.figures) {
        figure.samples.push_back(figure.sample());
        for (Duel& duel : result_.duels)
          if (duel.figure == figure.name && duel.rows == figure.rows && duel.context == figure.context) ask_peers(duel);
        if (job_.cancelled()) return false;
        job_.engine.listener->progress("measuring", ++done / total);
      }
    return true;
  }

 private:
  bool drafts() const { return !job_.drafting.drafters().empty(); }
  void add(std::string name, std::int64_t rows, std::int64_t context, std::function<double()> sample) {
    result_.figures.push_back({std::move(name), rows, context, std::move(sample)});
  }
  // The figure that was added last, against the peers.
  void add_duel(const PeerTest& test) {
    if (peers_.empty()) return;
    const Figure& figure = result_.figures.back();
    result_.duels.push_back({figure.name, figure.rows, figure.context, test});
    for (const LlamaBench& peer : peers_) result_.duels.back().peers.push_back({peer.program(), test.depth});
  }

  void add_steps() {
    const BenchSizes& sizes = result_.sizes;
    for (std::size_t c = 0; c < sizes.contexts.size(); ++c)
      for (std::int64_t rows : sizes.rows) {
        add("step", rows, sizes.contexts[c],
            [=, this] { return sample_calls([=, this] { return steps_.verify_step(c, rows); }); });
        if (rows == 1 || rows == kHostRows)
          add_by_ops("step", rows, sizes.contexts[c], [=, this] { return steps_.verify_step_by_ops(c, rows); });
      }
    for (std::int64_t rows : sizes.rows) {
      add("prompt_step", rows, sizes.contexts[0],
          [=, this] { return sample_calls([=, this] { return steps_.prompt_step(0, rows); }); });
      add_duel({.prompt = rows, .depth = sizes.contexts[0]});
    }
  }

  void add_loop() {
    const BenchSizes& sizes = result_.sizes;
    add_plain_decoding(sizes.prompt, sizes.prompt);
    if (!peers_.empty()) add_plain_decoding(1, 0);  // for peers that fail behind a context
    add_by_ops("plain_decoding", 0, sizes.prompt, [this] { return loop_.plain_decoding_by_ops(); });
    add("prefill", sizes.prefill, 0, [this] { return loop_.prefill(); });
    add_duel({.prompt = sizes.prefill});
    for (std::int64_t users : sizes.users)
      add("users_step", users, sizes.prompt, [=, this] { return loop_.users_step(users); });
  }

  void add_plain_decoding(std::int64_t prompt, std::int64_t depth) {
    add("plain_decoding", 0, prompt, [=, this] { return loop_.plain_decoding(prompt); });
    add_duel({.generated = result_.sizes.answer, .depth = depth});
  }

  // The same once more with the clock on every op: a figure for the whole, which takes the sample, and two for parts.
  void add_by_ops(const std::string& name, std::int64_t rows, std::int64_t context, std::function<OpSample()> once) {
    auto last = std::make_shared<OpSample>();
    add(name + "_by_ops", rows, context, [=] {
      *last = once();
      return last->whole;
    });
    add(name + "_linears", rows, context, [=] { return last->ops.linear; });
    add(name + "_attention", rows, context, [=] { return last->ops.attention; });
  }

  // One answer gives all parts of a round: the first figure takes it, the others read.
  void add_rounds() {
    const std::int64_t prompt = result_.sizes.prompt;
    add("round_draft", 0, prompt, [this] {
      round_ = loop_.round();
      result_.draft_rows = round_.rows;
      return round_.times.draft;
    });
    add("round_prepare", 0, prompt, [this] { return round_.times.prepare; });
    add("round_verify", 0, prompt, [this] { return round_.times.verify; });
    add("round_accept", 0, prompt, [this] { return round_.times.accept; });
    add("round_commit", 0, prompt, [this] { return round_.times.commit; });
    add("round_trace", 0, prompt, [this] { return round_.trace; });
  }

  void add_host_work() {
    const BenchSizes& sizes = result_.sizes;
    const std::size_t c = index_of(sizes.contexts, kHostContext);
    const std::int64_t rows = sizes.rows[index_of(sizes.rows, kHostRows)];
    result_.host_rows = rows;
    result_.host_context = sizes.contexts[c];
    const auto add_part = [&](std::string name, std::function<double()> once) {
      add(std::move(name), rows, sizes.contexts[c], [once = std::move(once)] { return sample_calls(once); });
    };
    add_part("grow", [=, this] { return steps_.grow(rows); });
    add_part("tensorise", [=, this] { return steps_.tensorise(c, rows); });
    add_part("tables", [=, this] { return steps_.tables(c, rows); });
    add_part("mask", [=, this] { return steps_.mask(c, rows); });
    add_part("commit", [=, this] { return steps_.commit(c, rows); });
  }

  // A peer that failed once is not asked again.
  void ask_peers(Duel& duel) {
    for (std::size_t i = 0; i < peers_.size() && !job_.cancelled(); ++i) {
      PeerTrack& track = duel.peers[i];
      if (!track.problem.empty() && track.samples.empty()) continue;
      PeerTest test = duel.test;
      test.depth = track.depth;
      const PeerAnswer answer = peers_[i].measure(test, job_.cancelled, track.depth);
      if (answer.seconds) {
        track.samples.push_back(*answer.seconds);
        if (track.depth != duel.test.depth) track.problem = "failed behind a context, measured without one";
      } else if (!answer.interrupted) {
        track.problem = answer.problem;
        track.samples.clear();
      }
    }
  }

  const BenchJob& job_;
  BenchResult& result_;
  StepBench steps_;
  LoopBench loop_;
  RoundSample round_;
  std::vector<LlamaBench> peers_;
};

}  // namespace

void check_peers(const std::vector<std::string>& against, const EngineOptions& options) {
  if (against.empty()) return;
  if (std::filesystem::is_directory(find_model(options.model, options.places)))
    throw InputError("--against: llama-bench reads GGUF files only, expected one as --model");
  if (options.weights.value_or(WeightMode::stored) != WeightMode::stored)
    throw InputError("--weights: not with --against, both programs must compute the same file");
  for (const std::string& program : against) LlamaBench(program, {});
}

std::optional<BenchResult> run_benchmark(const BenchJob& job) {
  const OpenEngine& engine = job.engine;
  BenchResult result{.model = engine.path.string(),
                     .device = std::string(engine.device->name()),
                     .isa = std::string(engine.device->isa()),
                     .kv = std::string(name(engine.decoder.kv_type)),
                     .threads = engine.threads,
                     .repeats = job.repeats,
                     .load_seconds = job.load_seconds,
                     .draft = job.drafting.name(),
                     .sizes = job.sizes};
  result.memory.peak_after_loading = peak_memory();
  result.memory.weights = weight_bytes(engine.path);
  if (!Benchmark(job, result).run()) return std::nullopt;
  result.memory.peak = peak_memory();
  return result;
}

}  // namespace espalier
