#include "decode/draft_tree.h"

#include <algorithm>

#include "base/error.h"
#include "tree/dynamic_growth.h"
#include "tree/static_growth.h"

namespace espalier {
namespace {

// What a drafter computes is not trusted: ids outside the vocabulary name no row of the embedding.
std::vector<DraftToken> usable(std::vector<DraftToken> guesses, std::int32_t vocabulary, int branch) {
  std::erase_if(guesses, [=](const DraftToken& guess) { return guess.token < 0 || guess.token >= vocabulary; });
  if (static_cast<int>(guesses.size()) > branch) guesses.resize(static_cast<std::size_t>(branch));
  return guesses;
}

// The tree of one job while one drafter grows it. Growths differ in which nodes they want expanded.
class JobGrowth {
 public:
  JobGrowth(const GrowthJob& job, const TreeOptions& options, int depth, SourceSet source) {
    if ((job.drafters & source) == 0) return;
    const TreeShape shape = job.shape.value_or(options.shape);
    if (shape == TreeShape::fixed) {
      if (depth < 1) return;
      if (depth < options.choices->depth()) cut_ = options.choices->cut(depth);
      asked_ = options.choices->ranks();
      fixed_.emplace(job.root, cut_ ? *cut_ : *options.choices, source);
      return;
    }
    GrowthOptions growth{.nodes = std::min(options.nodes, job.limits.rows),
                         .depth = depth,
                         .expand = options.expand,
                         .branch = options.branch};
    if (shape == TreeShape::chain) growth.expand = growth.branch = 1;
    dynamic_.emplace(job.root, growth, source);
    asked_ = dynamic_->branch();
  }
  JobGrowth(const JobGrowth&) = delete;  // a growth points to its shape
  JobGrowth& operator=(const JobGrowth&) = delete;

  bool empty() const { return !fixed_ && !dynamic_; }
  bool done() const { return fixed_ ? fixed_->done() : !dynamic_ || dynamic_->done(); }
  const std::vector<int>& frontier() const { return fixed_ ? fixed_->frontier() : dynamic_->frontier(); }
  int branch() const { return fixed_ ? fixed_->branch() : dynamic_->branch(); }
  // How many guesses a drafter is asked for: those of the whole shape, wherever a round ends.
  int asked() const { return asked_; }
  const Candidates& candidates() const { return fixed_ ? fixed_->candidates() : dynamic_->candidates(); }
  void add_children(int node, std::span<const DraftToken> children) {
    fixed_ ? fixed_->add_children(node, children) : dynamic_->add_children(node, children);
  }

 private:
  std::optional<ChoiceTree> cut_;
  std::optional<StaticGrowth> fixed_;
  std::optional<DynamicGrowth> dynamic_;
  int asked_ = 0;
};

// One drafter's trees for all jobs.
class JointGrowth {
 public:
  JointGrowth(std::span<const GrowthJob> jobs, const TreeOptions& options, Drafter& drafter, std::size_t index)
      : jobs_(jobs), drafter_(drafter), index_(index) {
    for (const GrowthJob& job : jobs) {
      const int depth = std::min({options.depth, job.limits.depth, drafter.max_depth()});
      growths_.push_back(std::make_unique<JobGrowth>(job, options, depth, SourceSet{1} << index));
    }
  }

  void grow(LevelBuyer* buyer) {
    if (buyer != nullptr) buyer->begin(index_);
    while (true) {
      open_frontiers();
      if (frontiers_.empty() || (buyer != nullptr && !buyer->buys(frontiers_))) return;
      pass();
      if (buyer != nullptr) buyer->bought(frontiers_);
    }
  }

  void unite_with(std::vector<Candidates>& united) const {
    for (std::size_t i = 0; i < growths_.size(); ++i)
      if (!growths_[i]->empty()) united[i].unite(growths_[i]->candidates());
  }

 private:
  void open_frontiers() {
    nodes_.clear();
    frontiers_.clear();
    for (const auto& growth : growths_) nodes_.push_back(growth->done() ? std::vector<int>() : growth->frontier());
    for (std::size_t i = 0; i < growths_.size(); ++i)
      if (!nodes_[i].empty()) frontiers_.push_back({i, &growths_[i]->candidates(), nodes_[i]});
  }

  void pass() {
    std::vector<DraftJob> drafts;
    for (const Frontier& frontier : frontiers_)
      drafts.push_back({jobs_[frontier.job].sequences[index_].get(), frontier.candidates, frontier.nodes,
                        growths_[frontier.job]->asked()});
    std::vector<Guesses> guesses = drafter_.expand(drafts);
    check(guesses.size() == drafts.size(), "drafter {}: guesses for {} sequences, expected {}", drafter_.name(),
          guesses.size(), drafts.size());
    for (std::size_t i = 0; i < drafts.size(); ++i) add(frontiers_[i], std::move(guesses[i]));
  }

  void add(const Frontier& frontier, Guesses guesses) {
    check(guesses.size() == frontier.nodes.size(), "drafter {}: {} lists of guesses for {} nodes", drafter_.name(),
          guesses.size(), frontier.nodes.size());
    JobGrowth& growth = *growths_[frontier.job];
    const int branch = growth.branch();
    const std::int32_t vocabulary = jobs_[frontier.job].limits.vocabulary;
    for (std::size_t i = 0; i < guesses.size(); ++i)
      growth.add_children(frontier.nodes[i], usable(std::move(guesses[i]), vocabulary, branch));
  }

  std::span<const GrowthJob> jobs_;
  Drafter& drafter_;
  std::size_t index_;
  std::vector<std::unique_ptr<JobGrowth>> growths_;
  // Of the level.
  std::vector<std::vector<int>> nodes_;
  std::vector<Frontier> frontiers_;
};

}  // namespace

std::string_view name(TreeShape shape) {
  switch (shape) {
    case TreeShape::chain: return "chain";
    case TreeShape::fixed: return "static";
    case TreeShape::dynamic: return "dynamic";
  }
  return "unknown";
}

int max_rows(const TreeOptions& options) {
  switch (options.shape) {
    case TreeShape::chain: return std::min(options.nodes, options.depth + 1);
    case TreeShape::fixed: return options.choices->size();
    case TreeShape::dynamic: return options.depth == 0 ? 1 : options.nodes;
  }
  return 1;
}

std::vector<Candidates> grow_candidates(std::span<const GrowthJob> jobs, const TreeOptions& options,
                                        std::span<const std::unique_ptr<Drafter>> drafters, LevelBuyer* buyer) {
  std::vector<Candidates> united;
  for (const GrowthJob& job : jobs) united.emplace_back(job.root);
  for (std::size_t i = 0; i < drafters.size(); ++i) {
    JointGrowth growth(jobs, options, *drafters[i], i);
    growth.grow(buyer);
    growth.unite_with(united);
  }
  return united;
}

}  // namespace espalier
