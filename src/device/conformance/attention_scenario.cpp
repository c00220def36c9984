#include "device/conformance/attention_scenario.h"

#include <algorithm>
#include <cmath>

namespace espalier {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// `count` rows behind a prefix: a prefill if `parents` is empty, else a tree; a node without parent has parent -1.
void append_rows(std::int64_t sequence, std::int64_t prefix, std::int64_t count,
                 const std::vector<std::int64_t>& parents, std::vector<LogicalRow>& rows) {
  const std::size_t first = rows.size();
  for (std::int64_t i = 0; i < count; ++i) {
    LogicalRow row{.sequence = sequence, .position = prefix + i, .begin = 0, .end = prefix, .ancestors = {}};
    if (parents.empty()) {
      row.end = prefix + i;
    } else if (const std::int64_t parent = parents[static_cast<std::size_t>(i)]; parent >= 0) {
      row.ancestors = rows[first + static_cast<std::size_t>(parent)].ancestors;
      row.ancestors.push_back(prefix + parent);
    }
    rows.push_back(row);
  }
}

std::vector<std::int64_t> random_parents(RandomValues& random, std::int64_t count) {
  std::vector<std::int64_t> parents;
  for (std::int64_t i = 0; i < count; ++i)
    parents.push_back(i == 0 || random.one_in(8) ? -1 : random.between(std::max<std::int64_t>(0, i - 5), i - 1));
  return parents;
}

// As a model does it: the window hides the beginning of the context and, where it is short, the top of the path.
void apply_window(std::int64_t window, LogicalRow& row) {
  const std::int64_t before = row.end + std::ssize(row.ancestors);
  row.begin = std::max<std::int64_t>(0, before - (window - 1));
  const std::int64_t hidden = std::max<std::int64_t>(0, row.begin - row.end);
  row.ancestors.erase(row.ancestors.begin(), row.ancestors.begin() + hidden);
}

// Row counts that add up to n and that the device accepts.
std::vector<std::int64_t> cut_into_calls(const Device& device, std::int64_t n) {
  const auto buckets = device.row_buckets();
  if (buckets.empty()) return {n};
  std::vector<std::int64_t> calls;
  for (std::size_t i = buckets.size(); i-- > 0;)
    for (; n >= buckets[i]; n -= buckets[i]) calls.push_back(buckets[i]);
  if (n > 0) calls.push_back(n);  // fewer than the smallest bucket; only attention needs as many
  return calls;
}

template <typename T>
Tensor uploaded(Device& device, DType type, const std::vector<T>& values, std::initializer_list<std::int64_t> shape) {
  Tensor tensor = device.tensor(type, shape);
  upload<T>(device, values, tensor);
  return tensor;
}

// NaN, or where a hidden key is multiplied by 0 a large number: what leaks is still seen.
Tensor poisoned_kv(Device& device, const AttentionScenario& s, DType type) {
  Tensor memory = device.tensor(type, {s.blocks, s.shape.block_size, s.shape.kv_heads, s.shape.dim});
  const std::byte poison = device.multiplies_hidden_keys() ? std::byte{0x5b} : std::byte{0xff};
  device.upload(std::vector<std::byte>(static_cast<std::size_t>(memory.view.bytes_spanned()), poison), memory);
  device.discard(memory);
  return memory;
}

}  // namespace

AttentionScenario::AttentionScenario(const ScenarioShape& wanted, std::uint64_t seed) : shape(wanted) {
  RandomValues random(seed);
  std::int64_t left = shape.rows;
  for (std::int64_t s = 0; s < shape.sequences; ++s) {
    const std::int64_t count = s + 1 == shape.sequences ? left : random.between(0, left);
    const std::int64_t prefix = random.between(shape.shortest_prefix, shape.longest_prefix);
    const bool tree = random.one_in(2);
    append_rows(s, prefix, count, tree ? random_parents(random, count) : std::vector<std::int64_t>(), rows);
    left -= count;
    written.push_back(prefix + count);
    k.push_back(random.values(written.back() * shape.kv_heads * shape.dim));
    v.push_back(random.values(written.back() * shape.kv_heads * shape.dim));
  }
  if (shape.window > 0)
    for (LogicalRow& row : rows) apply_window(shape.window, row);
  const std::int64_t longest = *std::max_element(written.begin(), written.end());
  blocks_per_sequence = std::max<std::int64_t>(1, round_up(longest, shape.block_size) / shape.block_size);
  blocks = blocks_per_sequence * shape.sequences + 2;
  query = random.values(shape.rows * shape.heads() * shape.dim);
}

AttentionScenario AttentionScenario::only(std::span<const std::int64_t> row_indices) const {
  AttentionScenario part = *this;
  part.rows.clear();
  part.query.clear();
  const std::int64_t width = shape.heads() * shape.dim;
  for (std::int64_t r : row_indices) {
    part.rows.push_back(rows[static_cast<std::size_t>(r)]);
    part.query.insert(part.query.end(), query.begin() + r * width, query.begin() + (r + 1) * width);
  }
  part.shape.rows = static_cast<std::int64_t>(row_indices.size());
  return part;
}

std::vector<std::int32_t> AttentionScenario::place_blocks(std::uint64_t seed) const {
  std::vector<std::int32_t> ids = RandomValues(seed).permutation(blocks);
  ids.resize(static_cast<std::size_t>(shape.sequences * blocks_per_sequence));
  return ids;
}

HostRowTables AttentionScenario::tables(const std::vector<std::int32_t>& block_table, bool with_mask) const {
  HostRowTables t;
  t.sequences = shape.sequences;
  t.blocks_per_sequence = blocks_per_sequence;
  t.blocks = block_table;
  std::size_t deepest = 0;
  for (const LogicalRow& row : rows) deepest = std::max(deepest, row.ancestors.size());
  t.ancestor_columns = static_cast<std::int64_t>(deepest) + 1;
  t.mask_columns = with_mask ? round_up(blocks_per_sequence * shape.block_size, 128) : 0;
  for (const LogicalRow& row : rows) {
    const auto slot_of = [&](std::int64_t p) {
      const std::int64_t entry = row.sequence * blocks_per_sequence + p / shape.block_size;
      return static_cast<std::int32_t>(block_table[static_cast<std::size_t>(entry)] * shape.block_size +
                                       p % shape.block_size);
    };
    t.slot.push_back(slot_of(row.position));
    t.sequence.push_back(static_cast<std::int32_t>(row.sequence));
    t.begin.push_back(static_cast<std::int32_t>(row.begin));
    t.end.push_back(static_cast<std::int32_t>(row.end));
    t.ancestor_count.push_back(static_cast<std::int32_t>(row.ancestors.size()));
    for (std::int64_t p : row.ancestors) t.ancestors.push_back(slot_of(p));
    t.ancestors.resize(t.slot.size() * static_cast<std::size_t>(t.ancestor_columns));
    t.mask.resize(t.slot.size() * static_cast<std::size_t>(t.mask_columns), 1);
    if (!with_mask) continue;
    std::uint8_t* const hidden = t.mask.data() + t.mask.size() - t.mask_columns;
    for (std::int64_t p = row.begin; p < row.end; ++p) hidden[p] = 0;
    for (std::int64_t p : row.ancestors) hidden[p] = 0;
    hidden[row.position] = 0;
  }
  return t;
}

DeviceRowTables upload_tables(Device& device, const HostRowTables& t) {
  DeviceRowTables on_device;
  const auto put = [&](const std::vector<std::int32_t>& values, std::initializer_list<std::int64_t> shape) {
    on_device.memory.push_back(uploaded(device, DType::i32, values, shape));
    return on_device.memory.back().view;
  };
  const std::int64_t rows = t.rows();
  on_device.rows.slot = put(t.slot, {rows});
  on_device.rows.sequence = put(t.sequence, {rows});
  on_device.rows.begin = put(t.begin, {rows});
  on_device.rows.end = put(t.end, {rows});
  on_device.rows.ancestor_count = put(t.ancestor_count, {rows});
  on_device.rows.ancestors = put(t.ancestors, {rows, t.ancestor_columns});
  on_device.rows.blocks = put(t.blocks, {t.sequences, t.blocks_per_sequence});
  if (t.mask_columns > 0) {
    on_device.memory.push_back(uploaded(device, DType::u8, t.mask, {1, 1, rows, t.mask_columns}));
    on_device.rows.mask = on_device.memory.back().view;
  }
  return on_device;
}

ScenarioMemory write_keys(Device& device, const AttentionScenario& s, DType type,
                          const std::vector<std::int32_t>& block_table) {
  ScenarioMemory memory{poisoned_kv(device, s, type), poisoned_kv(device, s, type)};
  const std::int64_t width = s.shape.kv_heads * s.shape.dim;
  for (std::int64_t q = 0; q < s.shape.sequences; ++q) {
    const auto sequence = static_cast<std::size_t>(q);
    std::int64_t done = 0;
    for (std::int64_t count : cut_into_calls(device, s.written[sequence])) {
      if (count == 0) continue;
      std::vector<std::int32_t> slots;
      for (std::int64_t p = done; p < done + count; ++p) {
        const auto entry = static_cast<std::size_t>(q * s.blocks_per_sequence + p / s.shape.block_size);
        slots.push_back(static_cast<std::int32_t>(block_table[entry] * s.shape.block_size + p % s.shape.block_size));
      }
      const auto part = [&](const std::vector<float>& all) {
        return uploaded(device, DType::f32,
                        std::vector<float>(all.begin() + done * width, all.begin() + (done + count) * width),
                        {count, s.shape.kv_heads, s.shape.dim});
      };
      device.kv_write(part(s.k[sequence]), part(s.v[sequence]), uploaded(device, DType::i32, slots, {count}),
                      memory.views());
      done += count;
    }
  }
  return memory;
}

std::vector<float> run_attention(Device& device, const AttentionScenario& s, DType type, AttentionForm form,
                                 std::uint64_t placement_seed, float scale) {
  const std::vector<std::int32_t> block_table = s.place_blocks(placement_seed);
  const ScenarioMemory memory = write_keys(device, s, type, block_table);
  const DeviceRowTables tables = upload_tables(device, s.tables(block_table, form != AttentionForm::lists));
  const Tensor q = uploaded(device, DType::f32, s.query, {s.shape.rows, s.shape.heads(), s.shape.dim});
  const Tensor out = device.tensor(DType::f32, {s.shape.rows, s.shape.heads(), s.shape.dim});
  if (form == AttentionForm::eager) {
    device.attention_eager(q, memory.views(), tables.rows, scale, out);
  } else {
    device.attention(q, memory.views(), tables.rows, scale, out);
  }
  std::vector<float> result(s.query.size());
  download<float>(device, out, result);
  return result;
}

std::vector<float> run_attention(Device& device, const AttentionScenario& s, DType type, AttentionForm form,
                                 std::uint64_t placement_seed) {
  return run_attention(device, s, type, form, placement_seed, 1.0f / std::sqrt(static_cast<float>(s.shape.dim)));
}

}  // namespace espalier
