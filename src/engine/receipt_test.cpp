#include "engine/receipt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "device/passing_device.h"
#include "device/reference/reference_device.h"
#include "engine/testing/example_receipt.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string complaint_of_reading(const std::string& json) {
  try {
    read_receipt(json, "r.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

// A receipt with one field changed as JSON, whose hash nobody has made again.
std::string with_field(const char* pointer, const nlohmann::json& value) {
  nlohmann::json object = nlohmann::json::parse(receipt_json(example_receipt()));
  object[nlohmann::json::json_pointer(pointer)] = value;
  return object.dump();
}

TEST(Receipt, HasTheCanonicalFormOfTheDocument) {
  EXPECT_EQ(canonical_receipt(example_receipt()), kExampleCanonicalForm);
}

TEST(Receipt, ComesBackAsItWas) {
  const Receipt receipt = example_receipt();
  const std::string json = receipt_json(receipt);
  EXPECT_EQ(json.find('\n'), std::string::npos);
  const Receipt read = read_receipt(json, "r.json");
  EXPECT_EQ(canonical_receipt(read), canonical_receipt(receipt));
  EXPECT_EQ(receipt_json(read), json);
  EXPECT_EQ(read.options.generate.seed, receipt.options.generate.seed);
  EXPECT_EQ(read.options.generate.sampling.logit_bias, receipt.options.generate.sampling.logit_bias);
  EXPECT_EQ(nlohmann::json::parse(json).at("/options/temperature"_json_pointer).dump(), "0.8") << "few digits";
}

TEST(Receipt, ComesBackFromProgramsThatWriteItInAnotherOrder) {
  const nlohmann::json sorted = nlohmann::json::parse(receipt_json(example_receipt()));
  EXPECT_NO_THROW(read_receipt(sorted.dump(4), "r.json"));
}

TEST(Receipt, KeepsEveryFloatExactly) {
  for (const float value : {0.1f, 1e-38f, 1e-45f, 3.4028235e38f, -0.0f, 0.333333343f, 16777217.0f}) {
    Receipt receipt = example_receipt();
    receipt.options.generate.sampling.logit_bias = {{1, value}};
    const auto read = read_receipt(receipt_json(receipt), "r.json").options.generate.sampling.logit_bias.at(1);
    EXPECT_EQ(std::signbit(read), std::signbit(value));
    EXPECT_EQ(read, value);
  }
}

TEST(Receipt, ForgetsWhatNoTextDependsOn) {
  Receipt receipt = example_receipt();
  receipt.options.generate.logprobs = 5;
  receipt.options.generate.prompt_logprobs = 2;
  receipt.options.drop_oldest = true;
  EXPECT_EQ(receipt_json(receipt), receipt_json(example_receipt()));
}

TEST(Receipt, HasAnotherHashForEveryOtherFact) {
  const std::string expected = receipt_sha256(example_receipt());
  const std::vector<std::function<void(Receipt&)>> changes = {
      [](Receipt& r) { r.origin.fingerprint.model[0] ^= 1; },
      [](Receipt& r) { r.origin.context += 1; },
      [](Receipt& r) { r.origin.date += "T00:00:00"; },
      [](Receipt& r) { r.options.generate.sampling.temperature = 0.8000001f; },
      [](Receipt& r) { r.options.generate.sampling.logit_bias[42] += 1; },
      [](Receipt& r) { r.options.generate.seed += 1; },
      [](Receipt& r) { r.options.generate.max_tokens += 1; },
      [](Receipt& r) { r.options.generate.min_tokens += 1; },
      [](Receipt& r) { r.options.generate.stop_tokens.clear(); },
      [](Receipt& r) { r.options.stop.pop_back(); },
      [](Receipt& r) { r.options.stop = {r.options.stop[0] + r.options.stop[1]}; },
      [](Receipt& r) { r.options.include_stop = !r.options.include_stop; },
      [](Receipt& r) { r.options.ignore_eos = !r.options.ignore_eos; },
      [](Receipt& r) { r.options.loop_guard = !r.options.loop_guard; },
      [](Receipt& r) { r.prompt.push_back(1); },
      [](Receipt& r) { std::swap(r.prompt.back(), r.answer.front()); },
      [](Receipt& r) { r.answer.push_back(1); },
      [](Receipt& r) { r.finish_reason = "length"; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Receipt other = example_receipt();
    changes[i](other);
    EXPECT_NE(receipt_sha256(other), expected) << i;
  }
}

TEST(Receipt, IsRefusedWhenAnyOfItsBytesHasChanged) {
  const std::string json = receipt_json(example_receipt());
  for (std::size_t i = 0; i < json.size(); ++i) {
    std::string changed = json;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    const std::string complaint = complaint_of_reading(changed);
    ASSERT_THAT(complaint, StartsWith("r.json")) << "byte " << i << " of " << changed;
    ASSERT_EQ(complaint.find('\n'), std::string::npos) << complaint;
  }
}

TEST(Receipt, IsRefusedWhenItIsTruncated) {
  const std::string json = receipt_json(example_receipt());
  for (std::size_t size = 0; size < json.size(); ++size)
    ASSERT_THAT(complaint_of_reading(json.substr(0, size)), StartsWith("r.json:1:")) << size;
}

TEST(Receipt, SaysWhatIsWrongWithIt) {
  const auto complaint = [](const char* pointer, const nlohmann::json& value) {
    return complaint_of_reading(with_field(pointer, value));
  };
  EXPECT_EQ(complaint_of_reading("{}"), "r.json: no receipt, expected an object with \"espalier_receipt\"");
  EXPECT_EQ(complaint_of_reading("[]"), "r.json: no receipt, expected an object with \"espalier_receipt\"");
  EXPECT_EQ(complaint("/espalier_receipt", 2), "r.json: a receipt of version \"2\", expected 1");
  EXPECT_EQ(complaint("/seed", 1), "r.json: unknown field \"seed\", expected a receipt of version 1");
  EXPECT_EQ(complaint("/options/speed", 1),
            "r.json: options: unknown field \"speed\", expected a receipt of version 1");
  EXPECT_EQ(complaint("/options/seed", 7), "r.json: options.seed: expected a string, got number");
  EXPECT_THAT(complaint("/options/seed", "07"),
              HasSubstr("expected a text of the digits of 0 to 18446744073709551615"));
  EXPECT_THAT(complaint("/options/temperature", 0.80000001),
              HasSubstr("expected a 32-bit number in its fewest digits"));
  EXPECT_EQ(complaint("/options/temperature", -1), "r.json: options: --temperature: expected 0 to 100, got -1");
  EXPECT_EQ(complaint("/options/stop", {""}), "r.json: options: --stop: expected some text, got an empty one");
  EXPECT_EQ(complaint("/options/logit_bias", {{5, 1}, {5, 1}}),
            "r.json: options.logit_bias[1][0]: expected 6 to 2147483647, got 5");
  EXPECT_EQ(complaint("/finish_reason", "tired"),
            "r.json: finish_reason: expected one of stop, length, context, cancelled, got \"tired\"");
  EXPECT_EQ(complaint("/answer/0", -1), "r.json: answer[0]: expected 0 to 2147483647, got -1");
  EXPECT_EQ(complaint("/fingerprint/kv", "f 16"), "r.json: fingerprint.kv: expected a word, got \"f 16\"");
  EXPECT_THAT(complaint("/context", 4097), StartsWith("r.json: changed since it was written: SHA-256 "));
  EXPECT_THAT(complaint("/sha256", std::string(64, '0')), StartsWith("r.json: changed since it was written: SHA-256 "));
}

TEST(Receipt, NeedsStopStringsThatAreText) {
  Receipt receipt = example_receipt();
  receipt.options.stop = {"\xff"};
  EXPECT_THROW(receipt_json(receipt), InputError);
}

class DependentRows final : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  bool row_independent() const override { return false; }
};

TEST(Receipt, IsNotWrittenByADeviceWhoseTextsDependOnTheirCompany) {
  const auto device = make_reference_device();
  EXPECT_NO_THROW(check_receipts(*device, "--receipt"));
  const DependentRows dependent(*device);
  EXPECT_THROW(check_receipts(dependent, "--receipt"), InputError);
}

TEST(Receipt, IsMadeOfWhatWasAskedAndAnswered) {
  const Receipt expected = example_receipt();
  GenerateResult result;
  result.tokens = expected.answer;
  result.finish_reason = FinishReason::stopped;
  EXPECT_EQ(receipt_json(make_receipt(expected.origin, expected.options, expected.prompt, result)),
            receipt_json(expected));
}

}  // namespace
}  // namespace espalier
