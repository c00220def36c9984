// The rules for the row tables of an attention call, R11 to R14 and R19 to R23, on host copies of the tables.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "device/checked/rule_violation.h"

namespace espalier {

struct HostRowTables {
  std::int64_t ancestor_columns = 0;         // A
  std::int64_t sequences = 0;                // S
  std::int64_t blocks_per_sequence = 0;      // B
  std::int64_t mask_columns = 0;             // C; 0: no mask
  std::vector<std::int32_t> slot;            // [R]
  std::vector<std::int32_t> sequence;        // [R]
  std::vector<std::int32_t> begin;           // [R]
  std::vector<std::int32_t> end;             // [R]
  std::vector<std::int32_t> ancestor_count;  // [R]
  std::vector<std::int32_t> ancestors;       // [R, A]
  std::vector<std::int32_t> blocks;          // [S, B]
  std::vector<std::uint8_t> mask;            // [R, C]

  std::int64_t rows() const { return static_cast<std::int64_t>(slot.size()); }
};

struct KvState {
  std::int64_t blocks = 0;
  std::int64_t block_size = 0;
  std::function<bool(std::int64_t)> written;  // whether K and V of a slot have been written

  std::int64_t slots() const { return blocks * block_size; }
};

// Throws unless 0 <= index < extent: R13 for a negative index, else `rule`.
void check_index(const CallSite& site, std::string_view what, std::int64_t index, std::int64_t extent,
                 std::string_view rule = "R11");

// All entries in [0, extent) and no two alike: R12, R13.
void check_slots(std::string_view op, std::string_view argument, const std::vector<std::int32_t>& slots,
                 std::int64_t extent);

void check_row_tables(std::string_view op, const HostRowTables& tables, const KvState& kv);

}  // namespace espalier
