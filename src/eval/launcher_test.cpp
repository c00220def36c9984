#include "eval/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "format/testing/complaint.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

RankPlace place(const Variables& variables) {
  return place_from([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(const Variables& variables) {
  return complaint([&] { place(variables); });
}

void expect_place(const Variables& variables, const char* launcher, int rank, int world, int local_world) {
  const RankPlace found = place(variables);
  EXPECT_EQ(found.launcher, launcher);
  EXPECT_EQ(found.rank, rank) << launcher;
  EXPECT_EQ(found.world, world) << launcher;
  EXPECT_EQ(found.local_world, local_world) << launcher;
}

TEST(Launcher, AProcessThatNobodyLaunchedIsTheOnlyOne) {
  expect_place({}, "", 0, 1, 1);
  expect_place({{"RANK", ""}, {"WORLD_SIZE", ""}}, "", 0, 1, 1);
}

TEST(Launcher, EachLaunchersVariablesAreUnderstood) {
  expect_place({{"RANK", "3"}, {"WORLD_SIZE", "5"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}, "torchrun", 3, 5,
               2);
  expect_place({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}},
               "mpirun", 0, 4, 4);
  expect_place({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "hydra", 1, 2, 2);
  expect_place({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "3"}}, "srun", 1, 3, 3);
  expect_place({{"SLURM_JOB_ID", "9"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "2"}},
               "srun", 1, 2, 2);
}

TEST(Launcher, AVariableWithoutItsPartnerIsRefused) {
  EXPECT_EQ(refusal({{"RANK", "0"}}), "RANK is set and WORLD_SIZE is not, expected both, as torchrun sets them");
  EXPECT_THAT(refusal({{"WORLD_SIZE", "2"}}), HasSubstr("WORLD_SIZE is set and RANK is not"));
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_SIZE", "2"}}), HasSubstr("as mpirun sets them"));
  EXPECT_THAT(refusal({{"SLURM_PROCID", "1"}}), HasSubstr("SLURM_NTASKS is not"));
}

TEST(Launcher, ANumberThatCannotBeIsRefused) {
  EXPECT_EQ(refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK: expected a number from 0 to 1, got \"2\"");
  EXPECT_THAT(refusal({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), HasSubstr("got \"-1\""));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), HasSubstr("WORLD_SIZE: expected a number from 1"));
  EXPECT_THAT(refusal({{"RANK", "1x"}, {"WORLD_SIZE", "2"}}), HasSubstr("got \"1x\""));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}}), HasSubstr("LOCAL_WORLD_SIZE"));
}

TEST(Launcher, SeveralLaunchersMustAgree) {
  const Variables torch = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  Variables both = torch;
  both.insert({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  expect_place(both, "torchrun", 1, 2, 2);
  both["OMPI_COMM_WORLD_RANK"] = "0";
  EXPECT_EQ(refusal(both),
            "rank 1 of 2 by the variables of torchrun, but 0 of 2 by those of mpirun, expected the same");
}

TEST(Launcher, SrunMayStartALauncherOnEachNode) {
  Variables nested = {{"RANK", "3"},          {"WORLD_SIZE", "4"},           {"LOCAL_WORLD_SIZE", "2"},
                      {"SLURM_JOB_ID", "9"},  {"SLURM_PROCID", "1"},         {"SLURM_NTASKS", "2"},
                      {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NUM_NODES", "2"}};
  expect_place(nested, "torchrun", 3, 4, 2);
  nested["SLURM_STEP_NUM_NODES"] = "1";
  EXPECT_THAT(refusal(nested), HasSubstr("but 1 of 2 by those of srun"));
}

TEST(Launcher, AnAllocationWithoutAStepLaunchesNothing) {
  expect_place({{"SLURM_JOB_ID", "9"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, "", 0, 1, 1);
}

TEST(Launcher, AStepThatIsSmallerThanANodeMayBeFillsNoMoreThanItself) {
  Variables step = {{"SLURM_JOB_ID", "9"},         {"SLURM_PROCID", "1"},          {"SLURM_NTASKS", "8"},
                    {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS_PER_NODE", "8"}, {"SLURM_STEP_ID", "0"}};
  expect_place(step, "srun", 1, 2, 2);
  step["SLURM_NTASKS_PER_NODE"] = "1";
  expect_place(step, "srun", 1, 2, 1);
  step["SLURM_NTASKS_PER_NODE"] = "many";
  EXPECT_THAT(refusal(step), HasSubstr("SLURM_NTASKS_PER_NODE: expected a number from 1"));
}

TEST(Launcher, EveryRecordBelongsToOneRank) {
  for (std::size_t record = 0; record < 20; ++record) {
    int owners = 0;
    for (int rank = 0; rank < 3; ++rank) owners += RankPlace{.rank = rank, .world = 3}.owns(record);
    EXPECT_EQ(owners, 1) << record;
  }
  EXPECT_TRUE((RankPlace{.rank = 1, .world = 3}.owns(4)));
}

TEST(Launcher, RanksOfAHostShareItsCores) {
  EXPECT_EQ(threads_of_rank({.world = 1}, 8, 8), 8);
  EXPECT_EQ(threads_of_rank({.world = 4, .local_world = 4}, 8, 8), 2);
  EXPECT_EQ(threads_of_rank({.world = 8, .local_world = 2}, 8, 8), 4);
  EXPECT_EQ(threads_of_rank({.world = 5, .local_world = 5}, 2, 2), 1);
  EXPECT_EQ(threads_of_rank({.world = 2, .local_world = 2}, 8, 1), 1);  // bound to a core
}

}  // namespace
}  // namespace espalier
