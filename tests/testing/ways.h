// Ways to answer a prompt with a tiny teacher and its company, and whether two answers are the same text where nothing
// but their order of sums differs: for devices whose rows are not independent.
#pragma once

#include <string>
#include <vector>

#include "decode/batch.h"
#include "testing/company.h"
#include "testing/ended_answer.h"

namespace espalier::testing {

using Tokens = std::vector<std::int32_t>;

inline constexpr std::int64_t kWayContext = 200;
inline constexpr std::int64_t kWayAnswer = 24;  // tokens

struct Way {
  std::string drafter = "none";
  TreeShape shape = TreeShape::dynamic;
  AttentionOp attention = AttentionOp::fused;
  DType kv_type = DType::f16;
  std::int64_t tokens = kWayAnswer;  // of the answer; the context has room for 64
};

// Longer than a block of the cache, and it repeats itself, so that lookup has something to find.
Tokens prompt_of(const Transformer& model);
Tokens answer(const Company& company, const Way& way);
// The same, with what it has left in the cache.
EndedAnswer ended_answer(const Company& company, const Way& way);

// What has come of comparing answers.
struct Agreement {
  int equal = 0;
  std::vector<float> margins = {};  // of those that part between two tokens that are nearly equal
};

// Counts two answers of one prompt. Where they part, the CPU's logits of their tokens may be no further apart than
// twice what the devices' logits are; any other difference fails the running test.
void expect_equal_outside_near_ties(const Tokens& one, const Tokens& other, const Transformer& on_npu,
                                    const Transformer& on_cpu, Agreement& agreement);

}  // namespace espalier::testing
