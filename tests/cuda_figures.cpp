// A tool for people: what the linears and the attention of a 7B-shaped layer take on a GPU, weights cold, as recorded
// steps; beside each linear the time of a plain read of the same bytes at 4.5 TB/s; and what choices among a vocabulary
// and the ops of rounds take. cuda_figures [TYPE...] [ROWS...]; with numbers of rows, linears alone; of bf16 and f16
// with x as two terms and as one; with quads=N those by quads of warps from N rows on (0: never). cuda_figures rounds:
// the last alone.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/round_ops.h"

namespace espalier {
namespace {

constexpr std::int64_t kHidden = 4096, kInner = 12800, kKvWidth = 1024;
constexpr int kLayers = 24;  // so many that no cache holds them, and that the wait at the end hardly counts
constexpr int kRepeats = 9;
constexpr double kBytesPerMicrosecond = 4.5e6;

using Clock = std::chrono::steady_clock;

std::vector<std::byte> random_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::uint32_t state = 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24 & 0x3fu);  // no exponent of a scale is all ones
  }
  return bytes;
}

std::unique_ptr<const Weight> weight_of(Device& device, DType type, std::int64_t outputs, std::int64_t inputs,
                                        std::span<const std::byte> bytes) {
  const WeightPart part{type, outputs, inputs,
                        bytes.first(static_cast<std::size_t>(outputs * row_bytes(type, inputs)))};
  return device.load_weight({&part, 1});
}

struct Layer {
  std::unique_ptr<const Weight> qkv, o, up, down, floor;  // floor: so few outputs that only launches count
  Layer(Device& device, DType type, std::span<const std::byte> bytes)
      : qkv(weight_of(device, type, kHidden + 2 * kKvWidth, kHidden, bytes)),
        o(weight_of(device, type, kHidden, kHidden, bytes)),
        up(weight_of(device, type, 2 * kInner, kHidden, bytes)),
        down(weight_of(device, type, kHidden, kInner, bytes)),
        floor(weight_of(device, type, 16, 256, bytes)) {}
};

// The median time of one run of `ops`, in microseconds.
double median_time(Device& device, const std::function<void()>& ops, ConstView result) {
  const auto recordings = device.make_recordings();
  std::vector<double> times;
  std::vector<std::byte> end(static_cast<std::size_t>(result.rows(0, 1).bytes_spanned()));
  for (int i = 0; i < kRepeats + 3; ++i) {
    const auto begin = Clock::now();
    device.step(*recordings, {}, ops);
    device.download(result.rows(0, 1), end);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  times.erase(times.begin(), times.begin() + 3);
  std::ranges::nth_element(times, times.begin() + kRepeats / 2);
  return times[kRepeats / 2];
}

// The same of one call of `op`, among others.
double time_of_one(Device& device, const std::function<void()>& op, ConstView result) {
  constexpr int kCalls = 16;
  const auto all = [&] {
    for (int i = 0; i < kCalls; ++i) op();
  };
  return median_time(device, all, result) / kCalls;
}

// Small tables in device memory, for as long as this lives.
class Tables {
 public:
  explicit Tables(Device& device) : device_(device) {}

  template <typename Entry>
  View ints(std::initializer_list<std::int64_t> shape, Entry entry) {
    return filled<std::int32_t>(DType::i32, shape, entry);
  }
  View ints(std::initializer_list<std::int64_t> shape) {
    return ints(shape, [](std::int64_t) { return 0; });
  }
  template <typename Entry>
  View floats(std::initializer_list<std::int64_t> shape, Entry entry) {
    return filled<float>(DType::f32, shape, entry);
  }
  template <typename Entry>
  View doubles(std::initializer_list<std::int64_t> shape, Entry entry) {
    return filled<double>(DType::f64, shape, entry);
  }

 private:
  template <typename T, typename Entry>
  View filled(DType type, std::initializer_list<std::int64_t> shape, Entry entry) {
    const Tensor& tensor = all_.emplace_back(device_.tensor(type, shape));
    std::vector<T> values;
    for (std::int64_t i = 0; i < tensor.view.elements(); ++i) values.push_back(static_cast<T>(entry(i)));
    upload<T>(device_, values, tensor);
    return tensor.view;
  }

  Device& device_;
  std::vector<Tensor> all_;
};

void show_linears(Device& device, DType type, const std::vector<std::int64_t>& row_counts) {
  std::vector<Layer> layers;
  const std::vector<std::byte> bytes = random_bytes(static_cast<std::size_t>(2 * kInner * row_bytes(type, kHidden)));
  for (int i = 0; i < kLayers; ++i) layers.emplace_back(device, type, bytes);
  const std::int64_t weights = (kHidden + 2 * kKvWidth) * kHidden + kHidden * kHidden + 3 * kInner * kHidden;
  const double read = static_cast<double>(row_bytes(type, weights)) / kBytesPerMicrosecond;
  fmt::print("{}, activations {}: a plain read takes {:.1f} us a layer\n", name(type),
             is_float(type) ? device.activations() : "q8", read);
  for (const std::int64_t rows : row_counts) {
    const Tensor x = device.tensor(DType::f32, {rows, kInner}), y = device.tensor(DType::f32, {rows, 2 * kInner});
    upload<float>(device, std::vector<float>(static_cast<std::size_t>(rows * kInner), 0.5f), x);
    const auto project = [&](const Weight& weight) {
      const Projection projection{&weight, {}, View(y.view.data(), DType::f32, {rows, weight.outputs()})};
      device.linear(ConstView(x.view.data(), DType::f32, {rows, weight.inputs()}), {&projection, 1});
    };
    std::string line = fmt::format("  {:>4} rows:", rows);
    double sum = 0;
    for (const auto& [what, weight] : {std::pair{"qkv", &Layer::qkv},
                                       {"o", &Layer::o},
                                       {"up", &Layer::up},
                                       {"down", &Layer::down},
                                       {"floor", &Layer::floor}}) {
      const auto all_layers = [&, member = weight] {
        for (const Layer& layer : layers) project(*(layer.*member));
      };
      const double time = median_time(device, all_layers, y);
      line += fmt::format(" {} {:.1f}", what, time / kLayers);
      if (weight != &Layer::floor) sum += time / kLayers;
    }
    fmt::print("{}, together {:.1f} us, a read is {:.0f} % of it\n", line, sum, 100 * read / sum);
  }
}

void show_attention(Device& device) {
  constexpr std::int64_t kHeads = 32, kKvHeads = 8, kDim = 128, kBlockSize = 128;
  for (const std::int64_t context : {128, 1024, 4096, 8192})
    for (const std::int64_t rows : {1, 16, 64}) {
      const std::int64_t blocks = context / kBlockSize + 1;
      const Tensor q = device.tensor(DType::f32, {rows, kHeads, kDim}),
                   out = device.tensor(DType::f32, {rows, kHeads, kDim});
      const Tensor k = device.tensor(DType::f16, {blocks, kBlockSize, kKvHeads, kDim});
      const Tensor v = device.tensor(DType::f16, {blocks, kBlockSize, kKvHeads, kDim});
      const std::vector<std::byte> zeros(static_cast<std::size_t>(k.view.bytes_spanned()));
      device.upload(zeros, k);
      device.upload(zeros, v);
      upload<float>(device, std::vector<float>(static_cast<std::size_t>(q.view.elements()), 0.5f), q);
      Tables tables(device);
      const auto zero = [](std::int64_t) { return 0; };
      RowTables t;
      t.slot = tables.ints({rows}, [&](std::int64_t r) { return context + r; });
      t.sequence = tables.ints({rows}, zero);
      t.begin = tables.ints({rows}, zero);
      t.end = tables.ints({rows}, [&](std::int64_t) { return context; });
      t.ancestor_count = tables.ints({rows}, zero);
      t.ancestors = tables.ints({rows, 1}, zero);
      t.blocks = tables.ints({1, blocks}, [](std::int64_t i) { return i; });
      const double time = time_of_one(
          device,
          [&] {
            device.attention(q, {k.view, v.view}, t, 0.088f, out);
          },
          out);
      fmt::print("attention, {:>4} positions, {:>2} rows: {:.1f} us\n", context, rows, time);
    }
}

// Numbers as logits are: most of them far below the best.
View some_logits(Tables& tables, std::int64_t rows, std::int64_t columns) {
  std::uint32_t state = 7;
  return tables.floats({rows, columns}, [&](std::int64_t) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
      state = state * 1664525u + 1013904223u;
      sum += static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
    }
    return 5 * sum;
  });
}

GuessTables some_guesses(Tables& tables, std::int64_t rows, std::int64_t k) {
  return {
      .token = tables.ints({rows, k}, [](std::int64_t i) { return i * 37 % 30000; }),
      .log_probability = tables.doubles({rows, k}, [=](std::int64_t i) { return -0.5 - static_cast<double>(i % k); }),
      .count = tables.ints({rows}, [=](std::int64_t) { return k; })};
}

void show_choices(Device& device) {
  constexpr std::int64_t kMost = 8;
  for (const std::int64_t columns : {49152, 128256})
    for (const std::int64_t rows : {1, 16}) {
      Tables tables(device);
      const View logits = some_logits(tables, rows, columns), id = tables.ints({rows}),
                 ids = tables.ints({rows, kMost});
      const auto zero = [](std::int64_t) { return 0; };
      const View sum = tables.floats({rows}, zero), values = tables.floats({rows, kMost}, zero);
      const GuessTables guesses = some_guesses(tables, rows, kMost);
      const RankGuesses rank{.logits = logits, .vocabulary = 1 << 20, .guesses = guesses};
      fmt::print("{:>6} logits, {:>2} rows: argmax {:.1f}, top_k of 8 {:.1f}, log_sum_exp {:.1f}, rank_guesses {:.1f}",
                 columns, rows,
                 time_of_one(
                     device, [&] { device.argmax(logits, id); }, id),
                 time_of_one(
                     device, [&] { device.top_k(logits, values, ids); }, ids),
                 time_of_one(
                     device, [&] { device.log_sum_exp(logits, 1.0f, sum); }, sum),
                 time_of_one(
                     device, [&] { device.round_ops()->run(rank); }, guesses.count));
      for (const float temperature : {0.0f, 0.8f}) {
        const ChooseTokens choose{.logits = logits,
                                  .position = tables.ints({rows}, [](std::int64_t r) { return r; }),
                                  .temperature = tables.floats({1}, [=](std::int64_t) { return temperature; }),
                                  .top_p = tables.floats({1}, [](std::int64_t) { return 0.95f; }),
                                  .min_p = tables.floats({1}, zero),
                                  .top_k = tables.ints({1}),
                                  .seed = tables.ints({1, 2}),
                                  .token = id,
                                  .state = tables.ints({rows})};
        fmt::print(", choose_tokens at {} {:.1f}", temperature,
                   time_of_one(
                       device, [&] { device.round_ops()->run(choose); }, id));
      }
      fmt::print(" us\n");
    }
}

// The ops over trees of a round: six levels of eight nodes with eight guesses each, sixteen rows to verify.
class TreesOfRound {
 public:
  TreesOfRound(Device& device, std::int64_t trees) : trees_(trees), tables_(device) {}

  std::vector<RoundOp> growing() {
    std::vector<RoundOp> ops;
    View frontier = tables_.ints({trees_, 1});
    for (std::int32_t level = 1; level <= kLevels; ++level) {
      const View next = tables_.ints({trees_, kFrontier});
      ops.push_back(grow(level, frontier, next));
      ops.push_back(place(level, next));
      frontier = next;
    }
    return ops;
  }

  std::vector<RoundOp> verifying() {
    const View choice = tables_.ints({trees_ * kRows}), path = tables_.ints({trees_, kLength});
    return {ChooseRows{.nodes = known(kLevels),
                       .rows = each(kRows),
                       .tree = tree_,
                       .drafted = tables_.ints({trees_, kRows}),
                       .size = each(0)},
            PlaceRows{.nodes = tree_,
                      .first = first_,
                      .root_position = first_,
                      .begin = none_,
                      .seed = none_,
                      .places = places_,
                      .rows = rows_of(kRows)},
            WalkTrees{.tree = tree_,
                      .choice = choice,
                      .state = tables_.ints({trees_ * kRows}),
                      .path = path,
                      .count = count_,
                      .last = each(0),
                      .token = each(0),
                      .outcome = each(0)},
            ListMoves{.path = path,
                      .count = count_,
                      .row = tree_.row,
                      .first = first_,
                      .places = places_,
                      .from = tables_.ints({trees_ * kLength}),
                      .to = tables_.ints({trees_ * kLength}),
                      .kept = each(0)},
            CatchUp{.path = path,
                    .count = count_,
                    .choice = choice,
                    .prefix = first_,
                    .begin = none_,
                    .places = places_,
                    .rows = rows_of(kLength),
                    .feature = tables_.ints({trees_ * kLength}),
                    .seed = each(0)}};
  }

  // What can be downloaded when they are done.
  ConstView result() const { return count_; }

 private:
  static constexpr std::int64_t kLevels = 6, kFrontier = 8, kBranch = 8, kWidth = kFrontier * kBranch, kRows = 16,
                                kLength = kLevels + 1, kContext = 1024, kBlockSize = 128;

  RoundOp grow(std::int32_t level, View frontier, View next) {
    const std::int64_t width = level == 1 ? kBranch : kWidth, entries = frontier.dim(1);
    return GrowLevel{.nodes = known(level),
                     .root = none_,
                     .levels = each(kLevels),
                     .entry = tables_.ints({width}, [](std::int64_t w) { return w / kBranch; }),
                     .rank = tables_.ints({width}, [](std::int64_t w) { return w % kBranch; }),
                     .frontier = frontier,
                     .guess_row = tables_.ints({trees_, entries}, [](std::int64_t i) { return i; }),
                     .guesses = guesses_,
                     .next = next,
                     .level = level};
  }
  RoundOp place(std::int32_t level, View listed) {
    const auto offset = static_cast<std::int32_t>((level - 1) * kFrontier);
    return PlaceRows{.nodes = known(level),
                     .listed = listed,
                     .first = first_,
                     .root_position = first_,
                     .begin = none_,
                     .seed = none_,
                     .places = places_,
                     .rows = rows_of(kFrontier),
                     .offset = offset,
                     .prior_rows = kFrontier,
                     .prior_offset = level == 1 ? 0 : offset - static_cast<std::int32_t>(kFrontier)};
  }

  NodeTables nodes_of(std::int64_t nodes) {
    return {.token = tables_.ints({trees_, nodes}),
            .parent = tables_.ints({trees_, nodes}),
            .depth = tables_.ints({trees_, nodes}),
            .score = tables_.doubles({trees_, nodes}, [](std::int64_t) { return 0; }),
            .row = tables_.ints({trees_, nodes})};
  }
  // The nodes of the first levels.
  NodeTables known(std::int64_t levels) const {
    const std::int64_t n = 1 + kBranch + (levels - 1) * kWidth;
    return {.token = nodes_.token.columns(0, n),
            .parent = nodes_.parent.columns(0, n),
            .depth = nodes_.depth.columns(0, n),
            .score = nodes_.score.columns(0, n),
            .row = nodes_.row.columns(0, n)};
  }
  PlacedRows rows_of(std::int64_t rows) {
    const auto column = [&] { return tables_.ints({trees_ * rows}); };
    return {.token = column(),
            .position = column(),
            .slot = column(),
            .sequence = column(),
            .begin = column(),
            .end = column(),
            .ancestor_count = column(),
            .ancestors = tables_.ints({trees_ * rows, kLength}),
            .input = column()};
  }
  // The same number for each tree.
  View each(std::int64_t value) {
    return tables_.ints({trees_}, [=](std::int64_t) { return value; });
  }

  std::int64_t trees_;
  Tables tables_;
  View first_ = each(kContext), none_ = each(0), count_ = each(0);
  PlaceTables places_{tables_.ints({trees_, 2 * kContext / kBlockSize}, [](std::int64_t i) { return i; }), kBlockSize};
  NodeTables nodes_ = nodes_of(1 + kBranch + (kLevels - 1) * kWidth), tree_ = nodes_of(kRows);
  GuessTables guesses_ = some_guesses(tables_, trees_* kFrontier, kBranch);
};

void show_trees(Device& device, std::int64_t trees) {
  TreesOfRound round(device, trees);
  const auto time = [&](const std::vector<RoundOp>& ops) {
    const auto all = [&] {
      for (const RoundOp& op : ops) device.round_ops()->run(op);
    };
    return time_of_one(device, all, round.result());
  };
  double together = time(round.growing());
  fmt::print("{:>2} trees of 16 rows: growing and placing six levels {:.1f}", trees, together);
  for (const RoundOp& op : round.verifying()) {
    const double one = time({op});
    fmt::print(", {} {:.1f}", name(op), one);
    together += one;
  }
  fmt::print(", together {:.1f} us\n", together);
}

void show_rounds(Device& device) {
  show_choices(device);
  for (const std::int64_t trees : {1, 16}) show_trees(device, trees);
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  try {
    constexpr std::string_view kQuads = "quads=";
    std::vector<std::string> types;
    std::vector<std::int64_t> rows;
    std::vector<std::string> words(argv + 1, argv + argc);
    espalier::cuda::Options options;
    std::erase_if(words, [&](const std::string& word) {
      const bool quads = word.starts_with(kQuads);
      if (quads) options.quads_from_rows = std::stoi(word.substr(kQuads.size()));
      return quads;
    });
    const auto device = espalier::cuda::make_device(options);
    if (words == std::vector<std::string>{"rounds"}) {
      espalier::show_rounds(*device);
      return 0;
    }
    for (const std::string& word : words)
      if (espalier::parse_dtype(word))
        types.push_back(word);
      else
        rows.push_back(std::stoll(word));
    if (types.empty()) types = {"q4_1", "q8_0", "q4_k", "bf16"};
    const std::vector<std::int64_t> shown =
        rows.empty() ? std::vector<std::int64_t>{1, 2, 8, 16, 32, 64, 256, 512} : rows;
    for (const std::string& word : types) {
      const espalier::DType type = *espalier::parse_dtype(word);
      espalier::show_linears(*device, type, shown);
      if (type != espalier::DType::bf16 && type != espalier::DType::f16) continue;
      auto one_term = options;
      one_term.activations = espalier::Activations::bf16;
      espalier::show_linears(*espalier::cuda::make_device(one_term), type, shown);
    }
    if (!rows.empty()) return 0;
    espalier::show_attention(*device);
    espalier::show_rounds(*device);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_figures: {}\n", error.what());
    return 1;
  }
}
