// Which published blocks of a KV cache hold which tokens, so that a sequence can go on with what others have computed.
// A tree: a node is a published block, its key the token ids that stand in it, its parent the block before it; each
// salt has a root of its own, so different salts never meet. The ids themselves are compared, never a hash of them.
//
// All nodes but some leaves are full blocks and are shared. A leaf may have fewer tokens (the tail of a sequence that
// was released). Of a block that a text shares only in part, and of such a leaf, the common places are copied into a
// block of the sequence's own. So reuse is exact to the token.
//
// Invariants: a node that has children, or whose block somebody holds, is never evicted, so no child is ever without
// its parent. Whoever holds a child need not hold the parent: he may have computed an equal block himself, and then the
// parent stays for his sake although he has no use for it (twins()). Whoever uses
// a node has used its ancestors, so by last use children come before their parents, and one pass over the nodes in this
// order evicts all that can be evicted.
//
// Nobody else publishes or evicts blocks of this cache. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/kv_cache.h"

namespace espalier {

// What an index has done so far.
struct PrefixCounts {
  std::int64_t hits = 0;              // calls of extend() that brought something
  std::int64_t positions_reused = 0;  // what they brought
  std::int64_t published = 0;         // blocks
  std::int64_t evictions = 0;  // blocks that had to make room; tails that a longer one replaced are not among them
};

// What an index has of a text.
struct PrefixHit {
  std::int64_t length = 0;                // positions; those behind the full blocks would be copied
  std::vector<std::int32_t> blocks = {};  // the full ones, which would be shared
};

class PrefixIndex {
 public:
  // The cache must outlive the index.
  explicit PrefixIndex(KvCache& cache);
  PrefixIndex(const PrefixIndex&) = delete;  // nodes point to each other
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // What an empty sequence would get by extend(). Changes nothing, not even last uses.
  PrefixHit find(std::span<const std::int32_t> tokens, std::int64_t most, std::string_view salt) const;

  // The sequence, whose committed positions are those of the first tokens, goes on with what the index has of the
  // others, to at most `most` positions in all. Returns its new length; what it has already is never less afterwards,
  // though it may lie in other blocks. When blocks are short, one is evicted for the places that have to be copied; if
  // none can be, there is no copy. No branch of the sequence may be open. If the device fails while it copies, the
  // sequence ends with the last whole block it has by then.
  std::int64_t extend(SequenceId sequence, std::span<const std::int32_t> tokens, std::int64_t most,
                      std::string_view salt);

  // What becomes of the last block when it is not full.
  enum class Tail {
    keep,     // it is the sequence's own, which goes on writing it
    publish,  // the sequence is about to be released; if it goes on all the same, it does so in a copy
  };
  // Publishes the blocks of the sequence's first tokens.size() positions, which hold these tokens, unless the index has
  // equal ones. No branch of the sequence may be open. The last use of all of them is now.
  void publish(SequenceId sequence, std::span<const std::int32_t> tokens, std::string_view salt, Tail tail);

  // The blocks of the sequence's first tokens.size() positions that the index has too, in blocks of others: as many
  // would be kept besides its own while it holds a block that it has published behind them.
  std::int64_t twins(SequenceId sequence, std::span<const std::int32_t> tokens, std::string_view salt) const;

  // Evicts up to `blocks` blocks that nobody holds, least recently used first, children before parents; tells how many.
  std::int64_t evict(std::int64_t blocks);
  void clear() { evict(size()); }  // all that can be
  // How many evict() could give. Takes a look at every block of the cache, at no token.
  std::int64_t evictable() const;

  std::int64_t size() const { return static_cast<std::int64_t>(by_use_.size()); }  // nodes
  const PrefixCounts& counts() const { return counts_; }

 private:
  using Tokens = std::span<const std::int32_t>;
  struct Node;
  struct ByTokens {  // lexicographic, so the child that has most in common with a text is a neighbour of its place
    using is_transparent = void;
    bool operator()(const Node* a, const Node* b) const;
    bool operator()(const Node* a, Tokens b) const;
    bool operator()(Tokens a, const Node* b) const;
  };
  using Children = std::set<Node*, ByTokens>;
  struct Node {
    Node* parent = nullptr;  // none of a root
    Children children = {};
    std::string_view salt = {};  // of a root: its key in roots_
    // Not of a root:
    std::int32_t block = 0;
    std::vector<std::int32_t> tokens = {};
    std::list<Node*>::iterator place = {};  // in by_use_
  };
  // A child and how many tokens it has in common with a text; no child when there are none.
  struct Match {
    Node* child = nullptr;
    std::int64_t common = 0;
  };
  // The way a text takes through the tree: full blocks, then the beginning of one.
  struct Way {
    std::vector<Node*> full = {};
    Match partial = {};

    Node* last() const { return partial.child != nullptr ? partial.child : full.back(); }
  };

  std::int64_t block_size() const { return cache_->block_size(); }
  Tokens piece(Tokens tokens, std::int64_t index) const;  // those of one block
  static Match closest(const Children& children, Tokens text);
  Way walk(Tokens tokens, std::string_view salt) const;
  std::int64_t length(const Way& way) const;

  bool can_copy(SequenceId sequence, const Node& source);
  bool make_room(const Node& spared);
  Node& root(std::string_view salt);
  Node& added(Node& parent, Tokens tokens, std::int32_t block);
  Node& grown(Node& tail, const Node& parent, Tokens tokens);
  void drop_tails_within(Node& parent, Tokens tokens);
  void touch(Node* node);
  std::int64_t evict(std::int64_t blocks, const Node* spared);
  bool held(const Node& node) const { return cache_->tables().references(node.block) > 0; }
  void remove(Node& node);

  KvCache* cache_;
  std::map<std::string, Node, std::less<>> roots_;  // by salt, those with children
  std::vector<std::unique_ptr<Node>> nodes_;        // by block
  std::list<Node*> by_use_;                         // least recently used first, children before parents
  PrefixCounts counts_;
};

}  // namespace espalier
