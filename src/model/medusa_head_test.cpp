// What can be said of Medusa heads without a golden; tests/medusa_test.cpp compares them with PyTorch.
#include "model/medusa_head.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "base/error.h"
#include "device/checked/checked_device.h"
#include "device/reference/reference_device.h"
#include "format/safetensors.h"
#include "format/testing/complaint.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/safetensors_builder.h"
#include "format/testing/temporary_folder.h"
#include "model/medusa_layout.h"

namespace espalier {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::filesystem::path kTeacher = std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/llama2";

std::string random_floats(std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.2f);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return bytes_of(values);
}

// A file of heads under construction; values depend on the seed given, not on the name.
class HeadFile {
 public:
  HeadFile& matrix(const std::string& name, std::int64_t rows, std::int64_t columns, std::uint32_t seed) {
    builder_.tensor(name, DType::f32, {rows, columns}, random_floats(rows * columns, seed));
    return *this;
  }
  HeadFile& vector(const std::string& name, std::int64_t size, std::uint32_t seed) {
    builder_.tensor(name, DType::f32, {size}, random_floats(size, seed));
    return *this;
  }
  HeadFile& raw(const std::string& name, DType type, const std::vector<std::int64_t>& shape, std::string data) {
    builder_.tensor(name, type, shape, std::move(data));
    return *this;
  }
  HeadFile& config(std::string json) {
    config_ = std::move(json);
    return *this;
  }
  void write(const TemporaryFolder& folder) const {
    folder.write("config.json", config_);
    builder_.write(folder / "model.safetensors");
  }

 private:
  SafetensorsBuilder builder_;
  std::string config_ = "{}";
};

class MedusaHeadTest : public ::testing::Test {
 protected:
  MedusaHead head(const HeadFile& file, const HeadOptions& options = {}) {
    const TemporaryFolder folder;
    file.write(folder);
    return MedusaHead(teacher_, open_head(folder.path()), options);
  }
  std::string refusal(const HeadFile& file) {
    const std::string message = complaint([&] { head(file); });
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    return message;
  }

  Tensor states(std::int64_t rows, std::uint32_t seed = 7) {
    Tensor tensor = device_->tensor(DType::f32, {rows, hidden_});
    const std::string bytes = random_floats(rows * hidden_, seed);
    device_->upload(std::as_bytes(std::span(bytes)), tensor);
    return tensor;
  }

  // [heads][draft vocabulary]
  std::vector<std::vector<float>> run(const MedusaHead& head, ConstView hidden, std::int32_t row) {
    MedusaWorkspace workspace(head);
    const ConstView logits = head.forward(hidden, std::span(&row, 1), workspace);
    std::vector<std::vector<float>> values(static_cast<std::size_t>(head.heads()));
    std::int64_t k = 0;
    for (auto& of_head : values) {
      of_head.resize(static_cast<std::size_t>(head.draft_vocabulary()));
      download<float>(*device_, logits.rows(k++, 1), of_head);
    }
    return values;
  }

  // Three heads of two blocks in layout A, or under the names of D.
  HeadFile three_heads(bool vllm) const {
    HeadFile file;
    for (std::uint32_t k = 0; k < 3; ++k) {
      for (std::uint32_t r = 0; r < 2; ++r) {
        const std::string name = vllm ? fmt::format("blocks.{}.layers.{}.", k, r) : fmt::format("{}.{}.linear.", k, r);
        file.matrix(name + "weight", hidden_, hidden_, 10 * k + r).vector(name + "bias", hidden_, 10 * k + r + 5);
      }
      file.matrix(vllm ? fmt::format("lm_heads.{}.weight", k) : fmt::format("{}.2.weight", k), vocabulary_, hidden_,
                  100 + k);
    }
    return file;
  }

  HeadFile one_vllm_head(const std::string& config) const {
    return HeadFile().matrix("blocks.0.layers.0.weight", hidden_, hidden_, 1).config(config);
  }

  std::unique_ptr<Device> device_ = make_reference_device();
  Transformer teacher_ = load_transformer(*device_, kTeacher);
  std::int64_t hidden_ = teacher_.config().hidden;
  std::int64_t vocabulary_ = teacher_.config().vocabulary;
};

// Layout A has output matrices of its own; B shares the teacher's, whose rows come as f32.
TEST_F(MedusaHeadTest, CutToTheMostFrequentTokensItGuessesThoseAsBefore) {
  HeadFile shared;
  shared.matrix("0.0.linear.weight", hidden_, hidden_, 3);
  for (const HeadFile& file : {three_heads(false), three_heads(true), shared}) {
    const TemporaryFolder folder;
    file.write(folder);
    std::vector<std::int32_t> order(static_cast<std::size_t>(vocabulary_));
    std::iota(order.rbegin(), order.rend(), 0);
    folder.write("vocab_order.json", nlohmann::json(order).dump());
    const MedusaHead whole(teacher_, open_head(folder.path()));
    const MedusaHead cut(teacher_, open_head(folder.path()), {.vocabulary = 3});
    const auto last = static_cast<std::int32_t>(vocabulary_ - 1);
    EXPECT_THAT(cut.target_ids(), ElementsAre(last - 2, last - 1, last));
    const Tensor hidden = states(1);
    const auto all = run(whole, hidden, 0), few = run(cut, hidden, 0);
    for (std::size_t k = 0; k < few.size(); ++k)
      for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(few[k][i], all[k][all[k].size() - 3 + i], 1e-5f) << "head " << k;
    EXPECT_EQ(MedusaHead(teacher_, open_head(folder.path()), {.weights = WeightMode::q8_0, .vocabulary = 3})
                  .draft_vocabulary(),
              3);
  }
}

TEST_F(MedusaHeadTest, LayoutsAreOneNetworkUnderDifferentNames) {
  const Tensor hidden = states(4);
  const auto a = run(head(three_heads(false)), hidden, 2);
  const auto d = run(head(three_heads(true)), hidden, 2);
  EXPECT_EQ(a, d);
  EXPECT_NE(a[0], a[1]);
}

TEST_F(MedusaHeadTest, TiedHeadsEqualHeadsWithTheTeachersMatrix) {
  const Safetensors teacher(kTeacher);
  const TensorInfo* output = teacher.find("lm_head.weight");
  ASSERT_NE(output, nullptr);
  const std::string bytes(reinterpret_cast<const char*>(output->bytes.data()), output->bytes.size());
  HeadFile tied, own;
  for (std::uint32_t k = 0; k < 2; ++k) {
    const std::string block = fmt::format("{}.0.linear.weight", k);
    tied.matrix(block, hidden_, hidden_, k);
    own.matrix(block, hidden_, hidden_, k).raw(fmt::format("{}.1.weight", k), output->type, output->shape, bytes);
  }
  const Tensor hidden = states(1);
  EXPECT_EQ(run(head(tied), hidden, 0), run(head(own), hidden, 0));
}

TEST_F(MedusaHeadTest, AHeadDependsOnItsOwnRowAlone) {
  const MedusaHead heads = head(three_heads(false));
  const Tensor many = states(9);
  const Tensor one = device_->tensor(DType::f32, {1, hidden_});
  std::vector<float> row(static_cast<std::size_t>(hidden_));
  download<float>(*device_, many.view.rows(5, 1), row);
  upload<float>(*device_, row, one);
  EXPECT_EQ(run(heads, many, 5), run(heads, one, 0));
  EXPECT_NE(run(heads, many, 5), run(heads, many, 4));
}

TEST_F(MedusaHeadTest, RowsInOneCallAreThoseOfCallsOfTheirOwn) {
  const MedusaHead heads = head(three_heads(false));
  const Tensor hidden = states(9);
  MedusaWorkspace workspace(heads, 4);
  for (const std::vector<std::int32_t>& rows : {std::vector{7, 0, 3, 7}, std::vector{5}, std::vector{2, 8}}) {
    const ConstView logits = heads.forward(hidden, rows, workspace);
    ASSERT_EQ(logits.dim(0), 3 * std::ssize(rows));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto alone = run(heads, hidden, rows[i]);
      for (std::size_t k = 0; k < alone.size(); ++k) {
        std::vector<float> values(static_cast<std::size_t>(vocabulary_));
        download<float>(*device_, logits.rows(static_cast<std::int64_t>(k * rows.size() + i), 1), values);
        EXPECT_EQ(values, alone[k]) << "head " << k << " on row " << rows[i];
      }
    }
  }
}

TEST_F(MedusaHeadTest, AWorkspaceServesCallAfterCall) {
  const MedusaHead heads = head(three_heads(false));
  const Tensor hidden = states(3);
  MedusaWorkspace workspace(heads);
  const auto first_logits = [&](std::int32_t row) {
    std::vector<float> values(static_cast<std::size_t>(vocabulary_));
    download<float>(*device_, heads.forward(hidden, std::span(&row, 1), workspace).rows(0, 1), values);
    return values;
  };
  const auto before = first_logits(1);
  EXPECT_NE(first_logits(2), before);
  EXPECT_EQ(first_logits(1), before);
  EXPECT_THROW(first_logits(3), std::logic_error);
  EXPECT_THROW(first_logits(-1), std::logic_error);
  EXPECT_THROW(heads.forward(hidden, std::span<const std::int32_t>(), workspace), std::logic_error);
  EXPECT_THROW(heads.forward(hidden, std::vector{0, 1}, workspace), std::logic_error) << "it has room for one";
}

// A device with buckets of 1, 8, ...: three heads become eight rows, and all of them may be ranked.
TEST_F(MedusaHeadTest, PadsToTheBucketsOfADevice) {
  const TemporaryFolder folder;
  three_heads(false).write(folder);
  const Tensor hidden = states(3);
  std::vector<float> row(static_cast<std::size_t>(3 * hidden_));
  download<float>(*device_, hidden, row);

  const auto ascend = make_checked_device(make_reference_device(), {.profile = CheckedProfile::ascend});
  const Transformer teacher = load_transformer(*ascend, kTeacher);
  const MedusaHead padded(teacher, open_head(folder.path()));
  const Tensor padded_hidden = ascend->tensor(DType::f32, {3, hidden_});
  upload<float>(*ascend, row, padded_hidden);
  MedusaWorkspace workspace(padded);
  const ConstView logits = padded.forward(padded_hidden, std::vector{1}, workspace);
  ASSERT_EQ(logits.dim(0), 8);
  const Tensor value = ascend->tensor(DType::f32, {8, 4}), id = ascend->tensor(DType::i32, {8, 4});
  EXPECT_NO_THROW(ascend->top_k(logits, value, id));
  std::vector<float> first(static_cast<std::size_t>(vocabulary_));
  download<float>(*ascend, logits.rows(0, 1), first);
  EXPECT_EQ(first, run(head(three_heads(false)), hidden, 1)[0]);

  // Three states are eight rows of each head.
  MedusaWorkspace wider(padded, 3);
  const ConstView both = padded.forward(padded_hidden, std::vector{0, 1, 2}, wider);
  ASSERT_EQ(both.dim(0), 32);
  for (std::int32_t state : {0, 1, 2}) {
    const auto expected = run(head(three_heads(false)), hidden, state);
    for (std::size_t k = 0; k < expected.size(); ++k) {
      download<float>(*ascend, both.rows(static_cast<std::int64_t>(8 * k) + state, 1), first);
      EXPECT_EQ(first, expected[k]) << "head " << k << " on state " << state;
    }
  }
}

// 5 draft tokens are rows of 20 bytes: they are spread so that each starts where every device can take it.
TEST_F(MedusaHeadTest, RowsOfAnOddVocabularyStartOn32Bytes) {
  const auto map = bytes_of<std::int32_t>({3, 1, 4, 15, 9});
  const HeadFile file = one_vllm_head(R"({"truncated_vocab_size": 5, "original_lm_head": true, "logit_scale": 2})")
                            .matrix("blocks.1.layers.0.weight", hidden_, hidden_, 2)
                            .matrix("lm_head.weight", 5, hidden_, 3)
                            .raw("token_map", DType::i32, {5}, map);
  const MedusaHead heads = head(file);
  EXPECT_THAT(heads.target_ids(), ElementsAre(3, 1, 4, 15, 9));
  EXPECT_EQ(heads.logit_scale(), 2);
  MedusaWorkspace workspace(heads);
  const ConstView logits = heads.forward(states(1), std::vector{0}, workspace);
  EXPECT_EQ(logits.dim(1), 5);
  EXPECT_EQ(logits.row_stride() * 4 % 32, 0);
}

TEST_F(MedusaHeadTest, WeightModesChangeTheMatrices) {
  const Tensor hidden = states(1);
  const HeadFile file = three_heads(false);
  const auto stored = run(head(file), hidden, 0);
  EXPECT_EQ(run(head(file, {.weights = WeightMode::f32}), hidden, 0), stored) << "the file is f32";
  const auto quantised = run(head(file, {.weights = WeightMode::q8_0}), hidden, 0);
  EXPECT_NE(quantised, stored);
  for (std::size_t k = 0; k < stored.size(); ++k)
    for (std::size_t i = 0; i < stored[k].size(); ++i) ASSERT_NEAR(quantised[k][i], stored[k][i], 0.1);
}

TEST_F(MedusaHeadTest, RefusesSettingsThatCannotBe) {
  const auto with_output = [this](const std::string& config) {
    return refusal(one_vllm_head(config).matrix("lm_heads.0.weight", vocabulary_, hidden_, 2));
  };
  EXPECT_EQ(with_output("{}"), "");
  EXPECT_THAT(with_output(R"({"truncated_vocab_size": 0})"), HasSubstr("truncated_vocab_size: expected 1 to 272"));
  EXPECT_THAT(with_output(R"({"truncated_vocab_size": 273})"), HasSubstr("truncated_vocab_size: expected 1 to 272"));
  EXPECT_THAT(with_output(R"({"truncated_vocab_size": "x"})"), HasSubstr("truncated_vocab_size: expected an integer"));
  EXPECT_THAT(with_output(R"({"truncated_vocab_size": 16})"), HasSubstr("tensor token_map is missing, expected [16]"));
  std::vector<std::int32_t> first(16);
  std::iota(first.begin(), first.end(), 0);
  EXPECT_THAT(refusal(one_vllm_head(R"({"truncated_vocab_size": 16})")
                          .matrix("lm_heads.0.weight", vocabulary_, hidden_, 2)
                          .raw("token_map", DType::i32, {16}, bytes_of(first))),
              HasSubstr("lm_heads.0.weight: expected shape [16, 32], got [272, 32]"));
  EXPECT_THAT(with_output(R"({"logit_scale": 0})"), HasSubstr("logit_scale: expected a positive number"));
  EXPECT_THAT(with_output(R"({"logit_scale": -1})"), HasSubstr("logit_scale: expected a positive number"));
  EXPECT_THAT(with_output(R"({"logit_scale": 1e300})"),
              HasSubstr("logit_scale: expected a number above 0 that float32 holds"));
  EXPECT_THAT(with_output(R"({"original_lm_head": 1})"), HasSubstr("original_lm_head: expected true or false"));
  EXPECT_THAT(with_output(R"({"original_lm_head": true})"), HasSubstr("lm_head.weight is missing"));
}

TEST_F(MedusaHeadTest, RefusesTokenMapsThatMapNothing) {
  const auto with_map = [this](DType type, std::vector<std::int64_t> shape, std::string data) {
    return refusal(one_vllm_head(R"({"truncated_vocab_size": 2})")
                       .matrix("lm_heads.0.weight", 2, hidden_, 2)
                       .raw("token_map", type, shape, std::move(data)));
  };
  EXPECT_EQ(with_map(DType::i64, {2}, bytes_of<std::int64_t>({5, 271})), "");
  EXPECT_THAT(with_map(DType::i64, {2}, bytes_of<std::int64_t>({5, -1})),
              HasSubstr("token_map: element 1: expected a token 0 to 271, got -1"));
  EXPECT_THAT(with_map(DType::i64, {2}, bytes_of<std::int64_t>({1ll << 40, 1})), HasSubstr("token_map: element 0"));
  EXPECT_THAT(with_map(DType::i32, {2}, bytes_of<std::int32_t>({5, 5})), HasSubstr("each token once, got 5 twice"));
  EXPECT_THAT(with_map(DType::f32, {2}, bytes_of<float>({5, 6})),
              HasSubstr("token_map: expected i64 or i32 [2], got f32 [2]"));
  EXPECT_THAT(with_map(DType::i64, {1}, bytes_of<std::int64_t>({5})), HasSubstr("got i64 [1]"));
}

TEST_F(MedusaHeadTest, RefusesWhatTheLayoutHasNoPlaceFor) {
  const auto plain = [this] { return HeadFile().matrix("0.0.linear.weight", hidden_, hidden_, 1); };
  EXPECT_EQ(refusal(plain()), "");
  EXPECT_THAT(refusal(plain().vector("token_map", 272, 1)), HasSubstr("\"token_map\": unknown"));
  EXPECT_THAT(refusal(plain().vector("0.0.linear.scale", 1, 1)), HasSubstr("\"0.0.linear.scale\": unknown"));
  EXPECT_THAT(refusal(plain().vector("1.0.linear.bias", hidden_, 1)), HasSubstr("1.0.linear.weight is missing"));
  EXPECT_THAT(
      refusal(
          plain().matrix("0.1.linear.weight", hidden_, hidden_, 1).matrix("1.0.linear.weight", hidden_, hidden_, 1)),
      HasSubstr("1.1.linear.weight is missing"))
      << "every head has as many blocks as the longest";
  EXPECT_THAT(
      refusal(plain().matrix("0.1.weight", vocabulary_, hidden_, 1).matrix("1.1.weight", vocabulary_, hidden_, 1)),
      HasSubstr("\"1.1.weight\": unknown"));
  EXPECT_THAT(refusal(plain().raw("0.0.linear.bias", DType::i64, {hidden_}, zeros(8 * 32))),
              HasSubstr("0.0.linear.bias: expected weights, got i64"));
}

TEST_F(MedusaHeadTest, RefusesAnEagleHead) {
  HeadFile eagle;
  eagle.matrix("fc.weight", 4, 12, 1).vector("midlayer.hidden_norm.weight", 4, 1);
  EXPECT_THAT(refusal(eagle), HasSubstr("an EAGLE head, expected Medusa heads"));
}

// --- names alone

class Names final : public TensorSource {
 public:
  explicit Names(const std::vector<std::string>& names) {
    for (const std::string& name : names)
      tensors_.push_back({.name = name, .type = DType::f32, .shape = {}, .bytes = {}});
  }
  const TensorInfo* find(std::string_view) const override { return nullptr; }
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  std::string_view description() const override { return "file"; }

 private:
  std::vector<TensorInfo> tensors_;
};

TEST(MedusaLayout, CountsHeadsAndBlocksFromTheNames) {
  const MedusaLayout a(Names({"0.0.linear.weight", "0.1.linear.bias", "2.0.linear.bias", "0.2.weight"}));
  EXPECT_EQ(a.heads(), 3);
  EXPECT_EQ(a.blocks(), 2);
  EXPECT_TRUE(a.has_own_outputs());
  EXPECT_FALSE(a.is_vllm());
  EXPECT_EQ(a.output(1), "1.2.weight");
  const MedusaLayout d(Names({"medusa_heads.blocks.0.layers.0.weight", "medusa_heads.lm_heads.0.weight", "token_map"}));
  EXPECT_EQ(d.heads(), 1);
  EXPECT_TRUE(d.is_vllm());
  EXPECT_EQ(d.weight(0, 0), "medusa_heads.blocks.0.layers.0.weight");
  EXPECT_EQ(d.bias(0, 0), "blocks.0.layers.0.bias") << "absent: its plain name";
  EXPECT_EQ(d.output(0), "medusa_heads.lm_heads.0.weight");
  EXPECT_EQ(d.token_map(), "token_map");
}

TEST(MedusaLayout, RefusesNamesThatMakeNoHeads) {
  const auto refusal = [](const std::vector<std::string>& names) {
    return complaint([&] { MedusaLayout layout{Names(names)}; });
  };
  EXPECT_THAT(refusal({"0.1.weight"}), HasSubstr("file: no Medusa block"));
  EXPECT_THAT(refusal({"blocks.0.layers.x.weight"}), HasSubstr("no Medusa block"));
  EXPECT_THAT(refusal({"0.0.linear.weight", "medusa_head.0.0.linear.weight"}), HasSubstr("is there twice"));
  EXPECT_THAT(refusal({"64.0.linear.weight"}), HasSubstr("65 Medusa heads of 1 blocks, expected at most 64"));
  EXPECT_THAT(refusal({"0.0.linear.weight", "0.7.linear.bias", "1.2.weight"}),
              HasSubstr("1.2.weight: expected the output matrix after 8 blocks, 1.8.weight"));
  for (const char* name : {"9223372036854775807.0.linear.weight", "99999999999999999999.0.linear.weight",
                           "-1.0.linear.weight", "0.0.linear.weights", "0.0linear.weight", ".0.linear.weight"})
    EXPECT_THAT(refusal({name}), HasSubstr("no Medusa block")) << name;
}

}  // namespace
}  // namespace espalier
