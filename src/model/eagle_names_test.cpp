#include "model/eagle_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Names without contents.
class NameList final : public TensorSource {
 public:
  explicit NameList(std::vector<std::string> names) {
    for (std::string& name : names) tensors_.push_back({.name = std::move(name), .shape = {}, .bytes = {}});
  }
  const TensorInfo* find(std::string_view name) const override {
    const auto it = std::ranges::find(tensors_, name, &TensorInfo::name);
    return it == tensors_.end() ? nullptr : &*it;
  }
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  std::string_view description() const override { return "head"; }

 private:
  std::vector<TensorInfo> tensors_;
};

TEST(EagleNames, EveryDialectHasOneCanonicalName) {
  constexpr const char* kQuery = "layers.0.self_attn.q_proj.weight";
  for (const char* spelled : {"midlayer.self_attn.q_proj.weight", "layers.0.self_attn.q_proj.weight",
                              "model.layers.0.self_attn.q_proj.weight", "draft_model.midlayer.self_attn.q_proj.weight",
                              "draft_model.model.layers.0.self_attn.q_proj.weight"}) {
    const NameList list({spelled});
    const EagleNames names(list, false);
    EXPECT_TRUE(names.has(kQuery)) << spelled;
    EXPECT_EQ(names.spell(kQuery), spelled);
    EXPECT_EQ(names.find(kQuery), &list.tensors()[0]);
    EXPECT_EQ(names.layers(), 1);
  }
}

TEST(EagleNames, AnOlderNameOfTheNormsOfTheTapsIsKnown) {
  const NameList list({"aux_norm_low.weight", "aux_norm_mid.weight", "model.aux_norm_high.weight"});
  const EagleNames names(list, false);
  EXPECT_EQ(names.spell("fc_norm.0.weight"), "aux_norm_low.weight");
  EXPECT_EQ(names.spell("fc_norm.1.weight"), "aux_norm_mid.weight");
  EXPECT_EQ(names.spell("fc_norm.2.weight"), "model.aux_norm_high.weight");
}

TEST(EagleNames, GgufHasNamesOfItsOwnAndNoOthers) {
  const NameList list({"enc.output_norm.weight", "blk.0.attn_norm_2.weight", "norm.weight"});
  const EagleNames names(list, true);
  EXPECT_EQ(names.spell("input_norm.weight"), "enc.output_norm.weight");
  EXPECT_EQ(names.spell("layers.0.hidden_norm.weight"), "blk.0.attn_norm_2.weight");
  EXPECT_FALSE(names.has("norm.weight"));
  EXPECT_EQ(names.spell("norm.weight"), "output_norm.weight") << "as the file would spell it";
  EXPECT_EQ(names.find("norm.weight"), nullptr);
}

TEST(EagleNames, TwoTensorsWithOneNameAreRefused) {
  const NameList list({"midlayer.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight"});
  try {
    EagleNames(list, false);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("midlayer.mlp.up_proj.weight"), HasSubstr("layers.0.mlp.up_proj.weight"),
                                    HasSubstr("expected one of them")));
  }
}

TEST(EagleNames, LayersAreCountedFromTheNames) {
  const NameList list({"fc.weight", "layers.0.a", "layers.0.b", "model.layers.1.a"});
  EXPECT_EQ(EagleNames(list, false).layers(), 2);
  EXPECT_EQ(EagleNames(NameList({"fc.weight"}), false).layers(), 0);
}

TEST(EagleNames, TablesAndTheTeachersTensorsAreNoWeights) {
  const NameList list({"d2t"});
  const EagleNames folder(list, false), gguf(list, true);
  for (const char* name : {"d2t", "t2d", "model.t2d", "verifier_lm_head.weight", "verifier_norm.weight"})
    EXPECT_TRUE(folder.beside_the_weights(name)) << name;
  EXPECT_FALSE(folder.beside_the_weights("fc.bias"));
  EXPECT_FALSE(folder.beside_the_weights("rope_freqs.weight"));
  EXPECT_TRUE(gguf.beside_the_weights("rope_freqs.weight"));
  EXPECT_FALSE(gguf.beside_the_weights("t2d"));
}

}  // namespace
}  // namespace espalier
