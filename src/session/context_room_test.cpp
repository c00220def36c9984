#include "session/context_room.h"

#include <gtest/gtest.h>

#include "device/reference/reference_device.h"
#include "session/session.h"

namespace espalier {
namespace {

class ContextRoomTest : public ::testing::Test {
 protected:
  std::filesystem::path path_ = std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/llama2.gguf";
  ModelText text_ = load_model_text(path_);

  static std::vector<ChatMessage> chat(int turns) {
    std::vector<ChatMessage> messages = {{"system", "be brief"}};
    for (int turn = 0; turn < turns; ++turn) {
      messages.push_back({"user", "question " + std::to_string(turn)});
      messages.push_back({"assistant", "answer " + std::to_string(turn)});
    }
    messages.push_back({"user", "the last one"});
    return messages;
  }
  std::int64_t length(const std::vector<ChatMessage>& messages) const {
    return std::ssize(encode_chat(text_, messages));
  }
};

TEST_F(ContextRoomTest, AChatThatFitsLosesNothing) {
  const FittedChat fitted = fit_context(text_, chat(3), {}, length(chat(3)) + 5, 5);
  EXPECT_EQ(fitted.dropped_turns, 0);
  EXPECT_EQ(fitted.prompt, encode_chat(text_, chat(3)));
}

TEST_F(ContextRoomTest, TheOldestTurnsGoAndTheSystemMessageStays) {
  const FittedChat fitted = fit_context(text_, chat(3), {}, length(chat(3)) + 4, 5);
  EXPECT_EQ(fitted.dropped_turns, 1);
  ASSERT_EQ(fitted.messages.size(), 6u);
  EXPECT_EQ(fitted.messages[0].content, "be brief");
  EXPECT_EQ(fitted.messages[1].content, "question 1");
  EXPECT_EQ(fitted.prompt, encode_chat(text_, fitted.messages)) << "templated anew";
}

TEST_F(ContextRoomTest, TheLastMessageStaysAndTakesTheAnswersRoomIfItMust) {
  const std::vector<ChatMessage> last = chat(0);
  const FittedChat fitted = fit_context(text_, chat(4), {}, length(last), 10);
  EXPECT_EQ(fitted.dropped_turns, 4);
  EXPECT_EQ(std::ssize(fitted.prompt), length(last));
}

TEST_F(ContextRoomTest, AMessageThatTheContextCannotHoldIsToldWithBothNumbers) {
  const std::int64_t tokens = length(chat(0));
  try {
    fit_context(text_, chat(4), {}, tokens - 1, 1);
    FAIL() << "it fitted";
  } catch (const ContextFull& full) {
    EXPECT_TRUE(full.one_message);
    EXPECT_EQ(std::string(full.what()),
              fmt::format("the prompt has {} tokens, the context holds {}", tokens, tokens - 1));
  }
}

TEST_F(ContextRoomTest, LongAnswersLeaveThreeQuartersToTheConversation) {
  EXPECT_EQ(wanted_room(1024, 200), 50);
  EXPECT_EQ(wanted_room(16, 200), 16);
  EXPECT_EQ(wanted_room(16, 2), 1);
}

// A whole conversation beyond the context: every answer is that of a fresh chat with the turns that are left.
TEST_F(ContextRoomTest, TheTextEqualsThatOfAFreshChatWithTheTurnsThatAreLeft) {
  const std::unique_ptr<Device> device = make_reference_device();
  const Transformer model = load_transformer(*device, path_);
  Batch decoder(model, {.context = 160});
  Session session(text_, decoder);
  session.reset("be brief");
  const TextOptions options{.generate = {.max_tokens = 8}, .ignore_eos = true, .drop_oldest = true};
  std::int64_t told = 0, dropped = 0;
  for (int turn = 0; turn < 12; ++turn) {
    const std::string question = "question " + std::to_string(turn);
    const TextResult result = session.ask(question, options, {.on_dropped = [&](std::int64_t n) { told += n; }});
    dropped += result.dropped_turns;
    std::vector<ChatMessage> left = session.history();
    left.resize(left.size() - 2);
    Batch fresh(model, {.context = 160});
    Session other(text_, fresh);
    other.restore(left);
    EXPECT_EQ(other.ask(question, options).text, result.text) << "turn " << turn;
  }
  EXPECT_GT(dropped, 3);
  EXPECT_EQ(told, dropped);
  EXPECT_EQ(session.history()[0].content, "be brief");
}

}  // namespace
}  // namespace espalier
