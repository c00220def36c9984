// Medusa heads against an independent PyTorch implementation (tests/data/heads/README.md), from its hidden states and
// behind the engine's own teacher; and every head that a loader must refuse or accept.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <span>
#include <tuple>

#include "base/error.h"
#include "model/medusa_head.h"
#include "testing/engine.h"
#include "testing/head_cases.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kBest = 16;  // tokens a golden lists for each head and position

// All rows of a view, dense on the host, scaled.
std::vector<float> scaled_rows(Device& device, ConstView view, float scale) {
  std::vector<float> values;
  for (std::int64_t r = 0; r < view.dim(0); ++r) {
    std::vector<float> row(static_cast<std::size_t>(view.dim(1)));
    download<float>(device, view.rows(r, 1), row);
    for (float value : row) values.push_back(value * scale);
  }
  return values;
}

// The teacher's ids of the best tokens of each row of the output, as the device ranks them.
std::vector<std::int32_t> best_tokens(const MedusaHead& head, ConstView logits) {
  Device& device = head.device();
  const std::int64_t rows = logits.dim(0), k = static_cast<std::int64_t>(kBest);
  const Tensor value = device.tensor(DType::f32, {rows, k}), id = device.tensor(DType::i32, {rows, k});
  device.top_k(logits, value, id);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * k));
  download<std::int32_t>(device, id, ids);
  for (std::int32_t& i : ids) i = head.target_ids()[static_cast<std::size_t>(i)];
  return ids;
}

class MedusaGolden : public ::testing::TestWithParam<std::tuple<HeadGolden, std::string>> {
 protected:
  const HeadGolden& golden() const { return std::get<0>(GetParam()); }

  // As many positions at once as a step of the device takes.
  std::size_t most_together(const MedusaHead& head, std::size_t positions) const {
    const auto rows = [&](std::int64_t count) { return head.heads() * rows_of_step(*device_, count); };
    std::int64_t count = largest_step(*device_, static_cast<std::int64_t>(positions));
    while (count > 1 && largest_step(*device_, rows(count)) < rows(count)) --count;
    return static_cast<std::size_t>(count);
  }

  // hidden: [positions of the teacher's golden, hidden]. Checks the heads at each position of the golden, one by one
  // and several together.
  void expect_golden(const MedusaHead& head, const std::vector<float>& hidden, const std::string& bound) {
    const auto expected = golden_floats(golden().golden, "logits");  // [heads, positions, draft vocabulary]
    const auto best = golden_tokens(golden().golden, "best");        // [heads, positions, 16]
    const auto positions = golden_tokens(golden().golden, "positions");
    const std::int64_t width = teacher_.config().hidden, count = static_cast<std::int64_t>(hidden.size()) / width;
    Tensor states = device_->tensor(DType::f32, {count, width});
    upload<float>(*device_, hidden, states);
    const auto vocabulary = static_cast<std::size_t>(head.draft_vocabulary());
    float largest = 0;
    for (std::size_t together : {std::size_t{1}, most_together(head, positions.size())}) {
      MedusaWorkspace workspace(head, static_cast<std::int64_t>(together));
      for (std::size_t first = 0; first < positions.size(); first += together) {
        const auto rows = std::span(positions).subspan(first, std::min(together, positions.size() - first));
        const ConstView logits = head.forward(states, rows, workspace);
        const auto got = scaled_rows(*device_, logits, head.logit_scale());
        const auto got_best = best_tokens(head, logits);
        const auto stride = static_cast<std::size_t>(rows_of_step(*device_, std::ssize(rows)));
        for (std::size_t k = 0; k < static_cast<std::size_t>(head.heads()); ++k)
          for (std::size_t p = 0; p < rows.size(); ++p) {
            const std::size_t row = k * stride + p, at = k * positions.size() + first + p;
            for (std::size_t i = 0; i < vocabulary; ++i) {
              const float difference = std::fabs(got[row * vocabulary + i] - expected[at * vocabulary + i]);
              largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
            }
            EXPECT_TRUE(std::equal(best.begin() + static_cast<std::ptrdiff_t>(at * kBest),
                                   best.begin() + static_cast<std::ptrdiff_t>((at + 1) * kBest),
                                   got_best.begin() + static_cast<std::ptrdiff_t>(row * kBest)))
                << "head " << k << " at position " << rows[p] << ", " << together << " together";
          }
      }
    }
    // The bounds are those of float inputs. Terms of 16 bits are less exact, as hidden states of an engine's teacher
    // are.
    const bool terms = device_->activations() != kContractActivations;
    const float allowed = golden_floats(golden().golden, terms ? "bound.engine.logits" : bound)[0];
    EXPECT_LE(largest, allowed);
    std::cout << golden().name << ": logits differ by " << largest << " (" << bound << " " << allowed << ")\n";
  }

  static std::unique_ptr<Device> make_device(const std::string& name) {
    for (const NamedDevice& device : all_devices())
      if (device.name == name) return device.make(1);
    throw std::logic_error("no device " + name);
  }

  std::unique_ptr<Device> device_ = make_device(std::get<1>(GetParam()));
  Transformer teacher_ = load_transformer(*device_, golden().teacher);
  MedusaHead head_{teacher_, open_head(golden().head), golden().options};
  std::filesystem::path teacher_golden_ = golden().teacher / "golden.safetensors";
};

TEST_P(MedusaGolden, LogitsEqualPyTorchFromItsHiddenStates) {
  EXPECT_EQ(head_.target_ids(), golden_tokens(golden().golden, "target_ids"));
  expect_golden(head_, golden_floats(teacher_golden_, "hidden"), "bound.logits");
}

TEST_P(MedusaGolden, LogitsEqualPyTorchBehindTheEnginesOwnTeacher) {
  const ForwardRun run = run_forward(teacher_, golden_tokens(teacher_golden_, "tokens"));
  expect_golden(head_, run.hidden, "bound.engine.logits");
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const NamedDevice& device : all_devices()) names.push_back(device.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Heads, MedusaGolden,
                         ::testing::Combine(::testing::ValuesIn(head_goldens(HeadKind::medusa)),
                                            ::testing::ValuesIn(device_names())),
                         [](const auto& info) {
                           return test_name(std::get<0>(info.param).name + "_" + std::get<1>(info.param));
                         });

class MedusaCase : public ::testing::TestWithParam<HeadCase> {
 protected:
  std::unique_ptr<Device> device_ = all_devices().front().make(1);
  Transformer teacher_ = load_transformer(*device_, GetParam().teacher);
};

TEST_P(MedusaCase, IsRefusedOrAcceptedAsItsFolderSays) {
  const HeadCase& expected = GetParam();
  try {
    const MedusaHead head(teacher_, open_head(expected.head), expected.options);
    EXPECT_FALSE(expected.refused) << "expected a refusal";
    EXPECT_EQ(head.target_ids(), expected.target_ids);
    EXPECT_EQ(classify_head(open_head(expected.head)), HeadKind::medusa);
  } catch (const InputError& error) {
    EXPECT_TRUE(expected.refused) << error.what();
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    for (const std::string& part : expected.says) EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, MedusaCase, ::testing::ValuesIn(head_cases(HeadKind::medusa)),
                         [](const auto& info) { return test_name(info.param.name); });

}  // namespace
}  // namespace espalier::testing
