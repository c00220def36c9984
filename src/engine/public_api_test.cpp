#include <espalier/espalier.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "engine/testing/tiny_model.h"

namespace espalier {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Errors of a call, as text.
template <typename Error, typename Function>
std::string message_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

class PublicApi : public testing::Test {
 protected:
  static AnswerOptions tokens(std::int64_t count) { return {.max_tokens = count, .ignore_eos = true}; }

  const Engine engine_ = Engine::open(kTinyModel, {.threads = 1, .context = 256});
};

TEST_F(PublicApi, StreamedPiecesJoinToTheText) {
  std::string streamed;
  AnswerOptions options = tokens(24);
  options.on_text = [&](std::string_view text) { streamed += text; };
  const Reply reply = engine_.converse().ask("hello", options);
  EXPECT_EQ(streamed, reply.text);
  EXPECT_EQ(reply.tokens.size(), 24u);
  EXPECT_EQ(reply.end, End::length);
  EXPECT_EQ(name(reply.end), "length");
}

TEST_F(PublicApi, WhoDraftsChangesTheStatisticsNeverTheText) {
  const Reply plain = engine_.converse({.drafts = {.draft = "none"}}).complete("abcabcabc", tokens(30));
  EXPECT_EQ(plain.statistics.drafters, "none");
  EXPECT_EQ(plain.statistics.drafted_tokens, 0);
  EXPECT_EQ(plain.statistics.rounds, 29) << "the prompt's own step gives the first token";
  for (const Drafts& drafts : {Drafts{.draft = "ngram", .nodes = 8}, Drafts{.draft = "hostile", .tree = "chain"},
                               Drafts{.draft = "oracle", .depth = 4}, Drafts{.draft = "eagle3", .heads = {kTinyEagle3}},
                               Drafts{.draft = "model", .draft_model = kTinyModel}, Drafts{}}) {
    const Reply reply = engine_.converse({.drafts = drafts}).complete("abcabcabc", tokens(30));
    EXPECT_EQ(reply.tokens, plain.tokens) << drafts.draft;
    EXPECT_EQ(reply.text, plain.text) << drafts.draft;
    const ReplyStatistics& statistics = reply.statistics;
    EXPECT_LE(statistics.accepted_tokens, statistics.drafted_tokens) << drafts.draft;
    // Each round gives one token besides those accepted; the last one may be cut at the limit.
    EXPECT_GE(1 + statistics.rounds + statistics.accepted_tokens, 30) << drafts.draft;
  }
}

TEST_F(PublicApi, ConversationsKnowNothingOfEachOther) {
  Conversation alone = engine_.converse();
  const std::string first = alone.ask("hello", tokens(8)).text;
  const std::string second = alone.ask("again", tokens(8)).text;
  Conversation one = engine_.converse(), other = engine_.converse({.system = "be brief"});
  EXPECT_EQ(one.ask("hello", tokens(8)).text, first);
  other.ask("something else", tokens(8));
  EXPECT_EQ(one.ask("again", tokens(8)).text, second);
  EXPECT_EQ(one.history().size(), 4u);
  EXPECT_EQ(other.history().front().role, "system");
  EXPECT_EQ(other.history().front().content, "be brief");
  one.reset();
  EXPECT_TRUE(one.history().empty());
  EXPECT_EQ(one.ask("hello", tokens(8)).text, first);
}

TEST_F(PublicApi, ASecondTurnReusesWhatTheFirstComputed) {
  Conversation conversation = engine_.converse();
  conversation.ask("hello there, how are you today", tokens(5));
  EXPECT_GT(conversation.ask("and now", tokens(5)).statistics.reused_tokens, 20);
}

TEST_F(PublicApi, ACancelledAnswerIsKeptAsFarAsItCame) {
  Conversation conversation = engine_.converse();
  int asked = 0;
  AnswerOptions options = tokens(100);
  options.cancelled = [&] { return ++asked > 5; };
  const Reply reply = conversation.ask("hello", options);
  EXPECT_EQ(reply.end, End::cancelled);
  EXPECT_LT(reply.tokens.size(), 100u);
  EXPECT_EQ(conversation.history().back().content, reply.text);
}

TEST_F(PublicApi, LogProbabilitiesComeWithTheirAlternatives) {
  AnswerOptions options = tokens(6);
  options.logprobs = 3;
  const Reply reply = engine_.converse().ask("hello", options);
  ASSERT_EQ(reply.logprobs.size(), reply.tokens.size());
  for (std::size_t i = 0; i < reply.tokens.size(); ++i) {
    ASSERT_EQ(reply.logprobs[i].top.size(), 3u);
    EXPECT_EQ(reply.logprobs[i].chosen.token, reply.tokens[i]);
    EXPECT_EQ(reply.logprobs[i].top.front().token, reply.tokens[i]) << "greedy";
    EXPECT_LE(reply.logprobs[i].chosen.logprob, 0);
  }
  EXPECT_TRUE(engine_.converse().ask("hello", tokens(2)).logprobs.empty());
}

TEST_F(PublicApi, ASeedGivesTheSameTextEveryTime) {
  AnswerOptions options = tokens(20);
  options.temperature = 1;
  options.seed = 7;
  const std::string text = engine_.converse().ask("hello", options).text;
  EXPECT_EQ(engine_.converse().ask("hello", options).text, text);
  options.seed = 8;
  EXPECT_NE(engine_.converse().ask("hello", options).text, text);
}

TEST_F(PublicApi, ThreadsTakeTurnsAndGetTheTextOfOneAlone) {
  const std::string expected = engine_.converse().ask("hello", tokens(16)).text;
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts)
    threads.emplace_back([&, this] { text = engine_.converse().ask("hello", tokens(16)).text; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(texts, testing::Each(expected));
}

TEST_F(PublicApi, AConversationOutlivesItsEngine) {
  std::optional<Engine> engine = Engine::open(kTinyModel, {.threads = 1, .context = 64});
  Conversation conversation = engine->converse();
  engine.reset();
  EXPECT_EQ(conversation.ask("hello", tokens(4)).tokens.size(), 4u);
}

TEST_F(PublicApi, AnEngineThatIsCalledFromItsOwnCallbackSaysSo) {
  Conversation conversation = engine_.converse();
  AnswerOptions options = tokens(4);
  options.on_text = [&](std::string_view) { engine_.converse(); };
  EXPECT_THAT(message_of<std::logic_error>([&] { conversation.ask("hello", options); }),
              HasSubstr("called from its own callback"));
  EXPECT_EQ(conversation.ask("hello", tokens(4)).tokens.size(), 4u) << "and works on";
}

TEST_F(PublicApi, AConversationOfOtherThreadsIsNeverSeenInTheMiddleOfATurn) {
  Conversation conversation = engine_.converse();
  std::thread asking([&] {
    for (int turn = 0; turn < 4; ++turn) conversation.ask("hello", tokens(4));
  });
  for (int look = 0; look < 20; ++look) EXPECT_EQ(conversation.history().size() % 2, 0u);
  asking.join();
  AnswerOptions options = tokens(4);
  options.on_text = [&](std::string_view) { conversation.reset(); };
  EXPECT_THROW(conversation.ask("hello", options), std::logic_error);
}

TEST_F(PublicApi, WhatWasMovedAwaySaysSo) {
  Conversation conversation = engine_.converse();
  const Conversation taken = std::move(conversation);
  EXPECT_THROW(conversation.ask("hello"), std::logic_error);
  EXPECT_TRUE(taken.history().empty());
}

TEST_F(PublicApi, WrongOptionsAreInputErrorsInOneLine) {
  const auto opening = [](const OpenOptions& options, const std::string& model = kTinyModel) {
    return message_of<InputError>([&] { Engine::open(model, options); });
  };
  EXPECT_THAT(opening({}, ""), StartsWith("model: expected a GGUF file"));
  EXPECT_THAT(opening({}, "no/such/model"), StartsWith("no/such/model: no such file"));
  EXPECT_EQ(opening({.threads = -1}), "threads: expected 0 to 256, got -1");
  EXPECT_EQ(opening({.context = -1}), "context: expected 0 or more, got -1");
  EXPECT_EQ(opening({.device = "gpu"}),
            "device: expected auto or cpu or reference or cuda or ascend, or cuda:N or ascend:N, got 'gpu'");
  EXPECT_EQ(opening({.context = 100000}), "--context: expected 1 to 512 (what the model was made for), got 100000");
  EXPECT_EQ(opening({.kv = "q9"}), "kv: expected f16, bf16 or f32, got 'q9'");
  EXPECT_EQ(opening({.kv = "q8_0"}), "kv: expected f16, bf16 or f32, got 'q8_0'");
  EXPECT_EQ(opening({.activations = "f8"}), "activations: expected two-terms or bf16, got 'f8'");
  EXPECT_EQ(opening({.activations = "bf16"}),
            "--activations bf16: only with --device cuda, on cpu linears of float weights have one kind of input");
  EXPECT_THAT(opening({}, std::string(5000, 'x')), HasSubstr("File name too long"));
  EXPECT_EQ(opening({.weights = "q2"}), "weights: expected file, f32 or q8_0, got 'q2'");
  EXPECT_THAT(message_of<InputError>([&] { engine_.converse({.drafts = {.draft = "guess"}}); }),
              StartsWith("--draft: expected none"));
  Conversation conversation = engine_.converse();
  EXPECT_THAT(message_of<InputError>([&] { conversation.ask("hello", {.temperature = -1}); }),
              HasSubstr("temperature"));
  EXPECT_EQ(message_of<InputError>([&] { conversation.ask("hello", {.logprobs = 1001}); }),
            "--logprobs: expected 0 to 1000, got 1001");
  EXPECT_THAT(message_of<InputError>([&] { conversation.ask(std::string(5000, 'x')); }), HasSubstr("context"));
  EXPECT_TRUE(conversation.history().empty()) << "a turn that fails leaves no trace";
}

TEST_F(PublicApi, TextAndTokensAreThereAndBack) {
  const std::vector<std::int32_t> tokens = engine_.tokenize("once upon a time");
  EXPECT_EQ(engine_.detokenize(tokens), "once upon a time");
  EXPECT_EQ(engine_.context(), 256);
  EXPECT_GT(engine_.vocabulary(), 0);
  EXPECT_TRUE(engine_.has_chat_template());
  EXPECT_THROW(engine_.detokenize({-1}), InputError);
  EXPECT_THROW(engine_.detokenize({1 << 30}), InputError);
  EXPECT_FALSE(version().empty());
}

// Requests that are told apart by what is heard of them.
class PublicRequests : public PublicApi {
 protected:
  static Prompt chat(std::string question) { return {.messages = {{"user", std::move(question)}}}; }
  std::function<void(const Ending&)> heard() {
    return [this](const Ending& ending) { endings_.push_back(ending); };
  }
  const Ending& ending(RequestId id) const {
    const auto found = std::ranges::find(endings_, id, &Ending::id);
    if (found == endings_.end()) throw std::logic_error("nothing was heard of it");
    return *found;
  }
  Requests plain(int parallel) const { return engine_.requests({.parallel = parallel, .drafts = {.draft = "none"}}); }

  std::vector<Ending> endings_;
};

TEST_F(PublicRequests, AnswersMadeTogetherAreThoseOfOneAlone) {
  AnswerOptions sampled = tokens(25), stopped = tokens(40), probable = tokens(6);
  sampled.temperature = 1;
  sampled.seed = 7;
  stopped.stop = {engine_.converse().complete("once upon", tokens(40)).text.substr(12, 2)};
  probable.logprobs = 2;
  const std::pair<Prompt, AnswerOptions> asked[] = {{chat("hello"), tokens(20)},
                                                    {chat("something else"), sampled},
                                                    {{.text = "once upon"}, stopped},
                                                    {{.text = "abcabcabc"}, tokens(30)},
                                                    {chat("hello"), probable}};
  for (const Drafts& drafts : {Drafts{.draft = "none"}, Drafts{.draft = "ngram", .nodes = 8},
                               Drafts{.draft = "eagle3", .heads = {kTinyEagle3}}, Drafts{}}) {
    Requests requests = engine_.requests({.parallel = 3, .drafts = drafts});
    endings_.clear();
    std::vector<std::string> streamed(std::size(asked));
    std::vector<RequestId> ids;
    for (const auto& [prompt, options] : asked) {
      AnswerOptions listening = options;
      listening.on_text = [&text = streamed[ids.size()]](std::string_view part) { text += part; };
      ids.push_back(requests.submit(prompt, listening, heard()));
    }
    EXPECT_TRUE(endings_.empty()) << "steps answer";
    requests.run();
    EXPECT_FALSE(requests.step());
    ASSERT_EQ(endings_.size(), ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto& [prompt, options] = asked[i];
      Conversation alone = engine_.converse({.drafts = {.draft = "none"}});
      const Reply expected = prompt.messages.empty() ? alone.complete(prompt.text, options)
                                                     : alone.ask(prompt.messages[0].content, options);
      const Reply& reply = ending(ids[i]).reply;
      EXPECT_EQ(ending(ids[i]).error, "");
      EXPECT_EQ(reply.tokens, expected.tokens) << drafts.draft << " " << i;
      EXPECT_EQ(reply.text, expected.text) << drafts.draft << " " << i;
      EXPECT_EQ(reply.end, expected.end) << drafts.draft << " " << i;
      EXPECT_EQ(reply.logprobs.size(), expected.logprobs.size());
      EXPECT_EQ(streamed[i], reply.text) << drafts.draft << " " << i;
    }
  }
}

TEST_F(PublicRequests, AChatHasItsEarlierTurns) {
  Conversation conversation = engine_.converse({.system = "be brief"});
  conversation.ask("hello", tokens(8));
  std::vector<Message> messages = conversation.history();
  messages.push_back({"user", "again"});
  Requests requests = plain(1);
  const RequestId id = requests.submit({.messages = messages}, tokens(8), heard());
  requests.run();
  EXPECT_EQ(ending(id).reply.text, conversation.ask("again", tokens(8)).text);
}

TEST_F(PublicRequests, CancellingEndsOneAndLeavesTheOthers) {
  Requests requests = plain(2);
  const RequestId kept = requests.submit(chat("hello"), tokens(20), heard());
  const RequestId running = requests.submit(chat("and now"), tokens(100), heard());
  const RequestId waiting = requests.submit(chat("later"), tokens(20), heard());
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(requests.step());
  requests.cancel(running);
  requests.cancel(waiting);
  requests.step();
  ASSERT_EQ(endings_.size(), 2u);
  EXPECT_EQ(ending(running).reply.end, End::cancelled);
  EXPECT_EQ(ending(running).error, "");
  EXPECT_LT(ending(running).reply.tokens.size(), 100u);
  EXPECT_TRUE(engine_.converse()
                  .ask("and now", tokens(100))
                  .text.starts_with(ending(running).reply.text.substr(0, ending(running).reply.text.find("\uFFFD"))));
  EXPECT_EQ(ending(waiting).reply.end, End::cancelled);
  EXPECT_EQ(ending(waiting).reply.text, "");
  requests.cancel(running);
  requests.run();
  EXPECT_EQ(endings_.size(), 3u);
  EXPECT_EQ(ending(kept).reply.text, engine_.converse().ask("hello", tokens(20)).text);
}

TEST_F(PublicRequests, WrongOptionsAreErrorsOfTheCallAndJoinNothing) {
  Requests requests = plain(2);
  const auto submitting = [&](const Prompt& prompt, const AnswerOptions& options = {}) {
    return message_of<InputError>([&] { requests.submit(prompt, options, heard()); });
  };
  EXPECT_THAT(submitting(chat("hello"), {.temperature = -1}), HasSubstr("temperature"));
  EXPECT_EQ(submitting(chat("hello"), {.logprobs = 1001}), "--logprobs: expected 0 to 1000, got 1001");
  EXPECT_THAT(submitting(chat(std::string(5000, 'x'))), HasSubstr("context"));
  EXPECT_THAT(submitting({.text = std::string(5000, 'x')}), HasSubstr("256"));
  EXPECT_EQ(submitting({.messages = {{"user", "hello"}}, .text = "hello"}),
            "prompt: expected messages or a text, got both");
  EXPECT_FALSE(requests.step());
  EXPECT_TRUE(endings_.empty());
  const auto opening = [&](const RequestsOptions& options) {
    return message_of<InputError>([&] { engine_.requests(options); });
  };
  EXPECT_EQ(opening({.parallel = 0}), "parallel: expected 1 to 256, got 0");
  EXPECT_EQ(opening({.drafts = {.draft = "oracle"}}), "draft: oracle needs the answers beforehand");
  EXPECT_THAT(opening({.drafts = {.draft = "guess"}}), StartsWith("--draft: expected none"));
}

TEST_F(PublicRequests, ACallbackThatThrowsEndsItsOwnAnswer) {
  Requests requests = plain(3);
  AnswerOptions throwing = tokens(20), silent = tokens(20);
  throwing.on_text = [](std::string_view) { throw std::runtime_error("the disk is full"); };
  silent.cancelled = []() -> bool { throw 1; };
  const RequestId failing = requests.submit(chat("hello"), throwing, heard());
  const RequestId nameless = requests.submit(chat("hello"), silent, heard());
  const RequestId other = requests.submit(chat("hello"), tokens(20), heard());
  requests.run();
  ASSERT_EQ(endings_.size(), 3u);
  EXPECT_EQ(ending(failing).error, "the disk is full");
  EXPECT_LT(ending(failing).reply.tokens.size(), 20u);
  EXPECT_NE(ending(nameless).error, "");
  EXPECT_EQ(ending(other).error, "");
  EXPECT_EQ(ending(other).reply.text, engine_.converse().ask("hello", tokens(20)).text);
}

TEST_F(PublicRequests, WhatOnEndThrowsLeavesItsStepAndTheOthersGoOn) {
  Requests requests = plain(2);
  requests.submit(chat("hello"), tokens(4), [](const Ending&) { throw std::runtime_error("the disk is full"); });
  const RequestId other = requests.submit(chat("hello"), tokens(20), heard());
  EXPECT_EQ(message_of<std::runtime_error>([&] { requests.run(); }), "the disk is full");
  EXPECT_TRUE(endings_.empty());
  requests.run();
  EXPECT_EQ(ending(other).reply.text, engine_.converse().ask("hello", tokens(20)).text);
}

TEST_F(PublicRequests, CallbacksSubmitAndCancelButDoNotStep) {
  Requests requests = plain(2);
  const RequestId endless = requests.submit(chat("something else"), tokens(200), heard());
  AnswerOptions options = tokens(8);
  bool joined = false;
  options.on_text = [&](std::string_view) {
    if (!std::exchange(joined, true)) requests.submit({.text = "from on_text"}, tokens(4), heard());
  };
  requests.submit(chat("hello"), options, [&](const Ending&) {
    requests.submit(chat("hello"), tokens(12), heard());
    requests.cancel(endless);
  });
  requests.run();
  ASSERT_EQ(endings_.size(), 3u);
  EXPECT_EQ(ending(endless).reply.end, End::cancelled);
  EXPECT_EQ(ending(2).reply.text, engine_.converse().complete("from on_text", tokens(4)).text);
  EXPECT_EQ(ending(3).reply.text, engine_.converse().ask("hello", tokens(12)).text);

  options.on_text = [&](std::string_view) { requests.step(); };
  const RequestId stepping = requests.submit(chat("hello"), options, heard());
  requests.run();
  EXPECT_THAT(ending(stepping).error, HasSubstr("called from its own callback"));
}

TEST_F(PublicRequests, TheyTakeTurnsWithConversationsOutliveTheirEngineAndMayBeDropped) {
  std::optional<Engine> engine = Engine::open(kTinyModel, {.threads = 1, .context = 64});
  Requests requests = engine->requests({.parallel = 2, .drafts = {.draft = "none"}});
  const RequestId id = requests.submit(chat("hello"), tokens(16), heard());
  Conversation conversation = engine->converse();
  engine.reset();
  std::string asked;
  std::thread other([&] { asked = conversation.ask("hello", tokens(16)).text; });
  requests.run();
  other.join();
  EXPECT_EQ(ending(id).reply.text, asked);
  {
    Requests taken = std::move(requests);
    taken.submit(chat("hello"), tokens(16), heard());
    taken.step();
  }
  EXPECT_EQ(endings_.size(), 1u);
  EXPECT_THROW(requests.step(), std::logic_error);
}

}  // namespace
}  // namespace espalier
