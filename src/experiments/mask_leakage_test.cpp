#include "experiments/mask_leakage.h"

#include <gtest/gtest.h>

#include "device/passing_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

// A root, two children, and a grandchild below each.
TokenTree small_tree() {
  TokenTree tree(3);
  tree.append(0, {.token = 5, .score = -1});
  tree.append(0, {.token = 6, .score = -2});
  tree.append(1, {.token = 7, .score = -3});
  tree.append(2, {.token = 8, .score = -4});
  return tree;
}

LeakageCounts probe(Device& device, const StepForm& form) {
  const Transformer model = load_transformer(device, std::string(ESPALIER_TEST_DATA) + "/tiny/llama3");
  LeakageProbe leakage(model, {.context = 64, .form = form, .max_rows = 8});
  std::vector<std::int32_t> prefix = {1, 2, 9, 4};
  leakage.add(prefix, small_tree());
  prefix.insert(prefix.end(), {3, 5, 7});
  leakage.add(prefix, small_tree());
  prefix = {1, 2, 10};  // back, and another way
  leakage.add(prefix, TokenTree(11));
  return leakage.counts();
}

TEST(LeakageProbe, NoLogitOfATreeKnowsOfATokenItMustNotSee) {
  for (const StepForm& form :
       {StepForm{AttentionOp::fused, MaskForm::list}, StepForm{AttentionOp::fused, MaskForm::dense},
        StepForm{AttentionOp::eager, MaskForm::dense}}) {
    const auto device = make_reference_device(1);
    const LeakageCounts counts = probe(*device, form);
    EXPECT_EQ(counts.rounds, 3);
    EXPECT_EQ(counts.rows, 11);
    // Of the small tree: 4 others beside the root, 3 beside each child, 2 beside each grandchild, and 4 strangers each.
    EXPECT_EQ(counts.tokens_changed, 2 * (4 + 3 + 3 + 2 + 2) + 11 * 4);
    EXPECT_EQ(counts.logits_changed, 0) << counts.first;
    EXPECT_EQ(counts.blind_rows, 0);
    EXPECT_GT(counts.logits, 0);
  }
}

// Shows every guess one position too many: what a mask off by one does. Others would see what nobody has written, which
// may be anything.
class LeakyDevice final : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;

 private:
  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    std::vector<std::int32_t> end(static_cast<std::size_t>(rows.end.elements())), above(end.size());
    espalier::download<std::int32_t>(inner(), rows.end, end);
    espalier::download<std::int32_t>(inner(), rows.ancestor_count, above);
    for (std::size_t row = 0; row < end.size(); ++row) end[row] += above[row] > 0 ? 2 : 0;
    const Tensor later = inner().tensor(DType::i32, {rows.end.dim(0)});
    espalier::upload<std::int32_t>(inner(), end, later);
    RowTables wider = rows;
    wider.end = later.view;
    inner().attention(q, kv, wider, scale, out);
  }
};

TEST(LeakageProbe, ALeakIsFoundAndNamed) {
  const auto reference = make_reference_device(1);
  LeakyDevice leaky(*reference);
  const LeakageCounts counts = probe(leaky, {});
  EXPECT_GT(counts.logits_changed, 0);
  EXPECT_GT(counts.rows_changed, 0);
  EXPECT_NE(counts.first.find("logits changed"), std::string::npos);
}

}  // namespace
}  // namespace espalier
