#include "decode/resident_rounds.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"
#include "decode/draft_rows.h"

namespace espalier {
namespace {

// Takes tables out of one buffer, one behind the other. Without a buffer it only counts.
class Carver {
 public:
  explicit Carver(View buffer) : buffer_(buffer) {}

  View take(std::int64_t rows, std::int64_t columns) {
    const std::int64_t begin = taken_;
    taken_ += rows * columns;
    return buffer_.empty() ? View() : buffer_.rows(begin, rows * columns).reshaped({rows, columns});
  }
  View take(std::int64_t elements) {
    const View table = take(1, elements);
    return table.empty() ? View() : table.reshaped({elements});
  }
  std::int64_t taken() const { return taken_; }

 private:
  View buffer_;
  std::int64_t taken_ = 0;
};

std::vector<std::int32_t> counting(std::int64_t count) {
  std::vector<std::int32_t> list(static_cast<std::size_t>(count));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

Tensor uploaded_list(Device& device, std::span<const std::int32_t> list) {
  if (list.empty()) return {};
  Tensor tensor = device.tensor(DType::i32, {std::ssize(list)});
  upload<std::int32_t>(device, list, tensor);
  return tensor;
}

// A tree's part of a table that was downloaded with its whole buffer.
template <typename T>
std::span<const T> of_tree(std::span<const T> all, ConstView buffer, ConstView table, std::size_t tree,
                           std::int64_t trees) {
  const auto begin = static_cast<std::size_t>(table.data() - buffer.data()) / sizeof(T);
  const auto count = static_cast<std::size_t>(table.elements() / trees);
  return all.subspan(begin + tree * count, count);
}

}  // namespace

UploadedTables::UploadedTables(Device& device, std::int64_t words)
    : device_(&device), buffer_(device.tensor(DType::i32, {words})) {}

View UploadedTables::add(std::span<const std::int32_t> list) {
  const std::int64_t begin = std::ssize(words_), count = std::ssize(list);
  check(begin + count <= buffer_.view.dim(0), "tables of a round: {} words, room for {}", begin + count,
        buffer_.view.dim(0));
  words_.insert(words_.end(), list.begin(), list.end());
  return buffer_.view.rows(begin, count);
}

void UploadedTables::upload() {
  espalier::upload<std::int32_t>(*device_, words_, buffer_.view.rows(0, std::ssize(words_)));
}

bool ResidentRounds::possible(Device& device, Drafter& drafter, const StepForm& form) {
  return device.round_ops() != nullptr && device.row_buckets().empty() && form.mask == MaskForm::list &&
         form.attention == AttentionOp::fused && drafter.resident() != nullptr;
}

ResidentRounds::ResidentRounds(const Transformer& model, KvCache& cache, Workspace& workspace, Drafter& drafter,
                               const ResidentOptions& options)
    : model_(&model),
      cache_(&cache),
      workspace_(&workspace),
      device_(&model.device()),
      drafter_(drafter.resident()),
      options_(options),
      padding_(cache.tables(), options.branch_rows) {
  for (std::int64_t i = 0; i < cache.memory().shape().layers; ++i) layers_.push_back(cache.memory().layer(i));
  options_.tree.depth = std::min(options.tree.depth, drafter.max_depth());
  make_levels();
  allocate();
  recordings_ = device_->make_recordings();
}

// --- the shape of trees ---------------------------------------------------------------------------------------------

void ResidentRounds::add_level(std::span<const std::int32_t> entry, std::span<const std::int32_t> rank,
                               std::span<const std::int32_t> listed) {
  Level level;
  level.entry = uploaded_list(*device_, entry);
  level.rank = uploaded_list(*device_, rank);
  level.listed = uploaded_list(*device_, listed);
  if (!levels_.empty()) level.offset = levels_.size() == 1 ? 0 : levels_.back().offset + levels_.back().width;
  level.nodes = (levels_.empty() ? 1 : levels_.back().nodes) + std::ssize(entry);
  level.width = entry.back() + 1;
  std::vector<std::int32_t> tree;
  for (std::int64_t i = 0; i < options_.sequences * level.width; ++i)
    tree.push_back(static_cast<std::int32_t>(i / level.width));
  level.tree = uploaded_list(*device_, tree);
  levels_.push_back(std::move(level));
}

void ResidentRounds::make_levels() {
  const TreeOptions& tree = options_.tree;
  if (tree.shape != TreeShape::fixed) {
    const std::int32_t expand = static_cast<std::int32_t>(widest_level(tree));
    for (int depth = 1; depth <= tree.depth; ++depth) {
      std::vector<std::int32_t> entry, rank;
      for (std::int32_t e = 0; e < (depth == 1 ? 1 : expand); ++e)
        for (std::int32_t r = 0; r < most_guesses(tree); ++r) entry.push_back(e), rank.push_back(r);
      add_level(entry, rank, {});
    }
    return;
  }
  const ChoiceTree shape = tree.choices->cut(tree.depth);
  std::vector<std::int32_t> entry_of(static_cast<std::size_t>(shape.size()));
  for (int row = 1; row < shape.size();) {
    const std::size_t depth = shape.path(row).size();
    std::vector<std::int32_t> entry, rank, listed;
    for (; row < shape.size() && shape.path(row).size() == depth; ++row) {
      entry.push_back(entry_of[static_cast<std::size_t>(shape.parent(row))]);
      rank.push_back(shape.path(row).back());
      if (shape.children(row) == 0) continue;
      entry_of[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(listed.size());
      listed.push_back(row);
    }
    add_level(entry, rank, listed);
  }
}

void ResidentRounds::allocate() {
  const TreeOptions& tree = options_.tree;
  const std::int64_t most_blocks = cache_->tables().blocks_for(workspace_->shape().positions);
  const ResidentShape largest{
      .trees = options_.sequences, .rows = max_rows(tree), .depth = tree.depth, .block_columns = most_blocks};
  const Tables sizes = lay_out(largest);
  ints_ = device_->tensor(DType::i32, {sizes.all.ints});
  scores_ = device_->tensor(DType::f64, {sizes.all.scores});
  read_ints_.resize(static_cast<std::size_t>(sizes.read.ints));
  read_scores_.resize(static_cast<std::size_t>(sizes.read.scores));
  settings_ = device_->tensor(DType::f32, {3, largest.trees});
  const std::int64_t all_rows = largest.trees * std::max<std::int64_t>(largest.rows, widest_level(tree));
  counting_ = uploaded_list(*device_, counting(std::max(all_rows, largest.trees)));
  zeros_ = uploaded_list(*device_, std::vector<std::int32_t>(static_cast<std::size_t>(largest.trees)));
  uploaded_.emplace(*device_, largest.trees * (7 + most_blocks) + drafter_->table_words(largest));
  features_.first_entry = largest.trees * largest.rows;
  const std::int64_t kept = features_.first_entry + largest.trees;
  const auto taps = std::ssize(workspace_->shape().tap_boundaries);
  const std::int64_t hidden = model_->config().hidden;
  if (taps > 0) taps_ = device_->tensor(DType::f32, {kept, taps * hidden});
  if (drafter_->wants_hidden()) hidden_ = device_->tensor(DType::f32, {kept, hidden});
  features_.taps = taps_;
  features_.hidden = hidden_;
}

ResidentRounds::Tables ResidentRounds::lay_out(const ResidentShape& shape) const {
  const std::int64_t trees = shape.trees, rows = shape.rows;
  const std::int64_t length = std::min<std::int64_t>(shape.depth + 1, rows);  // of the longest path
  const std::int64_t nodes = level(shape.depth).nodes, step = trees * rows;
  std::int64_t widest = 1;
  for (int i = 1; i <= shape.depth; ++i) widest = std::max(widest, level(i).width);
  Carver ints(ints_), scores(scores_);
  Tables t;
  t.count = ints.take(trees);
  t.outcome = ints.take(trees);
  t.size = ints.take(trees);
  t.path = ints.take(trees, length);
  t.choice = ints.take(step);
  t.drafted = ints.take(trees, rows);
  for (NodeTables* table : {&t.tree, &t.nodes}) {
    const std::int64_t columns = table == &t.tree ? rows : nodes;
    table->token = ints.take(trees, columns);
    table->parent = ints.take(trees, columns);
    table->depth = ints.take(trees, columns);
    table->score = scores.take(trees, columns);
    (table == &t.tree ? t.always_read : t.read) = {ints.taken(), scores.taken()};
  }
  t.tree.row = ints.take(trees, rows);
  t.nodes.row = ints.take(trees, nodes);
  for (View* list : {&t.last, &t.token, &t.kept}) *list = ints.take(trees);
  t.state = ints.take(step);
  t.from = ints.take(trees * length);
  t.to = ints.take(trees * length);
  t.odd = ints.take(trees * widest);
  t.even = ints.take(trees * widest);
  for (View* column : {&t.rows.token, &t.rows.position, &t.rows.slot, &t.rows.sequence, &t.rows.begin, &t.rows.end,
                       &t.rows.ancestor_count})
    *column = ints.take(step);
  t.rows.ancestors = ints.take(step, shape.depth + 1);
  t.all = {ints.taken(), scores.taken()};
  return t;
}

// --- a round --------------------------------------------------------------------------------------------------------

// Block tables twice as wide each time, up to the longest.
ResidentShape ResidentRounds::shape_of(std::span<const ResidentJob> jobs, const ResidentChoice& chosen) const {
  std::int64_t blocks = 1;
  for (const ResidentJob& job : jobs) blocks = std::max(blocks, std::ssize(cache_->blocks(job.branch->id())));
  const std::int64_t all = cache_->tables().blocks_for(workspace_->shape().positions);
  check(blocks <= all, "a round over {} blocks of a sequence, expected at most {}", blocks, all);
  return {.trees = trees_for(std::ssize(jobs)),
          .rows = chosen.rows,
          .depth = chosen.depth,
          .block_columns = std::min(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(blocks))), all)};
}

std::vector<ResidentVerdict> ResidentRounds::run(std::span<const ResidentJob> jobs, const ResidentChoice& chosen,
                                                 bool all) {
  check(!jobs.empty() && std::ssize(jobs) <= options_.sequences, "a round of {} trees, expected 1 to {}", jobs.size(),
        options_.sequences);
  check(chosen.rows >= 1 && chosen.rows <= most().rows && chosen.depth >= 1 && chosen.depth <= most().depth,
        "a round of trees of {} rows and {} levels, expected up to {} and {}", chosen.rows, chosen.depth, most().rows,
        most().depth);
  shape_ = shape_of(jobs, chosen);
  tables_ = lay_out(shape_);
  fill(jobs, shape_);
  key_ = {.rows = shape_.rows,          // of one tree: it is worth recording however many there are
          .output_rows = shape_.depth,  // a key has no levels
          .sequences = shape_.trees,
          .context = shape_.block_columns * cache_->block_size()};
  ++runs_[key_];
  device_->step(*recordings_, key_, [this] {
    grow();
    choose();
    verify();
    walk_and_commit();
  });
  return read(jobs, all);
}

// What the host says of each tree, those that pad the round included.
struct ResidentRounds::TreeLists {
  std::int64_t block_columns = 0;
  std::vector<std::int32_t> root = {}, levels = {}, rows = {}, prefix = {}, top_k = {}, seed = {}, blocks = {};

  void add_blocks(std::span<const std::int32_t> own) {
    blocks.insert(blocks.end(), own.begin(), own.end());
    blocks.resize(root.size() * static_cast<std::size_t>(block_columns));
  }
  void add(const ResidentJob& job, std::int64_t most_ranked, std::span<const std::int32_t> own_blocks) {
    root.push_back(job.root);
    levels.push_back(job.depth);
    rows.push_back(static_cast<std::int32_t>(job.rows));
    prefix.push_back(static_cast<std::int32_t>(job.prefix));
    top_k.push_back(static_cast<std::int32_t>(std::min(job.options->sampling.top_k, most_ranked)));
    seed.push_back(static_cast<std::int32_t>(job.options->seed & 0xffffffff));
    seed.push_back(static_cast<std::int32_t>(job.options->seed >> 32));
    add_blocks(own_blocks);
  }
  // A root at the front of its blocks, without levels below.
  void add_padding(std::span<const std::int32_t> own_blocks) {
    for (auto* list : {&root, &levels, &prefix, &top_k, &seed, &seed}) list->push_back(0);
    rows.push_back(1);
    add_blocks(own_blocks);
  }
};

ResidentRounds::TreeLists ResidentRounds::list_trees(std::span<const ResidentJob> jobs,
                                                     const ResidentShape& shape) const {
  TreeLists lists{.block_columns = shape.block_columns};
  for (const ResidentJob& job : jobs) {
    check(job.rows <= shape.rows && job.depth <= shape.depth, "a tree of {} rows and {} levels in a round of {} and {}",
          job.rows, job.depth, shape.rows, shape.depth);
    lists.add(job, model_->config().vocabulary, cache_->blocks(job.branch->id()));
  }
  for (std::int64_t i = 0; i < shape.trees - std::ssize(jobs); ++i) lists.add_padding(padding_.blocks(i));
  return lists;
}

void ResidentRounds::fill(std::span<const ResidentJob> jobs, const ResidentShape& shape) {
  const TreeLists lists = list_trees(jobs, shape);
  std::vector<DraftSequence*> sequences;
  for (const ResidentJob& job : jobs) sequences.push_back(job.sequence);
  uploaded_->clear();
  filled_.root = uploaded_->add(lists.root);
  filled_.levels = uploaded_->add(lists.levels);
  filled_.rows = uploaded_->add(lists.rows);
  filled_.prefix = uploaded_->add(lists.prefix);
  filled_.top_k = uploaded_->add(lists.top_k);
  filled_.seed = uploaded_->add(lists.seed).reshaped({shape.trees, 2});
  filled_.blocks = uploaded_->add(lists.blocks).reshaped({shape.trees, shape.block_columns});
  drafter_->prepare({.sequences = sequences, .shape = shape, .features = features_, .padding = padding_}, *uploaded_);
  uploaded_->upload();
  upload_settings(jobs);
}

void ResidentRounds::upload_settings(std::span<const ResidentJob> jobs) {
  const auto sequences = static_cast<std::size_t>(options_.sequences);
  const SamplingOptions greedy;  // of trees that pad the round
  std::vector<float> settings(3 * sequences);
  for (std::size_t s = 0; s < sequences; ++s) {
    const SamplingOptions& sampling = s < jobs.size() ? jobs[s].options->sampling : greedy;
    settings[s] = sampling.temperature;
    settings[sequences + s] = sampling.top_p;
    settings[2 * sequences + s] = sampling.min_p;
  }
  if (settings == settings_there_) return;
  upload<float>(*device_, settings, settings_);
  settings_there_ = std::move(settings);
}

ConstView ResidentRounds::setting(std::int64_t index) const {
  return settings_.view.rows(index, 1).columns(0, trees()).reshaped({trees()});
}

// --- the recording --------------------------------------------------------------------------------------------------

NodeTables ResidentRounds::grown(std::int64_t nodes) const {
  const NodeTables& all = tables_.nodes;
  return {.token = all.token.columns(0, nodes),
          .parent = all.parent.columns(0, nodes),
          .depth = all.depth.columns(0, nodes),
          .score = all.score.columns(0, nodes),
          .row = all.row.columns(0, nodes)};
}

// Who is expanded behind a level; empty behind the last.
View ResidentRounds::frontier_behind(int number) const {
  if (number == shape_.depth) return {};
  const std::int64_t width = level(number + 1).width;
  return (number % 2 == 1 ? tables_.odd : tables_.even).rows(0, trees() * width).reshaped({trees(), width});
}

void ResidentRounds::grow() {
  for (int number = 1; number <= shape_.depth; ++number) grow_level(number);
}

void ResidentRounds::grow_level(int number) {
  const Level& own = level(number);
  ResidentTrees growing{
      .shape = shape_,
      .nodes = number == 1 ? NodeTables() : grown(level(number - 1).nodes),
      .frontier = number == 1 ? zeros_.view.rows(0, trees()).reshaped({trees(), 1}) : frontier_behind(number - 1),
      .width = own.width,
      .offset = own.offset,
      .tree = own.tree.view.rows(0, trees() * own.width).reshaped({trees(), own.width}),
      .vocabulary = static_cast<std::int32_t>(model_->config().vocabulary),
      .blocks = filled_.blocks,
      .block_size = cache_->block_size(),
      .counting = counting_};
  if (number > 2) {
    growing.prior_width = level(number - 1).width;
    growing.prior_offset = level(number - 1).offset;
  }
  const LevelGuesses guessed = drafter_->guess(number, growing, features_);
  run_op(GrowLevel{.nodes = grown(own.nodes),
                   .root = filled_.root,
                   .levels = filled_.levels,
                   .entry = own.entry,
                   .rank = own.rank,
                   .frontier = growing.frontier,
                   .guess_row = guessed.row,
                   .guesses = guessed.guesses,
                   .listed = number < shape_.depth ? own.listed.view : View(),
                   .next = frontier_behind(number),
                   .level = number,
                   .root_row = drafter_->root_has_row() ? 1 : 0});
}

void ResidentRounds::choose() {
  run_op(ChooseRows{.nodes = tables_.nodes,
                    .rows = filled_.rows,
                    .tree = tables_.tree,
                    .drafted = tables_.drafted,
                    .size = tables_.size});
  run_op(PlaceRows{.nodes = tables_.tree,
                   .first = filled_.prefix,
                   .root_position = filled_.prefix,
                   .begin = zeros_.view.rows(0, trees()),
                   .places = places(),
                   .rows = tables_.rows,
                   .window = static_cast<std::int32_t>(model_->config().sliding_window)});
}

void ResidentRounds::verify() {
  const ConstView all = counting_.view.rows(0, trees() * shape_.rows);
  const bool taps = !features_.taps.empty();
  const StepOutput output = model_->forward(
      PlacedStep{.rows = tables_.rows.tables(filled_.blocks), .output_rows = all, .tap_rows = taps ? all : ConstView()},
      *workspace_);
  if (taps) device_->gather_rows(output.taps, all, features_.taps.rows(0, all.dim(0)));
  if (!features_.hidden.empty()) device_->gather_rows(output.hidden, all, features_.hidden.rows(0, all.dim(0)));
  run_op(ChooseTokens{.logits = output.logits,
                      .position = tables_.rows.position,
                      .temperature = setting(0),
                      .top_p = setting(1),
                      .min_p = setting(2),
                      .top_k = filled_.top_k,
                      .seed = filled_.seed,
                      .token = tables_.choice,
                      .state = tables_.state});
}

void ResidentRounds::walk_and_commit() {
  run_op(WalkTrees{.tree = tables_.tree,
                   .choice = tables_.choice,
                   .state = tables_.state,
                   .path = tables_.path,
                   .count = tables_.count,
                   .last = tables_.last,
                   .token = tables_.token,
                   .outcome = tables_.outcome});
  run_op(ListMoves{.path = tables_.path,
                   .count = tables_.count,
                   .row = tables_.tree.row,
                   .first = filled_.prefix,
                   .places = places(),
                   .from = tables_.from,
                   .to = tables_.to,
                   .kept = tables_.kept});
  device_->kv_copy(layers_, tables_.from, tables_.to);
}

// --- what the host reads --------------------------------------------------------------------------------------------

// Nodes of one tree, as they were downloaded.
struct ResidentRounds::ReadNodes {
  std::span<const std::int32_t> token, parent, depth;
  std::span<const double> score;

  Candidates candidates(std::int32_t root, SourceSet sources) const {
    Candidates all(root);
    all.reserve(token.size());
    std::vector<int> id(token.size());
    for (std::size_t n = 1; n < token.size(); ++n)
      if (depth[n] > 0) id[n] = all.add(id[static_cast<std::size_t>(parent[n])], {token[n], score[n], sources});
    return all;
  }
  TokenTree tree(std::int32_t root, std::int32_t rows, SourceSet sources) const {
    TokenTree tree(root);
    tree.reserve(rows);
    for (std::size_t r = 1; r < static_cast<std::size_t>(rows); ++r)
      tree.append(parent[r], {token[r], score[r], sources});
    return tree;
  }
};

std::vector<ResidentVerdict> ResidentRounds::read(std::span<const ResidentJob> jobs, bool all) {
  const TableSizes& sizes = all ? tables_.read : tables_.always_read;
  const auto all_ints = std::span(read_ints_).first(static_cast<std::size_t>(sizes.ints));
  const auto all_scores = std::span(read_scores_).first(static_cast<std::size_t>(sizes.scores));
  const Download parts[] = {part_of_download(ints_.view.rows(0, sizes.ints), all_ints),
                            part_of_download(scores_.view.rows(0, sizes.scores), all_scores)};
  device_->download(parts);
  std::vector<ResidentVerdict> verdicts;
  verdicts.reserve(jobs.size());
  for (std::size_t s = 0; s < jobs.size(); ++s) {
    const auto ints = [&](ConstView table) { return of_tree<std::int32_t>(all_ints, ints_, table, s, trees()); };
    const auto nodes = [&](const NodeTables& tables) {
      return ReadNodes{ints(tables.token), ints(tables.parent), ints(tables.depth),
                       of_tree<double>(all_scores, scores_, tables.score, s, trees())};
    };
    ResidentVerdict& verdict = verdicts.emplace_back(
        ResidentVerdict{.outcome = static_cast<RowState>(ints(tables_.outcome)[0]),
                        .tree = nodes(tables_.tree).tree(jobs[s].root, ints(tables_.size)[0], options_.sources)});
    if (all) verdict.candidates = nodes(tables_.nodes).candidates(jobs[s].root, options_.sources);
    const auto drafted = ints(tables_.drafted);
    verdict.drafted.assign(drafted.begin(), drafted.end());
    const auto path = ints(tables_.path), choice = ints(tables_.choice);
    for (const std::int32_t node : path.first(static_cast<std::size_t>(ints(tables_.count)[0])))
      verdict.visits.push_back({node, choice[static_cast<std::size_t>(node)]});
  }
  return verdicts;
}

}  // namespace espalier
