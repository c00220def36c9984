#include "decode/prefix_index.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

std::int64_t shared_beginning(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace

bool PrefixIndex::ByTokens::operator()(const Node* a, const Node* b) const {
  return std::ranges::lexicographical_compare(a->tokens, b->tokens);
}

bool PrefixIndex::ByTokens::operator()(const Node* a, Tokens b) const {
  return std::ranges::lexicographical_compare(a->tokens, b);
}

bool PrefixIndex::ByTokens::operator()(Tokens a, const Node* b) const {
  return std::ranges::lexicographical_compare(a, b->tokens);
}

PrefixIndex::PrefixIndex(KvCache& cache)
    : cache_(&cache), nodes_(static_cast<std::size_t>(cache.tables().block_count())) {}

// --- looking --------------------------------------------------------------------------------------------------------

PrefixIndex::Tokens PrefixIndex::piece(Tokens tokens, std::int64_t index) const {
  const std::int64_t begin = std::min(index * block_size(), std::ssize(tokens));
  const std::int64_t size = std::min(block_size(), std::ssize(tokens) - begin);
  return tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
}

// Among equals the one behind the text, which is the text itself where there is one.
PrefixIndex::Match PrefixIndex::closest(const Children& children, Tokens text) {
  const auto behind = children.lower_bound(text);
  Match best;
  const auto try_child = [&](Node* child) {
    const std::int64_t common = shared_beginning(child->tokens, text);
    if (common > best.common) best = {child, common};
  };
  if (behind != children.end()) try_child(*behind);
  if (behind != children.begin()) try_child(*std::prev(behind));
  return best;
}

PrefixIndex::Way PrefixIndex::walk(Tokens tokens, std::string_view salt) const {
  Way way;
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return way;
  const Children* children = &root->second.children;
  for (std::int64_t i = 0;; ++i) {
    const Match match = closest(*children, piece(tokens, i));
    if (match.common < block_size()) {
      way.partial = match;
      return way;
    }
    way.full.push_back(match.child);
    children = &match.child->children;
  }
}

std::int64_t PrefixIndex::length(const Way& way) const {
  return std::ssize(way.full) * block_size() + way.partial.common;
}

PrefixHit PrefixIndex::find(Tokens tokens, std::int64_t most, std::string_view salt) const {
  check(most >= 0, "PrefixIndex: find at most {} positions", most);
  const Way way = walk(tokens.first(static_cast<std::size_t>(std::min(most, std::ssize(tokens)))), salt);
  PrefixHit hit{.length = length(way)};
  for (const Node* node : way.full) hit.blocks.push_back(node->block);
  return hit;
}

// --- going on with what was found -----------------------------------------------------------------------------------

std::int64_t PrefixIndex::extend(SequenceId sequence, Tokens tokens, std::int64_t most, std::string_view salt) {
  const std::int64_t before = cache_->length(sequence);
  check(before <= std::ssize(tokens), "PrefixIndex: sequence {} has {} positions, {} tokens are given", sequence,
        before, tokens.size());
  check(most >= 0, "PrefixIndex: extend to at most {} positions", most);
  const Way way = walk(tokens.first(static_cast<std::size_t>(std::min(most, std::ssize(tokens)))), salt);
  if (length(way) <= before) return before;

  touch(way.last());  // before anything is evicted
  const std::int64_t whole = before / block_size();
  std::vector<std::int32_t> shared;
  for (const Node* node : std::span(way.full).subspan(static_cast<std::size_t>(whole))) shared.push_back(node->block);
  // Only what is certain to be replaced is given up.
  if (shared.empty() && !can_copy(sequence, *way.partial.child)) return before;
  if (before % block_size() != 0) cache_->truncate(sequence, whole * block_size());
  cache_->share(sequence, shared);
  if (way.partial.child != nullptr && make_room(*way.partial.child))
    check(cache_->append_copy(sequence, way.partial.child->block, way.partial.common), "PrefixIndex: no room");

  const std::int64_t after = cache_->length(sequence);
  ++counts_.hits;
  counts_.positions_reused += after - before;
  return after;
}

// Whether there is room for a copy of the source once the sequence has given up the block it ends in.
bool PrefixIndex::can_copy(SequenceId sequence, const Node& source) {
  const bool gives_one =
      cache_->length(sequence) % block_size() != 0 && cache_->tables().writable(cache_->blocks(sequence).back());
  return gives_one || make_room(source);
}

bool PrefixIndex::make_room(const Node& spared) {
  return cache_->free_positions() >= block_size() || evict(1, &spared) == 1;
}

// --- publishing -----------------------------------------------------------------------------------------------------

void PrefixIndex::publish(SequenceId sequence, Tokens tokens, std::string_view salt, Tail tail) {
  check(std::ssize(tokens) <= cache_->length(sequence), "PrefixIndex: {} tokens of sequence {}, which has {} positions",
        tokens.size(), sequence, cache_->length(sequence));
  const std::span<const std::int32_t> blocks = cache_->blocks(sequence);
  const std::int64_t full = std::ssize(tokens) / block_size();
  const bool with_tail = tail == Tail::publish && std::ssize(tokens) % block_size() != 0;
  if (full == 0 && !with_tail) return;

  Node* node = &root(salt);
  for (std::int64_t i = 0; i < full + (with_tail ? 1 : 0); ++i) {
    const Tokens text = piece(tokens, i);
    const Match match = closest(node->children, text);
    const bool known = match.common == std::ssize(text);
    node = known ? match.child : &added(*node, text, blocks[static_cast<std::size_t>(i)]);
  }
  touch(node);
}

std::int64_t PrefixIndex::twins(SequenceId sequence, Tokens tokens, std::string_view salt) const {
  const std::vector<Node*> known = walk(tokens, salt).full;
  const std::span<const std::int32_t> blocks = cache_->blocks(sequence);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < known.size(); ++i) count += known[i]->block != blocks[i] ? 1 : 0;
  return count;
}

PrefixIndex::Node& PrefixIndex::root(std::string_view salt) {
  const auto found = roots_.find(salt);
  if (found != roots_.end()) return found->second;
  const auto created = roots_.try_emplace(std::string(salt)).first;
  created->second.salt = created->first;
  return created->second;
}

PrefixIndex::Node& PrefixIndex::added(Node& parent, Tokens tokens, std::int32_t block) {
  std::unique_ptr<Node>& node = nodes_.at(static_cast<std::size_t>(block));
  if (node != nullptr) return grown(*node, parent, tokens);
  auto fresh = std::make_unique<Node>(
      Node{.parent = &parent, .block = block, .tokens = std::vector(tokens.begin(), tokens.end())});
  Children child{fresh.get()};
  std::list<Node*> use{fresh.get()};
  cache_->publish(block);  // all memory is there: from here on nothing fails
  node = std::move(fresh);
  node->place = use.begin();
  parent.children.insert(child.extract(child.begin()));
  by_use_.splice(parent.parent != nullptr ? parent.place : by_use_.end(), use);
  ++counts_.published;
  drop_tails_within(parent, tokens);
  return *node;
}

// A tail that its sequence published before it said all its tokens. Any other block that is in the index already is
// there under the tokens of another text, or another salt: our mistake, which must not become somebody's answer.
PrefixIndex::Node& PrefixIndex::grown(Node& tail, const Node& parent, Tokens tokens) {
  check(tail.parent == &parent && shared_beginning(tail.tokens, tokens) == std::ssize(tail.tokens),
        "PrefixIndex: block {} is in the index with other tokens or another salt", tail.block);
  std::vector<std::int32_t> longer(tokens.begin(), tokens.end());
  auto place = tail.parent->children.extract(&tail);
  tail.tokens.swap(longer);
  tail.parent->children.insert(std::move(place));
  drop_tails_within(*tail.parent, tokens);
  return tail;
}

// Leaves that say only the beginning of what another child says now. One that somebody holds stays until it is evicted.
void PrefixIndex::drop_tails_within(Node& parent, Tokens tokens) {
  Tokens rest = tokens.first(tokens.size() - 1);
  while (!rest.empty()) {
    const auto behind = parent.children.upper_bound(rest);
    if (behind == parent.children.begin()) return;
    Node& before = **std::prev(behind);
    const auto common = static_cast<std::size_t>(shared_beginning(before.tokens, rest));
    const bool within = common == before.tokens.size();
    if (within && !held(before)) remove(before);
    rest = rest.first(within ? common - 1 : common);
  }
}

// --- last uses and eviction -----------------------------------------------------------------------------------------

void PrefixIndex::touch(Node* node) {
  for (; node->parent != nullptr; node = node->parent) by_use_.splice(by_use_.end(), by_use_, node->place);
}

std::int64_t PrefixIndex::evict(std::int64_t blocks) {
  return evict(blocks, nullptr);
}

std::int64_t PrefixIndex::evict(std::int64_t blocks, const Node* spared) {
  std::int64_t evicted = 0;
  for (auto next = by_use_.begin(); next != by_use_.end() && evicted < blocks;) {
    Node& node = **next++;
    if (&node == spared || !node.children.empty() || held(node)) continue;
    remove(node);
    ++evicted;
    ++counts_.evictions;
  }
  return evicted;
}

// All of the index is in order before the cache, whose device may complain, is told.
void PrefixIndex::remove(Node& node) {
  const std::unique_ptr<Node> removed = std::move(nodes_[static_cast<std::size_t>(node.block)]);
  by_use_.erase(removed->place);
  Node& parent = *removed->parent;
  parent.children.erase(removed.get());
  if (parent.parent == nullptr && parent.children.empty()) roots_.erase(roots_.find(parent.salt));
  cache_->evict(removed->block);
}

// Cached blocks, less those that somebody's hold on a descendant keeps. References change without the index being told,
// so they are looked at each time.
std::int64_t PrefixIndex::evictable() const {
  std::set<std::int32_t> pinned;
  for (const std::int32_t block : cache_->tables().shared_blocks()) {
    const Node* node = nodes_[static_cast<std::size_t>(block)].get();
    if (node == nullptr) continue;
    for (node = node->parent; node->parent != nullptr && !held(*node); node = node->parent)
      if (!pinned.insert(node->block).second) break;
  }
  return cache_->tables().cached_blocks() - std::ssize(pinned);
}

}  // namespace espalier
