#include "eval/launcher.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

constexpr int kMostRanks = 10000;  // four digits in the name of a rank's folder

// The variables of one launcher; `local_world` may be unset.
struct Launcher {
  const char* name;
  const char* rank;
  const char* world;
  const char* local_world;
  bool local_world_is_a_limit = false;  // of what a node may hold: a small step need not fill it
};
constexpr Launcher kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
constexpr Launcher kOpenMpi = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Launcher kHydra = {"hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"};
constexpr Launcher kSlurm = {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", true};
constexpr Launcher kSlurmStep = {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS_PER_NODE", true};

std::optional<std::string> set_value(const LauncherVariables& variables, const char* name) {
  std::optional<std::string> value = variables(name);
  return value && !value->empty() ? value : std::nullopt;
}

std::optional<int> number(const LauncherVariables& variables, const char* name, int least, int most) {
  const auto text = set_value(variables, name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < least || value > most)
    input_error("{}: expected a number from {} to {}, got {}", name, least, most, in_quotes(*text));
  return value;
}

std::optional<RankPlace> place_by(const Launcher& launcher, const LauncherVariables& variables) {
  const auto world = number(variables, launcher.world, 1, kMostRanks);
  const auto rank = number(variables, launcher.rank, 0, world ? *world - 1 : kMostRanks);
  if (!world && !rank) return std::nullopt;
  if (!world || !rank)
    input_error("{} is set and {} is not, expected both, as {} sets them", rank ? launcher.rank : launcher.world,
                rank ? launcher.world : launcher.rank, launcher.name);
  const auto local = number(variables, launcher.local_world, 1, launcher.local_world_is_a_limit ? kMostRanks : *world);
  return RankPlace{launcher.name, *rank, *world, std::min(local.value_or(*world), *world)};
}

// Inside an allocation, but not in a step of srun, a process is alone, whatever the allocation holds.
std::optional<RankPlace> place_by_slurm(const LauncherVariables& variables) {
  const bool step = set_value(variables, kSlurmStep.world).has_value();
  if (!step && set_value(variables, "SLURM_JOB_ID") && !set_value(variables, "SLURM_STEP_ID")) return std::nullopt;
  return place_by(step ? kSlurmStep : kSlurm, variables);
}

// mpirun and torchrun start their own processes from one task on each node.
bool starts_launchers(const LauncherVariables& variables) {
  const auto nodes = set_value(variables, "SLURM_STEP_NUM_NODES");
  return nodes && nodes == set_value(variables, kSlurmStep.world);
}

void check_agreement(const RankPlace& one, const RankPlace& other) {
  if (one.rank == other.rank && one.world == other.world) return;
  input_error("rank {} of {} by the variables of {}, but {} of {} by those of {}, expected the same", one.rank,
              one.world, one.launcher, other.rank, other.world, other.launcher);
}

}  // namespace

RankPlace place_from(const LauncherVariables& variables) {
  std::vector<RankPlace> places;
  for (const Launcher& launcher : {kTorchrun, kOpenMpi, kHydra})
    if (const auto place = place_by(launcher, variables)) places.push_back(*place);
  if (places.empty() || !starts_launchers(variables))
    if (const auto place = place_by_slurm(variables)) places.push_back(*place);
  for (const RankPlace& place : places) check_agreement(places.front(), place);
  return places.empty() ? RankPlace{} : places.front();
}

int threads_of_rank(const RankPlace& place, int cores, int usable) {
  return std::max(1, std::min(usable, cores / place.local_world));
}

}  // namespace espalier
