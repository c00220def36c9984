#include "experiments/attention_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/float16.h"
#include "decode/passing_drafter.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
std::vector<T> fetch(Device& device, ConstView view) {
  std::vector<T> values(static_cast<std::size_t>(view.elements()));
  download<T>(device, view, values);
  return values;
}

std::size_t bucket_of(std::int64_t distance) {
  const auto behind = std::ranges::upper_bound(kDistanceBuckets, distance);
  return static_cast<std::size_t>(behind - kDistanceBuckets.begin()) - 1;
}

// The keys of a layer, block by block as they are asked for.
class KeyReader {
 public:
  KeyReader(Device& device, ConstView k) : device_(&device), k_(k) {}

  std::span<const float> key(std::int64_t slot, std::int64_t head) {
    const std::int64_t size = k_.dim(1), width = k_.dim(2) * k_.dim(3);
    const std::vector<float>& block = read(slot / size);
    return std::span(block).subspan(static_cast<std::size_t>(slot % size * width + head * k_.dim(3)),
                                    static_cast<std::size_t>(k_.dim(3)));
  }

 private:
  const std::vector<float>& read(std::int64_t block) {
    const auto found = blocks_.find(block);
    if (found != blocks_.end()) return found->second;
    return blocks_.emplace(block, widened(k_.rows(block, 1))).first->second;
  }

  std::vector<float> widened(ConstView view) const {
    if (view.type() == DType::f32) return fetch<float>(*device_, view);
    std::vector<float> values;
    for (std::uint16_t bits : fetch<std::uint16_t>(*device_, view))
      values.push_back(view.type() == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits));
    return values;
  }

  Device* device_;
  ConstView k_;
  std::map<std::int64_t, std::vector<float>> blocks_;
};

// A key that a row sees, and how far back it is.
struct SeenKey {
  std::int64_t slot = 0;
  std::int64_t distance = 0;
};

// The tables of a step on the host.
struct HostRows {
  std::vector<std::int32_t> position, slot, sequence, begin, end, ancestor_count, ancestors, blocks;
  std::int64_t ancestor_columns, block_columns, block_size;

  HostRows(Device& device, const RowTables& rows, std::int64_t size)
      : position(fetch<std::int32_t>(device, rows.position)),
        slot(fetch<std::int32_t>(device, rows.slot)),
        sequence(fetch<std::int32_t>(device, rows.sequence)),
        begin(fetch<std::int32_t>(device, rows.begin)),
        end(fetch<std::int32_t>(device, rows.end)),
        ancestor_count(fetch<std::int32_t>(device, rows.ancestor_count)),
        ancestors(fetch<std::int32_t>(device, rows.ancestors)),
        blocks(fetch<std::int32_t>(device, rows.blocks)),
        ancestor_columns(rows.ancestors.dim(1)),
        block_columns(rows.blocks.dim(1)),
        block_size(size) {}

  // Context, ancestors, itself: the ancestors stand one behind the other right before the row, the context before them.
  std::vector<SeenKey> seen_by(std::size_t row) const {
    std::vector<SeenKey> keys;
    for (std::int64_t p = begin[row]; p < end[row]; ++p) {
      const std::int64_t entry = sequence[row] * block_columns + p / block_size;
      keys.push_back(
          {blocks[static_cast<std::size_t>(entry)] * block_size + p % block_size, end[row] - p + ancestor_count[row]});
    }
    for (std::int64_t i = 0; i < ancestor_count[row]; ++i)
      keys.push_back({ancestors[row * static_cast<std::size_t>(ancestor_columns) + static_cast<std::size_t>(i)],
                      ancestor_count[row] - i});
    keys.push_back({slot[row], 0});
    return keys;
  }
};

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// One head of one row looks at its keys.
void look(std::span<const SeenKey> keys, std::vector<double> scores, AttentionDistances& distances) {
  const auto best = std::ranges::max_element(scores);
  ++distances.looks;
  ++distances.top[bucket_of(keys[static_cast<std::size_t>(best - scores.begin())].distance)];
  const double most = *best;
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - most);
  for (std::size_t i = 0; i < keys.size(); ++i) distances.weight[bucket_of(keys[i].distance)] += scores[i] / sum;
}

class ProfiledDrafter final : public PassingDrafter {
 public:
  ProfiledDrafter(std::unique_ptr<Drafter> inner, AttentionProfile& profile)
      : PassingDrafter(std::move(inner)), profile_(&profile) {}

  std::vector<Guesses> expand(std::span<const DraftJob> jobs) override {
    profile_->listen(jobs[0].nodes[0] == 0 ? Listening::last_row : Listening::all_rows);
    std::vector<Guesses> guesses = inner().expand(jobs);
    profile_->listen(Listening::no);
    return guesses;
  }

 private:
  AttentionProfile* profile_;
};

}  // namespace

std::string bucket_name(std::size_t bucket) {
  const std::int64_t first = kDistanceBuckets[bucket];
  if (bucket + 1 == kDistanceBuckets.size()) return fmt::format("{} and more", first);
  const std::int64_t last = kDistanceBuckets[bucket + 1] - 1;
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

Json to_json(const AttentionDistances& distances) {
  Json buckets = Json::array();
  const double looks = std::max<double>(1, static_cast<double>(distances.looks));
  for (std::size_t i = 0; i < kDistanceBuckets.size(); ++i)
    buckets.push_back({{"distance", bucket_name(i)},
                       {"top1_share", static_cast<double>(distances.top[i]) / looks},
                       {"attention_share", distances.weight[i] / looks}});
  return {{"rows", distances.rows},
          {"looks", distances.looks},
          {"longest_prefix", distances.longest},
          {"buckets", buckets}};
}

void AttentionProfile::hear(ConstView q, const KvViews& kv, const RowTables& rows, float scale) {
  if (listening_ == Listening::no) return;
  const HostRows host(inner(), rows, kv.k.dim(1));
  const std::vector<float> queries = fetch<float>(inner(), q);
  const std::int64_t heads = q.dim(1), dim = q.dim(2), per_key_head = heads / kv.k.dim(2);
  KeyReader reader(inner(), kv.k);
  const std::size_t count = host.position.size();
  for (std::size_t row = listening_ == Listening::last_row ? count - 1 : 0; row < count; ++row) {
    const std::vector<SeenKey> keys = host.seen_by(row);
    ++distances_.rows;
    distances_.longest = std::max<std::int64_t>(distances_.longest, host.end[row]);
    for (std::int64_t head = 0; head < heads; ++head) {
      const auto query =
          std::span(queries).subspan(static_cast<std::size_t>((static_cast<std::int64_t>(row) * heads + head) * dim),
                                     static_cast<std::size_t>(dim));
      std::vector<double> scores;
      for (const SeenKey& key : keys) scores.push_back(scale * dot(query, reader.key(key.slot, head / per_key_head)));
      look(keys, std::move(scores), distances_);
    }
  }
}

void AttentionProfile::do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  inner().attention(q, kv, rows, scale, out);
  hear(q, kv, rows, scale);
}

void AttentionProfile::do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale,
                                          View out) {
  inner().attention_eager(q, kv, rows, scale, out);
  hear(q, kv, rows, scale);
}

std::unique_ptr<Drafter> profiled(std::unique_ptr<Drafter> drafter, AttentionProfile& profile) {
  return std::make_unique<ProfiledDrafter>(std::move(drafter), profile);
}

}  // namespace espalier
