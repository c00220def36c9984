#include "base/utc_time.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

constexpr std::time_t kMoment = 1794787199;  // the last second of 15 November 2026

TEST(UtcTime, AMomentIsWrittenForRecordsAndForFileNames) {
  EXPECT_EQ(utc_text(UtcForm::record, kMoment), "2026-11-15T23:59:59Z");
  EXPECT_EQ(utc_text(UtcForm::file_name, kMoment), "20261115T235959Z");
  EXPECT_EQ(utc_text(UtcForm::record, 0), "1970-01-01T00:00:00Z");
}

TEST(UtcTime, LaterMomentsSortBehindEarlierOnes) {
  for (UtcForm form : {UtcForm::record, UtcForm::file_name}) {
    EXPECT_LT(utc_text(form, kMoment), utc_text(form, kMoment + 1));
    EXPECT_LT(utc_text(form, 0), utc_text(form));
  }
}

}  // namespace
}  // namespace espalier
