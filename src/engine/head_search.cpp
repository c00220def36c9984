#include "engine/head_search.h"

#include <algorithm>

#include "engine/model_hash.h"

namespace espalier {

namespace fs = std::filesystem;

std::vector<HeadCard> heads_trained_for(const fs::path& model, std::span<const fs::path> folders,
                                        const std::optional<fs::path>& cache_folder) {
  std::vector<HeadCard> cards = find_heads(folders);
  const auto bytes = model_bytes(model);
  std::erase_if(cards, [&](const HeadCard& card) { return card.teacher_bytes && card.teacher_bytes != bytes; });
  if (cards.empty()) return cards;
  const auto hash = model_sha256(model, cache_folder);
  std::erase_if(cards, [&](const HeadCard& card) { return card.teacher_sha256 != hash; });
  return cards;
}

}  // namespace espalier
