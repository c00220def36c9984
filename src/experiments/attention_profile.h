// How far back a drafter looks: of its top-1 attention, the share by distance (Figure 7 of EAGLE-Pangu). The attention
// op gives no weights away, so they are computed again: AttentionProfile is a device around another one that, while it
// listens, reads the queries of each attention call and the keys of the draft cache and finds the best key of every row
// and head. The results of the inner device are passed on untouched. Slow: a profile of its own, never a headline.
//
// One thread at a time, like every device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "decode/drafter.h"
#include "device/passing_device.h"

namespace espalier {

// Distances from a row to a key, 0 being the row itself: buckets start at these.
inline constexpr std::array<std::int64_t, 9> kDistanceBuckets = {0, 1, 2, 4, 16, 64, 128, 256, 512};

struct AttentionDistances {
  std::int64_t rows = 0;                                       // that drafted
  std::int64_t looks = 0;                                      // rows times heads
  std::array<std::int64_t, kDistanceBuckets.size()> top = {};  // how often the best key was in the bucket
  std::array<double, kDistanceBuckets.size()> weight = {};     // the attention that went there, summed
  std::int64_t longest = 0;                                    // positions before the longest of these rows
};

// "256-511", "512 and more".
std::string bucket_name(std::size_t bucket);
// Buckets with shares.
nlohmann::ordered_json to_json(const AttentionDistances& distances);

enum class Listening {
  no,
  last_row,  // of a pass that makes up for committed positions only the last row drafts
  all_rows,
};

class AttentionProfile final : public PassingDevice {
 public:
  // The inner device must outlive this.
  explicit AttentionProfile(Device& inner) : PassingDevice(inner) {}

  void listen(Listening listening) { listening_ = listening; }
  const AttentionDistances& distances() const { return distances_; }
  void forget() { distances_ = {}; }

 private:
  void hear(ConstView q, const KvViews& kv, const RowTables& rows, float scale);
  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override;
  void do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override;

  Listening listening_ = Listening::no;
  AttentionDistances distances_;
};

// The same drafter; the profile listens while it drafts. The profile must outlive it.
std::unique_ptr<Drafter> profiled(std::unique_ptr<Drafter> drafter, AttentionProfile& profile);

}  // namespace espalier
