#include "decode/round.h"

namespace espalier {

std::string_view name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop_token:
    case FinishReason::stopped: return "stop";
    case FinishReason::token_limit: return "length";
    case FinishReason::context_limit: return "context";
    case FinishReason::cancelled: return "cancelled";
  }
  return "unknown";
}

std::int64_t judged_levels(const TokenTree& tree, std::span<const Visit> visits, bool ended) {
  const bool rejected = !ended && tree[visits.back().node].children > 0;
  return static_cast<std::int64_t>(visits.size()) - 1 + (rejected ? 1 : 0);
}

void count_levels(std::int64_t levels, std::vector<std::int64_t>& counts) {
  const auto size = static_cast<std::size_t>(levels);
  if (counts.size() < size) counts.resize(size);
  for (std::size_t i = 0; i < size; ++i) ++counts[i];
}

}  // namespace espalier
