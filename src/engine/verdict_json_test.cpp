#include "engine/verdict_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/testing/tiny_model.h"
#include "text/model_text.h"

namespace espalier {
namespace {

TEST(VerdictJson, OfADifferenceHasBothTokensAndNullWhereThereIsNone) {
  const ModelText text = load_model_text(kTinyModel);
  const FoundReceipt found{.where = "a.json", .receipt = Receipt{}};
  const ReceiptVerdict verdict{.difference = ReceiptDifference{.position = 3, .drawn = 5, .finish_reason = ""}};
  const nlohmann::ordered_json object = verdict_json(found, verdict, false, *text.tokenizer);
  EXPECT_EQ(object["verdict"], "not verified");
  EXPECT_TRUE(object["text"].is_null());
  EXPECT_EQ(object["difference"]["model"]["token"], 5);
  EXPECT_TRUE(object["difference"]["receipt"].is_null());
  EXPECT_TRUE(object["difference"]["model_finish_reason"].is_null());
}

TEST(VerdictJson, ATrueReceiptBesideAnotherTextIsNotVerified) {
  const ModelText text = load_model_text(kTinyModel);
  const FoundReceipt found{.where = "a.json", .receipt = Receipt{}, .text = "something else"};
  const ReceiptVerdict verdict{.text = "hello"};
  ASSERT_TRUE(other_text_beside(found, verdict, text));
  EXPECT_EQ(verdict_json(found, verdict, true, *text.tokenizer)["verdict"], "not verified");
  EXPECT_EQ(verdict_json(found, verdict, false, *text.tokenizer)["verdict"], "verified");
}

TEST(ReceiptCounts, TheWorstIsWhatTheExitCodeSays) {
  ReceiptCounts counts;
  EXPECT_EQ(counts.worst(), ReceiptOutcome::verified);
  counts.add(ReceiptOutcome::differs);
  EXPECT_EQ(counts.worst(), ReceiptOutcome::differs);
  counts.add(ReceiptOutcome::refused);
  counts.add(ReceiptOutcome::verified);
  EXPECT_EQ(counts.worst(), ReceiptOutcome::refused);
  EXPECT_EQ(counts_text(counts), "3 receipts: 1 verified, 1 not verified, 1 refused");
  EXPECT_EQ(verdicts_json(nlohmann::ordered_json::array(), counts)["not_verified"], 1);
}

}  // namespace
}  // namespace espalier
