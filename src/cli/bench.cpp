#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "format/gguf.h"
#include "format/safetensors.h"

namespace espalier {
namespace {

struct BenchFlags {
  EngineOptions engine;
  SpeculationFlags speculation;
  BenchSizes sizes;
  std::vector<std::string> against;
  int repeats = 5;
  bool json = false;
};

constexpr std::int64_t kHostRows = 16;
constexpr std::int64_t kHostContext = 1024;

int thread_count(int wanted) {
  return wanted == 0 ? static_cast<int>(std::max(1u, std::thread::hardware_concurrency())) : wanted;
}

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
  const bool folder = std::filesystem::is_directory(path);
  const std::unique_ptr<TensorSource> source =
      folder ? std::unique_ptr<TensorSource>(std::make_unique<Safetensors>(path)) : std::make_unique<Gguf>(path);
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
  Benchmark(const BenchFlags& flags, const Engine& engine, const Drafting& drafting, BenchResult& result)
      : result_(result),
        steps_(engine, result.sizes),
        loop_(engine, drafting.drafters().empty() ? nullptr : &drafting, result.sizes,
              [this] { return interrupt_.interrupted(); }) {
    for (const std::string& program : flags.against)
      peers_.emplace_back(program, PeerOptions{engine.path.string(), result.threads, flags.engine.kv});
    add_steps();
    add_loop();
    if (!drafting.drafters().empty()) add_rounds();
    add_host_work();
    result_.memory.kv = steps_.kv_bytes();
    result_.memory.kv_per_token = steps_.kv_bytes_per_token();
  }

  // False when Ctrl-C came.
  bool run() {
    ProgressBar bar("measuring");
    const double total = static_cast<double>(result_.figures.size()) * result_.repeats;
    double done = 0;
    for (int repeat = 0; repeat < result_.repeats; ++repeat)
      for (Figure& figure : result_.figures) {
        figure.samples.push_back(figure.sample());
        for (Duel& duel : result_.duels)
          if (duel.figure == figure.name && duel.rows == figure.rows && duel.context == figure.context) ask_peers(duel);
        if (interrupt_.interrupted()) return false;
        bar.show(++done / total);
      }
    return true;
  }

 private:
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
    for (std::size_t i = 0; i < peers_.size() && !interrupt_.interrupted(); ++i) {
      PeerTrack& track = duel.peers[i];
      if (!track.problem.empty() && track.samples.empty()) continue;
      PeerTest test = duel.test;
      test.depth = track.depth;
      const PeerAnswer answer = peers_[i].measure(test, interrupt_, track.depth);
      if (answer.seconds) {
        track.samples.push_back(*answer.seconds);
        if (track.depth != duel.test.depth) track.problem = "failed behind a context, measured without one";
      } else if (!answer.interrupted) {
        track.problem = answer.problem;
        track.samples.clear();
      }
    }
  }

  InterruptGuard interrupt_;
  BenchResult& result_;
  StepBench steps_;
  LoopBench loop_;
  RoundSample round_;
  std::vector<LlamaBench> peers_;
};

// What is wrong with the flags is told before the model is loaded.
DraftPlan check_flags(const BenchFlags& flags) {
  if (!flags.against.empty()) {
    if (std::filesystem::is_directory(find_model(flags.engine.model)))
      throw InputError("--against: llama-bench reads GGUF files only, expected one as --model");
    if (flags.engine.weights != "file")
      throw InputError("--weights: not with --against, both programs must compute the same file");
    for (const std::string& program : flags.against) LlamaBench(program, {});
  }
  return plan_speculation(flags.speculation, kDefaultDraft);
}

int run_bench(const BenchFlags& flags) {
  const DraftPlan plan = check_flags(flags);
  BenchResult result{.kv = flags.engine.kv, .threads = thread_count(flags.engine.threads), .repeats = flags.repeats};
  EngineOptions options = flags.engine;
  options.timed_ops = true;
  Engine engine;
  result.load_seconds = seconds_of([&] { engine = open_engine(options); });
  result.memory.peak_after_loading = peak_memory();
  result.memory.weights = weight_bytes(engine.path);
  result.model = engine.path.string();
  result.device = engine.device->name();
  result.isa = engine.device->isa();
  result.sizes = cut_to_context(flags.sizes, engine.decoder.context);
  for (const std::string& line : result.sizes.cuts) fmt::print(stderr, "espalier: {}\n", line);
  const Drafting drafting(flags.speculation, plan, engine, 0);
  result.draft = drafting.name();
  if (!Benchmark(flags, engine, drafting, result).run()) {
    fmt::print(stderr, "espalier: interrupted\n");
    return 1;
  }
  result.memory.peak = peak_memory();
  print(flags.json ? json_text(bench_json(result)) : bench_text(result));
  flush_output();
  return 0;
}

}  // namespace

Command add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "measure the speed of a model on this machine");
  auto flags = std::make_shared<BenchFlags>();
  command->add_option("--rows", flags->sizes.rows, "rows of the steps; without it 1,2,4,8,16,32,64")
      ->delimiter(',')
      ->check(CLI::Range(1, kMaxDraftRows))
      ->type_name("N,N,...");
  command->add_option("--contexts", flags->sizes.contexts, "tokens before a step; without it 128,1024,4096")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N,N,...");
  command->add_option("--repeat", flags->repeats, "samples of each figure, interleaved")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--against", flags->against,
                   "a llama-bench program to measure as well, on the same file; may be repeated, the better one counts")
      ->allow_extra_args(false)
      ->type_name("PROGRAM");
  command->add_flag("--json", flags->json, "print one JSON object instead of tables");
  add_speculation_flags(*command, flags->speculation, kDefaultDraft);
  add_engine_flags(*command, flags->engine);
  return [flags] { return run_bench(*flags); };
}

}  // namespace espalier
