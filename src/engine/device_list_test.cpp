#include "engine/device_list.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace espalier {
namespace {

TEST(DeviceList, HasWhatEveryMachineHas) {
  const nlohmann::ordered_json devices = describe_devices({});
  EXPECT_EQ(devices["cpu"], describe_cpu());
  EXPECT_TRUE(devices.contains("reference") && devices.contains("cuda") && devices.contains("ascend"));
}

}  // namespace
}  // namespace espalier
