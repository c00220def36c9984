#include "engine/host_facts.h"

#include <gtest/gtest.h>

#include <fstream>

#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

class GpuNames : public ::testing::Test {
 protected:
  void add(const char* place, const char* information) const {
    std::filesystem::create_directories(folder_ / place);
    std::ofstream(folder_ / place / "information") << information;
  }

  TemporaryFolder folder_;
};

TEST_F(GpuNames, AMachineWithoutADriverHasNone) {
  EXPECT_EQ(gpu_names(folder_ / "none"), "");
  EXPECT_EQ(gpu_names(folder_.path()), "");
}

TEST_F(GpuNames, AreTheModelsThatTheDriverNames) {
  add("0000:01:00.0", "Model: \t\t NVIDIA H200\nIRQ:   \t\t 17\nGPU UUID: \t GPU-1\n");
  EXPECT_EQ(gpu_names(folder_.path()), "NVIDIA H200");
  add("0000:02:00.0", "Model: \t\t NVIDIA H200 \n");
  add("0000:03:00.0", "Model: \t\t NVIDIA A100-SXM4-80GB\n");
  EXPECT_EQ(gpu_names(folder_.path()), "NVIDIA A100-SXM4-80GB, 2 x NVIDIA H200");
}

TEST_F(GpuNames, ADriverThatNamesNoModelIsPassedOver) {
  add("0000:01:00.0", "IRQ:   \t\t 17\n");
  add("0000:02:00.0", "Model:");
  EXPECT_EQ(gpu_names(folder_.path()), "");
}

}  // namespace
}  // namespace espalier
