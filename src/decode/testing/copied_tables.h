// The tables of a step, copied into columns that a test can damage.
#pragma once

#include <cstdint>
#include <vector>

#include "model/step_tables.h"

namespace espalier {

class CopiedTables {
 public:
  // As they are now; valid as long as nothing changes.
  HostTables tables() const {
    HostTables t = made_;
    t.token = token;
    t.position = position;
    t.slot = slot;
    t.sequence = sequence;
    t.blocks = blocks;
    t.begin = begin;
    t.end = end;
    t.ancestor_count = ancestor_count;
    t.ancestors = ancestors;
    t.mask = mask;
    return t;
  }

  std::vector<std::int32_t> token, position, slot, sequence, begin, end, ancestor_count, ancestors, blocks;
  std::vector<std::uint8_t> mask;

 protected:
  void copy(const HostTables& made) {
    made_ = made;
    const auto values = [](auto span) { return std::vector(span.begin(), span.end()); };
    token = values(made.token);
    position = values(made.position);
    slot = values(made.slot);
    sequence = values(made.sequence);
    blocks = values(made.blocks);
    begin = values(made.begin);
    end = values(made.end);
    ancestor_count = values(made.ancestor_count);
    ancestors = values(made.ancestors);
    mask = values(made.mask);
  }

  HostTables made_;  // whose sizes hold
};

}  // namespace espalier
