// The tables of round ops in the memory of a device under test, with guard bytes around them, and what stands in them.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "device/conformance/conformance.h"
#include "device/round_ops.h"
#include "model/step_tables.h"
#include "tree/token_tree.h"

namespace espalier {

using Ints = std::vector<std::int32_t>;

// The devices that have round ops.
std::vector<DeviceUnderTest> devices_with_round_ops();

// A list of numbers, or a table, that lies on a device.
class IntTable {
 public:
  IntTable(Device& device, std::int64_t rows, std::int64_t columns, Placement placement = {});
  IntTable(Device& device, std::int64_t rows, const Ints& values);

  View table() const { return tensor_; }
  View list() const;  // dense ones
  void fill(const Ints& values) { tensor_.fill(values); }
  Ints values() const { return tensor_.values<std::int32_t>(); }

 private:
  PlacedTensor tensor_;
};

// A list of float32.
class FloatList {
 public:
  FloatList(Device& device, const std::vector<float>& values);
  View list() const;
  void fill(const std::vector<float>& values) { tensor_.fill(values); }

 private:
  PlacedTensor tensor_;
};

class OwnedNodes {
 public:
  // Rows may be further apart than they are long.
  OwnedNodes(Device& device, std::int64_t trees, std::int64_t nodes, std::int64_t gap = 0);

  NodeTables all() const { return first(nodes_); }
  NodeTables first(std::int64_t nodes) const;
  Ints tokens() const { return token_.values(); }
  Ints parents() const { return parent_.values(); }
  Ints depths() const { return depth_.values(); }
  Ints rows() const { return row_.values(); }
  std::vector<double> scores() const { return score_.values<double>(); }
  // Puts these trees there, as choose_rows leaves them.
  void fill(const std::vector<TokenTree>& trees);

 private:
  std::int64_t trees_, nodes_;
  IntTable token_, parent_, depth_, row_;
  PlacedTensor score_;
};

class OwnedGuesses {
 public:
  OwnedGuesses(Device& device, std::int64_t rows, std::int64_t most);

  GuessTables all() const;
  Ints tokens() const { return token_.values(); }
  Ints counts() const { return count_.values(); }
  std::vector<double> log_probabilities() const { return log_probability_.values<double>(); }

 private:
  IntTable token_, count_;
  PlacedTensor log_probability_;
};

class OwnedRows {
 public:
  OwnedRows(Device& device, std::int64_t rows, std::int64_t ancestors, bool inputs = true);

  PlacedRows all() const;

  IntTable token, position, slot, sequence, begin, end, ancestor_count, ancestors, input;

 private:
  bool inputs_;
};

// Rows as the device wrote them.
struct ReadRows {
  ReadRows(const OwnedRows& rows, std::int64_t ancestor_columns, std::vector<std::int32_t> block_table,
           std::int64_t block_table_columns)
      : token(rows.token.values()),
        position(rows.position.values()),
        slot(rows.slot.values()),
        sequence(rows.sequence.values()),
        begin(rows.begin.values()),
        end(rows.end.values()),
        count(rows.ancestor_count.values()),
        ancestors(rows.ancestors.values()),
        blocks(std::move(block_table)),
        columns(ancestor_columns),
        block_columns(block_table_columns) {}

  HostTables tables() const {
    return {.rows = std::ssize(token),
            .token = token,
            .position = position,
            .slot = slot,
            .sequence = sequence,
            .begin = begin,
            .end = end,
            .ancestor_count = count,
            .ancestors = ancestors,
            .ancestor_columns = columns,
            .blocks = blocks,
            .block_columns = block_columns,
            .mask = {}};
  }

  std::vector<std::int32_t> token, position, slot, sequence, begin, end, count, ancestors, blocks;
  std::int64_t columns, block_columns;
};

// Logits that tie often, with numbers that are none now and then; some rows hold nothing else.
std::vector<float> awkward_logits(RandomValues& random, std::int64_t n);

// The rows of a tree's tables are those of the tree, scores bit by bit, and zeros behind them.
void expect_tree(const OwnedNodes& tables, std::int64_t tree, std::int64_t rows, const TokenTree& expected);

}  // namespace espalier
