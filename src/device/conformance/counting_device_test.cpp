#include "device/conformance/counting_device.h"

#include <gtest/gtest.h>

#include <vector>

#include "device/conformance/remote_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

TEST(CountingDeviceTest, ADownloadOfManyPartsIsOneSynchronisation) {
  CountingDevice device(make_reference_device());
  const Tensor x = device.tensor(DType::f32, {4, 2});
  upload<float>(device, std::vector<float>(8, 1.0f), x);
  std::vector<float> a(2), b(6);
  const Download parts[] = {part_of_download(x.view.rows(0, 1), std::span(a)),
                            part_of_download(x.view.rows(1, 3), std::span(b))};
  device.download(parts);
  EXPECT_EQ(device.counts().synchronisations, 1);
  download<float>(device, x.view.rows(1, 3), b);
  EXPECT_EQ(device.counts().synchronisations, 2);
}

TEST(CountingDeviceTest, WhatIsLentIsASynchronisationAndARefusalIsNone) {
  CountingDevice host(make_reference_device()), remote(make_remote_device(make_reference_device()));
  EXPECT_FALSE(host.lend(host.tensor(DType::f32, {2})).empty());
  EXPECT_TRUE(remote.lend(remote.tensor(DType::f32, {2})).empty());
  EXPECT_EQ(host.counts().synchronisations, 1);
  EXPECT_EQ(remote.counts().synchronisations, 0);
}

TEST(CountingDeviceTest, CountsUploadsBytesAndOpsWhereverTheyAreCalled) {
  CountingDevice device(make_reference_device());
  const Tensor x = device.tensor(DType::f32, {2, 1, 1, 3}), y = device.tensor(DType::f32, {2, 1, 1, 3});
  const Tensor slot = device.tensor(DType::i32, {1});
  EXPECT_EQ(device.counts().allocated_bytes, 24 + 24 + 4);
  upload<float>(device, std::vector<float>(6, 1.0f), x);
  upload<float>(device, std::vector<float>(6, 1.0f), y);
  upload<std::int32_t>(device, std::vector<std::int32_t>{1}, slot);
  const CallCounts before = device.counts();
  device.step(*device.make_recordings(), {}, [&] { device.add(x.view.reshaped({2, 3}), y.view.reshaped({2, 3})); });
  device.kv_copy(std::vector<KvViews>{{x, y}}, slot, slot);
  device.discard(x);
  EXPECT_EQ(before.uploads, 3);
  EXPECT_EQ(device.counts() - before, (CallCounts{.ops = 2, .kv_copies = 1}));
}

}  // namespace
}  // namespace espalier
