#include "engine/verify_receipt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "base/error.h"
#include "base/testing/sanitized.h"
#include "engine/drafting.h"
#include "engine/receipt_file.h"
#include "engine/testing/tiny_model.h"
#include "session/text_stream.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kMixedAnswers = kSanitized ? 60 : 200;

OpenEngine receipt_engine(std::int64_t context, DType kv_type = DType::f16, const std::string& model = kTinyModel) {
  return open_engine({.model = model, .threads = 1, .kv_type = kv_type, .context = context});
}

// What somebody asks of a batch: a prompt, and how.
struct AskedText {
  std::vector<TokenId> prompt;
  TextOptions options;
};

// Answers in one batch, with drafts, and what their receipts say.
std::vector<Receipt> answer_all(const OpenEngine& engine, const std::vector<AskedText>& asked) {
  Drafting drafting(plan_drafting({.draft = "ngram", .nodes = 8}, engine.places), engine, 0);
  DecoderOptions options = engine.decoder;
  options.parallel = 4;
  Batch batch(*engine.model, options, drafting.speculation());
  std::vector<std::unique_ptr<TextStream>> streams;
  std::vector<GenerateRequest> requests;
  for (const AskedText& one : asked) {
    streams.push_back(std::make_unique<TextStream>(*engine.text, one.prompt, one.options, TextEvents()));
    requests.push_back(streams.back()->request());
  }
  const std::vector<GenerateResult> results = batch.generate(requests);
  const ReceiptOrigin origin = receipt_origin(engine, {}, /*raw=*/true);
  std::vector<Receipt> receipts;
  for (std::size_t i = 0; i < asked.size(); ++i)
    receipts.push_back(make_receipt(origin, asked[i].options, asked[i].prompt, results[i]));
  return receipts;
}

float between(std::mt19937& random, float low, float high) {
  return std::uniform_real_distribution(low, high)(random);
}

SamplingOptions random_sampling(std::mt19937& random) {
  SamplingOptions sampling;
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  if (!one_in(3)) sampling.temperature = between(random, 0.2f, 2.0f);
  if (one_in(3)) sampling.top_k = static_cast<std::int64_t>(1 + random() % 50);
  if (one_in(3)) sampling.top_p = between(random, 0.1f, 1.0f);
  if (one_in(4)) sampling.min_p = between(random, 0.0f, 0.2f);
  if (one_in(3)) sampling.repeat_penalty = between(random, 0.8f, 1.5f);
  if (one_in(3)) sampling.presence_penalty = between(random, -1.0f, 1.0f);
  if (one_in(3)) sampling.frequency_penalty = between(random, -0.5f, 1.0f);
  while (one_in(2)) sampling.logit_bias[static_cast<std::int32_t>(random() % 272)] = between(random, -5.0f, 5.0f);
  if (one_in(5)) sampling.logit_bias[static_cast<std::int32_t>(random() % 272)] = -INFINITY;
  return sampling;
}

AskedText random_request(std::mt19937& random, std::int64_t context) {
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  AskedText asked;
  asked.prompt.resize(1 + random() % static_cast<std::uint64_t>(context));
  for (TokenId& token : asked.prompt) token = static_cast<TokenId>(3 + random() % 40);  // n-grams come again
  TextOptions& options = asked.options;
  options.generate = {.sampling = random_sampling(random),
                      .seed = (std::uint64_t{random()} << 32) + random(),
                      .max_tokens = static_cast<std::int64_t>(random() % 60)};
  if (one_in(3)) options.generate.min_tokens = static_cast<std::int64_t>(random() % 20);
  while (one_in(2)) options.generate.stop_tokens.push_back(static_cast<std::int32_t>(random() % 272));
  while (one_in(2)) options.stop.push_back(std::string(1, static_cast<char>('!' + random() % 90)));
  options.include_stop = one_in(4);
  options.ignore_eos = one_in(2);
  options.loop_guard = one_in(2);
  return asked;
}

class VerifyReceipt : public ::testing::Test {
 protected:
  ReceiptVerdict verdict(const Receipt& receipt) { return verifier_.verify(receipt, "r"); }

  std::string complaint(const Receipt& receipt) {
    try {
      verdict(receipt);
    } catch (const InputError& error) {
      return error.what();
    }
    return "none";
  }

  Receipt answered(const TextOptions& options) {
    return answer_all(engine_, {{engine_.text->tokenizer->encode("hello there hello"), options}})[0];
  }

  static TextOptions sampled(std::int64_t max_tokens) {
    return {.generate = {.sampling = {.temperature = 0.9f}, .seed = 11, .max_tokens = max_tokens}, .ignore_eos = true};
  }

  const OpenEngine engine_ = receipt_engine(128);
  ReceiptVerifier verifier_{engine_};
};

TEST_F(VerifyReceipt, AnswersOfMixedSettingsAreTrue) {
  std::map<std::string, int> ends;
  std::mt19937 random(19);
  for (const auto& [context, kv_type] :
       std::map<std::int64_t, DType>{{40, DType::f16}, {100, DType::bf16}, {128, DType::f32}}) {
    const OpenEngine engine = receipt_engine(context, kv_type);
    std::vector<AskedText> asked;
    for (int i = 0; i < (kMixedAnswers + 2) / 3; ++i) asked.push_back(random_request(random, context));
    const std::vector<Receipt> receipts = answer_all(engine, asked);
    for (const Receipt& receipt : receipts) {
      // By an engine of another context and type of keys and values, and as it comes out of a file.
      const auto found = find_receipts(receipt_json(receipt), "r");
      ASSERT_EQ(found.size(), 1u);
      ASSERT_TRUE(found[0].receipt) << found[0].error;
      const ReceiptVerdict result = verdict(*found[0].receipt);
      ASSERT_TRUE(result.verified()) << verdict_text(result, receipt, *engine.text->tokenizer) << "\n"
                                     << receipt_json(receipt);
      ++ends[receipt.finish_reason];
    }
  }
  EXPECT_GT(ends["stop"], kMixedAnswers / 10);
  EXPECT_GT(ends["length"], kMixedAnswers / 10);
  EXPECT_GT(ends["context"], kMixedAnswers / 10);
}

TEST_F(VerifyReceipt, TheTextComesOutToo) {
  TextOptions options = sampled(20);
  TextStream stream(*engine_.text, engine_.text->tokenizer->encode("hello there hello"), options, {});
  const GenerateResult result = Batch(*engine_.model, engine_.decoder).generate(stream.request());
  stream.finish();
  const std::string text = stream.take(result).text;
  const Receipt receipt = answered(options);
  EXPECT_EQ(verdict(receipt).text, text);
  EXPECT_TRUE(is_text_of(receipt, text, text, *engine_.text));
  EXPECT_TRUE(is_text_of(receipt, text, "hello there hello" + text, *engine_.text)) << "with the prompt in front";
  EXPECT_FALSE(is_text_of(receipt, text, text + ".", *engine_.text));
  EXPECT_FALSE(is_text_of(receipt, text, "and " + text, *engine_.text));
}

TEST_F(VerifyReceipt, TheSameOnAnotherDevice) {
  EngineOptions options{.model = kTinyModel, .threads = 1, .context = 64};
  options.modes.device = AskedMode{"reference", "--device"};
  const OpenEngine reference = open_engine(options);
  const Receipt receipt = answered(sampled(20));
  EXPECT_TRUE(ReceiptVerifier(reference).verify(receipt, "r").verified());
}

TEST_F(VerifyReceipt, OfACancelledAnswerTheBeginningIsJudged) {
  Receipt receipt = answered(sampled(20));
  receipt.finish_reason = "cancelled";
  EXPECT_FALSE(verdict(receipt).verified()) << "it was complete";
  receipt.answer.resize(7);
  EXPECT_TRUE(verdict(receipt).verified());
  receipt.answer.clear();
  EXPECT_TRUE(verdict(receipt).verified()) << "nothing is stated";
  receipt.answer = {5};
  EXPECT_FALSE(verdict(receipt).verified());
}

TEST_F(VerifyReceipt, NamesTheFirstTokenThatDiffersWithBothAndTheMargin) {
  const Receipt receipt = answered({.generate = {.max_tokens = 12}, .ignore_eos = true});
  Receipt other = receipt;
  other.answer[5] = receipt.answer[5] == 70 ? 71 : 70;
  other.answer[9] = 3;
  const auto difference = verdict(other).difference;
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->position, 5);
  EXPECT_EQ(difference->drawn, receipt.answer[5]);
  EXPECT_EQ(difference->stated, other.answer[5]);
  ASSERT_TRUE(difference->margin);
  EXPECT_GT(*difference->margin, 0) << "greedy: the model likes its own token best";
  std::vector<std::int32_t> before = receipt.prompt;
  before.insert(before.end(), receipt.answer.begin(), receipt.answer.begin() + 5);
  std::optional<double> expected;
  Batch(*engine_.model, engine_.decoder).score(before, [&](std::int64_t, std::span<const float> logits) {
    expected = double{logits[static_cast<std::size_t>(receipt.answer[5])]} -
               double{logits[static_cast<std::size_t>(other.answer[5])]};
  });
  EXPECT_NEAR(*difference->margin, *expected, 1e-9);
  EXPECT_THAT(verdict_text(verdict(other), other, *engine_.text->tokenizer),
              StartsWith(fmt::format("NOT VERIFIED: token 5 of the answer is {} \"", receipt.answer[5])));
}

// A way to lie, by somebody who makes the hash anew.
struct Tampering {
  const char* name;
  std::function<void(Receipt&)> change;
};

std::vector<Tampering> answers_changed() {
  return {{"the first token", [](Receipt& r) { r.answer[0] ^= 1; }},
          {"a token in the middle", [](Receipt& r) { r.answer[10] ^= 1; }},
          {"the last token", [](Receipt& r) { r.answer.back() ^= 1; }},
          {"a token less", [](Receipt& r) { r.answer.pop_back(); }},
          {"a token more", [](Receipt& r) { r.answer.push_back(9); }},
          {"many tokens more", [](Receipt& r) { r.answer.resize(1000, 9); }},
          {"a token left out", [](Receipt& r) { r.answer.erase(r.answer.begin() + 4); }},
          {"a token put in", [](Receipt& r) { r.answer.insert(r.answer.begin() + 4, 99); }},
          {"a token that no vocabulary has", [](Receipt& r) { r.answer[6] = 100000; }},
          {"no tokens", [](Receipt& r) { r.answer.clear(); }},
          {"another reason to end", [](Receipt& r) { r.finish_reason = "stop"; }},
          {"a full context", [](Receipt& r) { r.finish_reason = "context"; }},
          {"cancelled, though complete", [](Receipt& r) { r.finish_reason = "cancelled"; }}};
}

std::vector<Tampering> requests_changed() {
  return {{"another seed", [](Receipt& r) { r.options.generate.seed += 1; }},
          {"another temperature", [](Receipt& r) { r.options.generate.sampling.temperature = 1.7f; }},
          {"greedy", [](Receipt& r) { r.options.generate.sampling.temperature = 0; }},
          {"fewer candidates", [](Receipt& r) { r.options.generate.sampling.top_k = 2; }},
          {"a smaller nucleus", [](Receipt& r) { r.options.generate.sampling.top_p = 0.2f; }},
          {"a least probability", [](Receipt& r) { r.options.generate.sampling.min_p = 0.9f; }},
          {"a bias", [](Receipt& r) { r.options.generate.sampling.logit_bias[r.answer[3]] = -20.0f; }},
          {"a penalty for repetition", [](Receipt& r) { r.options.generate.sampling.repeat_penalty = 3.0f; }},
          {"a penalty for presence", [](Receipt& r) { r.options.generate.sampling.presence_penalty = 9.0f; }},
          {"a penalty for frequency", [](Receipt& r) { r.options.generate.sampling.frequency_penalty = 9.0f; }},
          {"a higher limit", [](Receipt& r) { r.options.generate.max_tokens += 1; }},
          {"a lower limit", [](Receipt& r) { r.options.generate.max_tokens -= 1; }},
          {"a stop token that comes", [](Receipt& r) { r.options.generate.stop_tokens = {r.answer[8]}; }},
          {"no tokens may stop",
           [](Receipt& r) {
             r.options.generate.stop_tokens = {r.answer[8]};
             r.options.generate.min_tokens = 9;
           }},
          {"a smaller context", [](Receipt& r) { r.origin.context = std::ssize(r.prompt) + 5; }},
          {"another prompt token", [](Receipt& r) { r.prompt[1] += 1; }},
          {"a prompt token less", [](Receipt& r) { r.prompt.erase(r.prompt.begin()); }},
          {"a prompt token more", [](Receipt& r) { r.prompt.push_back(5); }}};
}

std::vector<Tampering> origins_changed() {
  return {{"another model", [](Receipt& r) { r.origin.fingerprint.model = std::string(64, 'f'); }},
          {"other weights", [](Receipt& r) { r.origin.fingerprint.weights = "q8_0"; }},
          {"another configuration", [](Receipt& r) { r.origin.fingerprint.configuration = std::string(64, 'f'); }},
          {"another tokenizer", [](Receipt& r) { r.origin.fingerprint.tokenizer = std::string(64, 'f'); }},
          {"another end token", [](Receipt& r) { r.origin.fingerprint.end_tokens = {9}; }},
          {"keys and values of integers", [](Receipt& r) { r.origin.fingerprint.kv = "i32"; }},
          {"another arithmetic", [](Receipt& r) { r.origin.fingerprint.arithmetic = 1; }},
          {"another order of float sums", [](Receipt& r) { r.origin.fingerprint.float_order = "mma-90"; }},
          {"other activations", [](Receipt& r) { r.origin.fingerprint.activations = "bf16"; }},
          {"a context that the model does not have", [](Receipt& r) { r.origin.context = std::int64_t{1} << 40; }},
          {"no prompt", [](Receipt& r) { r.prompt.clear(); }},
          {"a prompt that no vocabulary has", [](Receipt& r) { r.prompt[0] = 100000; }},
          {"a prompt that the context does not hold", [](Receipt& r) { r.prompt.resize(129, 7); }},
          {"a bias that no vocabulary has", [](Receipt& r) { r.options.generate.sampling.logit_bias[100000] = 1.0f; }}};
}

TEST_F(VerifyReceipt, ALieAboutTheAnswerOrTheRequestIsFound) {
  const Receipt receipt = answered(sampled(24));
  ASSERT_TRUE(verdict(receipt).verified());
  std::vector<Tampering> lies = answers_changed();
  for (Tampering& lie : requests_changed()) lies.push_back(std::move(lie));
  for (const auto& [name, change] : lies) {
    Receipt lie = receipt;
    change(lie);
    const ReceiptVerdict result = verdict(read_receipt(receipt_json(lie), "r"));
    EXPECT_FALSE(result.verified()) << name;
    const std::string words = verdict_text(result, lie, *engine_.text->tokenizer);
    EXPECT_THAT(words, StartsWith("NOT VERIFIED: ")) << name;
    EXPECT_EQ(words.find('\n'), std::string::npos) << words;
  }
}

TEST_F(VerifyReceipt, AStopStringThatComesIsFound) {
  const Receipt receipt = answered(sampled(24));
  const std::string text = verdict(receipt).text;
  for (std::size_t i = 0; i < 8; ++i) {
    const char byte = text[i];
    if (static_cast<unsigned char>(byte) >= 0x80) continue;
    Receipt lie = receipt;
    lie.options.stop = {std::string(1, byte)};
    EXPECT_FALSE(verdict(lie).verified()) << byte;
  }
}

TEST_F(VerifyReceipt, AnswersThatEndByThemselvesDoNotGoOn) {
  const Receipt whole = answered(sampled(24));
  TextOptions options = sampled(24);
  options.generate.stop_tokens = {whole.answer[9]};
  const Receipt receipt = answered(options);
  ASSERT_EQ(receipt.finish_reason, "stop");
  ASSERT_TRUE(verdict(receipt).verified());
  Receipt lie = receipt;
  lie.options.generate.stop_tokens.clear();
  EXPECT_FALSE(verdict(lie).verified()) << "without the stop token it goes on";
  lie = receipt;
  lie.options.generate.min_tokens = std::ssize(receipt.answer) + 1;
  EXPECT_FALSE(verdict(lie).verified());
  lie = receipt;
  lie.answer = whole.answer;
  lie.finish_reason = "length";
  const auto difference = verdict(lie).difference;
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->position, std::ssize(receipt.answer));
  EXPECT_EQ(difference->drawn, std::nullopt);
  EXPECT_EQ(difference->finish_reason, "stop");
}

TEST_F(VerifyReceipt, AnAnswerInCirclesEndsWhereTheGuardSays) {
  TextOptions options{.generate = {.sampling = {.logit_bias = {{70, 1000.0f}}}, .max_tokens = 110},
                      .ignore_eos = true,
                      .loop_guard = true};
  const Receipt receipt = answered(options);
  EXPECT_EQ(receipt.answer.size(), LoopGuard::kStretches * LoopGuard::kShortestStretch);
  EXPECT_EQ(receipt.finish_reason, "stop");
  EXPECT_TRUE(verdict(receipt).verified());
  Receipt lie = receipt;
  lie.options.loop_guard = false;
  EXPECT_FALSE(verdict(lie).verified());
}

TEST_F(VerifyReceipt, AReceiptOfSomethingElseIsRefusedInOneLine) {
  const Receipt receipt = answered(sampled(24));
  for (const auto& [name, change] : origins_changed()) {
    Receipt lie = receipt;
    change(lie);
    const std::string words = complaint(lie);
    EXPECT_THAT(words, StartsWith("r: ")) << name;
    EXPECT_EQ(words.find('\n'), std::string::npos) << words;
  }
  Receipt other = receipt;
  other.origin.fingerprint.float_order = "mma-90";
  EXPECT_THAT(complaint(other), HasSubstr("float_order is \"mma-90\", expected \"ascending\""));
}

TEST_F(VerifyReceipt, TemplateAndDateAreNotHeldAgainstAPromptOfTokens) {
  Receipt receipt = answered(sampled(8));
  receipt.origin.fingerprint.chat_template = std::string(64, 'f');
  receipt.origin.date = "1999-12-31";
  EXPECT_TRUE(verdict(receipt).verified());
}

TEST_F(VerifyReceipt, AnotherModelSaysSo) {
  const OpenEngine other = receipt_engine(128, DType::f16, std::string(ESPALIER_TEST_DATA) + "/tiny/llama3.gguf");
  ReceiptVerifier verifier(other);
  EXPECT_THROW(verifier.verify(answered(sampled(8)), "r"), InputError);
}

}  // namespace
}  // namespace espalier
