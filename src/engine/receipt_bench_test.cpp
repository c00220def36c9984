#include "engine/receipt_bench.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/testing/tiny_model.h"

namespace espalier {
namespace {

FoundReceipt computed_with(const std::string& weights, const std::string& kv) {
  FoundReceipt found{.where = "r", .receipt = Receipt{}};
  found.receipt->origin.fingerprint.weights = weights;
  found.receipt->origin.fingerprint.kv = kv;
  return found;
}

TEST(ReceiptBench, RefusesWhatContradictsTheOptionsBeforeItOpensAnything) {
  Listener nobody;
  ReceiptBench bench({.model = "no-such-model.gguf", .kv_type = DType::f32}, nobody);
  EXPECT_EQ(bench.open_for(computed_with("q9", "f32")), "r: weights: expected file, f32 or q8_0, got q9");
  EXPECT_EQ(bench.open_for(computed_with("file", "f16")), "r: kv is f16, expected f32, as --kv says");
  EXPECT_THROW(bench.open_for(computed_with("file", "f32")), InputError);
}

TEST(ReceiptBench, OpensTheModelWithTheWeightsOfTheReceipt) {
  Listener nobody;
  ReceiptBench bench({.model = kTinyModel, .threads = 1, .context = 64}, nobody);
  EXPECT_EQ(bench.open_for(computed_with("f32", "f16")), "");
  EXPECT_EQ(bench.open_for(computed_with("file", "f16")), "");
  EXPECT_GT(bench.text().tokenizer->vocabulary_size(), 0);
}

}  // namespace
}  // namespace espalier
