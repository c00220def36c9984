// Things that many processes need and any of them can make, kept in a folder under a name that says what they were made
// of. One process makes an artefact, the others wait and read it. Killing any of them at any point leaves a folder that
// the next can use: artefacts appear whole, under their own name, and a lock whose owner is dead is taken over.
//
// The lock only saves work. An artefact is right whoever made it, so two that make the same one at once do no harm; a
// folder that cannot be written to, or a damaged artefact, costs time and nothing else. Safe between processes; within
// one, a thread at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace espalier {

class ArtefactCache {
 public:
  // No folder: everything is made anew. `stale_seconds`: the age at which a lock no longer counts, whoever owns it.
  explicit ArtefactCache(std::optional<std::filesystem::path> folder, double stale_seconds = 600);

  // The artefact that `description`, all that it depends on, stands for; made by `build` where it is not there. `kind`
  // begins its file's name. What `build` throws goes on, and leaves nothing.
  std::string get(std::string_view kind, std::string_view description, const std::function<std::string()>& build) const;

 private:
  class Lock;

  std::optional<std::filesystem::path> folder_;
  double stale_seconds_;
};

}  // namespace espalier
