// Random but legal attention calls for tests: sequences with committed prefixes, rows that prefill or form trees behind
// them, and a physical placement of blocks that can be changed without changing what is computed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/checked/row_rules.h"
#include "device/conformance/random_values.h"
#include "device/device.h"

namespace espalier {

struct ScenarioShape {
  std::int64_t rows = 8;
  std::int64_t sequences = 2;
  std::int64_t shortest_prefix = 0;
  std::int64_t longest_prefix = 40;
  std::int64_t window = 0;  // keys a row sees, itself included; 0: all
  std::int64_t block_size = 16;
  std::int64_t kv_heads = 2;
  std::int64_t group = 3;  // query heads per kv head
  std::int64_t dim = 16;
  std::int64_t heads() const { return kv_heads * group; }

  bool operator==(const ScenarioShape&) const = default;
};

// One row, in logical positions of its sequence.
struct LogicalRow {
  std::int64_t sequence = 0;
  std::int64_t position = 0;  // of its own key
  std::int64_t begin = 0;     // behind `end` where a window begins among the ancestors
  std::int64_t end = 0;
  std::vector<std::int64_t> ancestors;
};

class AttentionScenario {
 public:
  AttentionScenario(const ScenarioShape& shape, std::uint64_t seed);

  ScenarioShape shape;
  std::vector<LogicalRow> rows;
  std::vector<std::int64_t> written;  // [sequences] logical positions [0, written) have keys: prefix and rows
  std::int64_t blocks_per_sequence = 0;
  std::int64_t blocks = 0;            // of the pool; more than the sequences need
  std::vector<float> query;           // [rows, heads, dim]
  std::vector<std::vector<float>> k;  // [sequences][written, kv heads, dim]
  std::vector<std::vector<float>> v;

  // The same call with only some of the rows; all keys stay.
  AttentionScenario only(std::span<const std::int64_t> row_indices) const;

  // Physical block ids [sequences, blocks_per_sequence], all distinct.
  std::vector<std::int32_t> place_blocks(std::uint64_t seed) const;
  HostRowTables tables(const std::vector<std::int32_t>& block_table, bool with_mask) const;
};

// Tables in device memory and the views of them.
struct DeviceRowTables {
  std::vector<Tensor> memory;
  RowTables rows;
};
DeviceRowTables upload_tables(Device& device, const HostRowTables& tables);

// KV memory of a scenario with the keys of its sequences; everything else is NaN and, to a checking device, unwritten.
struct ScenarioMemory {
  Tensor k;
  Tensor v;
  KvViews views() const { return {k.view, v.view}; }
};
ScenarioMemory write_keys(Device& device, const AttentionScenario& scenario, DType type,
                          const std::vector<std::int32_t>& block_table);

enum class AttentionForm { lists, mask, eager };

// Builds everything on the device and runs one call: [rows, heads, dim].
std::vector<float> run_attention(Device& device, const AttentionScenario& scenario, DType type, AttentionForm form,
                                 std::uint64_t placement_seed, float scale);
// With the usual scale, 1 / sqrt(dim).
std::vector<float> run_attention(Device& device, const AttentionScenario& scenario, DType type, AttentionForm form,
                                 std::uint64_t placement_seed);

}  // namespace espalier
