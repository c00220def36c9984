// Which of how many processes this one is, as its launcher says: torchrun, mpirun (Open MPI; MPICH's Hydra) or srun. A
// process that nobody launched is the only one. Prompts go to ranks by record number mod world size.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace espalier {

struct RankPlace {
  std::string_view launcher = {};  // "torchrun", "mpirun", "hydra", "srun"; empty: none
  int rank = 0;
  int world = 1;
  int local_world = 1;  // ranks on this host; all of them where the launcher does not tell

  // Whether a prompt is this rank's to answer.
  bool owns(std::size_t record) const {
    return record % static_cast<std::size_t>(world) == static_cast<std::size_t>(rank);
  }
};

// The value of an environment variable, or nothing.
using LauncherVariables = std::function<std::optional<std::string>(const char* name)>;

// Variables of several launchers must agree, but for those of an srun that started one launcher on each node. Throws
// InputError: a variable without its partner, a value that is no number or out of range, launchers that disagree.
RankPlace place_from(const LauncherVariables& variables);

// Threads of a rank where nobody asked for a number: the host's cores, shared among its ranks, and no more than this
// process may use (`usable`). At least 1.
int threads_of_rank(const RankPlace& place, int cores, int usable);

}  // namespace espalier
