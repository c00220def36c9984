// Draft heads that lie in folders, waiting for their teacher: a head is a folder with a config.json whose object
// `espalier` says whom it was trained for (train/pipeline/export.py writes it; docs/drafters.md lists its fields).
// Nothing of this loads weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/head_files.h"

namespace espalier {

struct HeadCard {
  std::filesystem::path path = {};                 // the head's folder
  std::string teacher_sha256 = {};                 // of the teacher's file
  std::optional<std::int64_t> teacher_bytes = {};  // its size; nothing: older heads do not say

  bool operator==(const HeadCard&) const = default;
};

// The heads in these folders, folder by folder and by name within one. Folders that are not there and whatever is no
// head of a known teacher are passed over: other things may lie in such a folder.
std::vector<HeadCard> find_heads(std::span<const std::filesystem::path> folders);

// How a head is best used with its teacher, as measured by those who trained it.
struct DraftSuggestion {
  std::vector<std::string> drafters = {};  // the head's kind, perhaps with ngram
  std::optional<int> nodes = {};           // nothing: as many as pay
  int depth = 6;
  int expand = 4;
  std::optional<std::int64_t> vocabulary = {};  // nothing: all of it
  bool measured = true;                         // false: on other instruction sets only

  bool operator==(const DraftSuggestion&) const = default;
};

// The object `espalier.suggested` of the head's config.json, with what its `isa` says about this instruction set above
// the rest; defaults where it says nothing. Throws InputError naming file, field, expected and got.
DraftSuggestion read_suggestion(const HeadFiles& files, HeadKind kind, std::string_view isa);

}  // namespace espalier
