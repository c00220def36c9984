// The rules for what stands in the tables of a round op, before it runs: indices in range and never negative (R11,
// R13), parents before their children, lists in the order that round_ops.h asks for, and places inside their tables
// (R14).
#pragma once

#include "device/checked/memory_ledger.h"
#include "device/round_ops.h"

namespace espalier {

// Throws RuleViolation. The operands lie in memory of the ledger and have been written.
void check_round_values(const RoundOp& op, const MemoryLedger& ledger);

}  // namespace espalier
