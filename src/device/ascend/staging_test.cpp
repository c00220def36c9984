// The ring of pinned regions through which bytes are copied. The fake runs nothing before somebody waits for it, and
// finds pinned bytes that change under a copy (F10): a region that is used again too early is found every time.
#include "device/ascend/staging.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/error.h"
#include "device/ascend/library.h"
#include "device/ascend/memory.h"
#include "device/conformance/fake_card.h"

namespace espalier::ascend {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kRegion = 1024, kRegions = 4;

// No two pieces of it are equal.
Bytes numbered(std::size_t bytes, std::uint8_t first = 1) {
  Bytes all(bytes);
  for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>(i / 7 * 31 + i / 1024 + first);
  return all;
}

class StagingRing : public testing::Test {
 protected:
  void begin(std::uint64_t seed = 0) {
    AscendFakeOptions options = FakeCard::default_options();
    options.seed = seed;
    fake_.reset(options);
    card_ = std::make_shared<Card>(load_api(FakeCard::device_options().library), CardOptions{});
    staging_ = std::make_unique<Staging>(card_, kRegions * kRegion);
  }
  void SetUp() override { begin(); }
  void TearDown() override {
    staging_.reset();
    card_.reset();
    fake_.expect_nothing_left();
  }

  Memory memory(std::size_t bytes) { return {card_, bytes, "a test"}; }
  Bytes read(const Memory& memory) { return read(memory, memory.size()); }
  std::byte read_first(const Memory& memory) { return read(memory, 1)[0]; }
  Bytes read(const Memory& memory, std::size_t bytes) {
    Bytes read(bytes);
    const Download part{ConstView(memory.data(), DType::u8, {static_cast<std::int64_t>(bytes)}), read};
    staging_->download({&part, 1});
    return read;
  }
  // How often the API was called by this name.
  std::uint64_t calls(std::string_view name) const {
    std::uint64_t count = 0;
    for (std::uint64_t n = 1; n <= fake_.counters().calls; ++n) count += fake_.call(n) == name;
    return count;
  }
  std::uint64_t waits_for_events() const { return calls("aclrtSynchronizeEventWithTimeout"); }
  std::uint64_t waits_for_all() const { return calls("aclrtSynchronizeStreamWithTimeout"); }
  void fail_call(std::uint64_t number) const {
    AscendFakeOptions options = FakeCard::default_options();
    options.fail_call = number;
    fake_.set_faults(options);
  }

  FakeCard fake_;
  std::shared_ptr<Card> card_;
  std::unique_ptr<Staging> staging_;
};

TEST_F(StagingRing, AnUploadWaitsForNothingWhileThereIsARegionThatNobodyUses) {
  const Memory to = memory(kRegions * kRegion);
  const Bytes bytes = numbered(to.size());
  staging_->upload(bytes, to.data());
  EXPECT_EQ(waits_for_events() + waits_for_all(), 0u);
  EXPECT_EQ(fake_.counters().tasks_run, 0u);
  EXPECT_EQ(read(to), bytes);
}

TEST_F(StagingRing, AnUploadThatComesRoundWaitsForTheCopiesOfItsRegionAndForNothingElse) {
  const Memory to = memory(6 * kRegion);
  const Bytes bytes = numbered(to.size());
  const auto upload = [&](std::size_t piece) {
    staging_->upload(std::span(bytes).subspan(piece * kRegion, kRegion), to.data() + piece * kRegion);
  };
  for (std::size_t piece : {0, 1, 2, 3}) upload(piece);
  for (std::size_t piece : {4, 5}) {
    upload(piece);
    EXPECT_EQ(waits_for_events(), piece - 3);
    EXPECT_EQ(fake_.counters().tasks_run, piece - 3) << "the copies behind it are still under way";
  }
  EXPECT_EQ(waits_for_all(), 0u);
  EXPECT_EQ(read(to), bytes);
}

TEST_F(StagingRing, SmallUploadsShareARegion) {
  const Memory to = memory(1000 * 40);
  const Bytes bytes = numbered(to.size());
  const std::size_t many = kRegion / 64 * kRegions;  // each takes 64 bytes of the ring
  for (std::size_t i = 0; i < many; ++i) staging_->upload(std::span(bytes).subspan(i * 40, 40), to.data() + i * 40);
  EXPECT_EQ(waits_for_events(), 0u);
  for (std::size_t i = many; i < 1000; ++i) staging_->upload(std::span(bytes).subspan(i * 40, 40), to.data() + i * 40);
  EXPECT_EQ(waits_for_events(), (1000 - many + kRegion / 64 - 1) / (kRegion / 64));
  EXPECT_EQ(read(to), bytes);
}

TEST_F(StagingRing, AfterASynchronisationNoRegionIsWaitedFor) {
  const Memory to = memory(3 * kRegion);
  const Bytes bytes = numbered(to.size());
  for (int round = 0; round < 3; ++round) {
    staging_->upload(bytes, to.data());
    EXPECT_EQ(read_first(to), bytes[0]);
  }
  EXPECT_EQ(waits_for_events(), 0u);
}

TEST_F(StagingRing, ADownloadThatIsLargerThanTheRingTakesEveryRegionsBytesBeforeItIsUsedAgain) {
  const Memory from = memory(11 * kRegion + 100);
  const Bytes bytes = numbered(from.size());
  staging_->upload(bytes, from.data());
  EXPECT_EQ(read_first(from), bytes[0]);
  const std::uint64_t events = waits_for_events(), all = waits_for_all();
  EXPECT_EQ(read(from), bytes);
  EXPECT_EQ(waits_for_events() - events, 12 - kRegions);
  EXPECT_EQ(waits_for_all() - all, 1u);
}

TEST_F(StagingRing, UploadsAndDownloadsTakeTurnsUnderEverySeed) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    TearDown();
    begin(seed);
    const Memory one = memory(3 * kRegion), other = memory(7 * kRegion + 5);
    for (std::uint8_t round = 1; round < 5; ++round) {
      const Bytes few = numbered(one.size(), round), many = numbered(other.size(), round);
      staging_->upload(few, one.data());
      staging_->upload(many, other.data());
      EXPECT_EQ(read(one), few);
      staging_->upload(few, other.data());
      EXPECT_EQ(read(other), [&] {
        Bytes both = many;
        std::memcpy(both.data(), few.data(), few.size());
        return both;
      }());
    }
  }
}

TEST_F(StagingRing, ARegionStaysTakenWhereWaitingForItFails) {
  const Memory to = memory(5 * kRegion);
  const Bytes bytes = numbered(to.size());
  const auto first = std::span(bytes).first(kRegions * kRegion), last = std::span(bytes).last(kRegion);
  staging_->upload(first, to.data());
  fail_call(fake_.counters().calls + 2);  // behind that of the event
  EXPECT_THROW(staging_->upload(last, to.data() + first.size()), DeviceError);
  ASSERT_EQ(fake_.call(fake_.counters().calls - 1), "aclrtSynchronizeEventWithTimeout")
      << "and what the runtime says of it";
  fail_call(0);
  staging_->upload(last, to.data() + first.size());
  EXPECT_EQ(read(to), bytes);
}

TEST_F(StagingRing, WhereTheRuntimeHasNoWaitThatEndsItWaitsAsLongAsItTakes) {
  const FakeCard old("ascend_fake_8_1");
  old.reset(FakeCard::default_options("ascend_fake_8_1"));
  {
    const auto card =
        std::make_shared<Card>(load_api(FakeCard::device_options("ascend_fake_8_1").library), CardOptions{});
    Staging staging(card, kRegions * kRegion);
    const Memory to(card, 9 * kRegion, "a test");
    const Bytes bytes = numbered(to.size());
    staging.upload(bytes, to.data());
    Bytes read(bytes.size());
    const Download part{ConstView(to.data(), DType::u8, {std::ssize(bytes)}), read};
    staging.download({&part, 1});
    EXPECT_EQ(read, bytes);
  }
  bool waited = false;
  for (std::uint64_t n = 1; n <= old.counters().calls; ++n) waited |= old.call(n) == "aclrtSynchronizeEvent";
  EXPECT_TRUE(waited);
  old.expect_nothing_left();
}

TEST_F(StagingRing, ItMayGoWhileItsCopiesAreUnderWay) {
  const Memory to = memory(kRegion);
  staging_->upload(numbered(kRegion), to.data());
  staging_.reset();
}

}  // namespace
}  // namespace espalier::ascend
