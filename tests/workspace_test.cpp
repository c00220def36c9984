// What workspaces share, and what each has for itself: the model's rotation tables are there once, recordings are not.
#include <gtest/gtest.h>

#include "device/conformance/counting_device.h"
#include "device/conformance/recording_device.h"
#include "device/cpu/cpu_device.h"
#include "testing/company.h"
#include "testing/engine.h"

namespace espalier::testing {
namespace {

// What making a workspace for so many positions allocates.
template <typename Make>
std::int64_t bytes_of(const CountingDevice& device, const Make& make) {
  const std::int64_t before = device.counts().allocated_bytes;
  const auto workspace = make();
  return device.counts().allocated_bytes - before;
}

std::int64_t rotation_bytes(std::int64_t positions, std::int64_t head_size) {
  return 2 * positions * (head_size / 2) * static_cast<std::int64_t>(sizeof(float));
}

TEST(WorkspaceTest, RotationTablesAreMadeOnceForAModelAndOnceForAHead) {
  constexpr std::int64_t kPositions = 500;
  CountingDevice device(make_cpu_device());
  const Company company(device, {"smollm2"});
  KvCache cache(device, company.teacher.kv_shape(DType::f16), kPositions);
  KvCache head_cache(device, company.eagle3_head->kv_shape(DType::f16), kPositions);
  const auto teachers = [&] {
    return Workspace(company.teacher, cache.memory(), {.rows = 4, .outputs = 4, .positions = kPositions});
  };
  const auto heads = [&] { return EagleWorkspace(*company.eagle3_head, head_cache.memory(), 4, kPositions); };
  const std::int64_t first = bytes_of(device, teachers), first_head = bytes_of(device, heads);
  EXPECT_EQ(first - bytes_of(device, teachers), rotation_bytes(kPositions, company.teacher.config().head_size));
  EXPECT_EQ(first_head - bytes_of(device, heads), rotation_bytes(kPositions, company.eagle3_head->config().head_size));
}

std::vector<float> logits_of(const Transformer& model, Workspace& workspace, const Branch& branch, std::int32_t token) {
  Row row = model.prefill_row(branch.id(), 0, token);
  row.wants_logits = true;
  std::vector<float> logits(static_cast<std::size_t>(model.config().vocabulary));
  download<float>(model.device(), model.forward(std::span(&row, 1), workspace).logits, logits);
  return logits;
}

TEST(WorkspaceTest, StepsOfTwoMemoriesAreRecordedApartAndReplayedWithWhateverTheTablesHold) {
  for (const Replay replay : {Replay::blind, Replay::compared}) {
    const auto device = make_recording_device(make_cpu_device(), replay);
    const Transformer model = load_tiny(*device, {"smollm2"});
    const KvShape shape = model.kv_shape(DType::f16);
    KvCache cache(*device, shape, 128), other_cache(*device, shape, 128);
    Workspace workspace(model, cache.memory(), {.rows = 1, .outputs = 1, .positions = 64});
    Workspace other(model, other_cache.memory(), {.rows = 1, .outputs = 1, .positions = 64});
    const Branch branch = *cache.begin(cache.create(), 1), other_branch = *other_cache.begin(other_cache.create(), 1);
    const auto of_three = logits_of(model, workspace, branch, 3), of_seven = logits_of(model, workspace, branch, 7);
    EXPECT_NE(of_three, of_seven);
    EXPECT_EQ(logits_of(model, other, other_branch, 3), of_three);
    EXPECT_EQ(logits_of(model, workspace, branch, 7), of_seven);
    EXPECT_EQ(logits_of(model, other, other_branch, 7), of_seven);
    EXPECT_EQ(read_kv(*device, cache, branch.id(), 1), read_kv(*device, other_cache, other_branch.id(), 1));
    EXPECT_EQ(device->counts().recorded, 2) << "one key, two workspaces";
    EXPECT_EQ(device->counts().replayed, 3);
  }
}

}  // namespace
}  // namespace espalier::testing
