#include "cli/head_search.h"

#include <algorithm>

#include "cli/model_hash.h"

namespace espalier {

namespace fs = std::filesystem;

std::vector<fs::path> head_folders(const Environment& environment, const fs::path& program) {
  const fs::path beside = program.parent_path();
  std::vector<fs::path> folders, whole;
  for (const fs::path& candidate :
       {fs::path(environment("ESPALIER_HEADS").value_or("")), fs::path("heads"), beside / ".." / "heads",
        beside / ".." / ".." / "heads", beside / ".." / "share" / "espalier" / "heads"}) {
    std::error_code error;
    if (candidate.empty() || !fs::is_directory(candidate, error)) continue;
    const fs::path canonical = fs::canonical(candidate, error);
    if (error || std::ranges::find(whole, canonical) != whole.end()) continue;
    whole.push_back(canonical);
    folders.push_back(candidate.lexically_normal());
  }
  return folders;
}

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
