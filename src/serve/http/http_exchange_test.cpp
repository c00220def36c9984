#include "serve/http/http_exchange.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "serve/http/http_reply.h"

namespace espalier {
namespace {

struct CountedExchange {
  int wakes = 0;
  std::shared_ptr<HttpExchange> exchange = std::make_shared<HttpExchange>(100, [this] { ++wakes; });
};

TEST(HttpExchange, CarriesAWholeAnswer) {
  CountedExchange counted;
  HttpReply reply(counted.exchange);
  EXPECT_FALSE(counted.exchange->complete());
  EXPECT_TRUE(reply.send({.status = 404, .body = "x"}));
  EXPECT_TRUE(counted.exchange->complete());
  EXPECT_EQ(counted.wakes, 1);
  const HttpExchange::Step step = counted.exchange->take();
  ASSERT_TRUE(step.whole);
  EXPECT_EQ(step.whole->status, 404);
  EXPECT_TRUE(step.last);
}

TEST(HttpExchange, JoinsWhatWasWrittenSinceTheLastTake) {
  CountedExchange counted;
  HttpReply reply(counted.exchange);
  EXPECT_TRUE(reply.begin_events({{"A", "b"}}));
  EXPECT_TRUE(reply.write("one"));
  EXPECT_TRUE(reply.write("two"));
  EXPECT_EQ(counted.wakes, 1);
  EXPECT_EQ(reply.waiting_bytes(), 6u);
  HttpExchange::Step step = counted.exchange->take();
  EXPECT_TRUE(step.begun);
  EXPECT_EQ(step.bytes, "onetwo");
  EXPECT_FALSE(step.last);
  EXPECT_EQ(reply.waiting_bytes(), 6u);
  counted.exchange->set_in_flight(2);
  EXPECT_EQ(reply.waiting_bytes(), 2u);
  EXPECT_TRUE(reply.write("three"));
  EXPECT_EQ(reply.waiting_bytes(), 7u);
  EXPECT_TRUE(reply.finish());
  EXPECT_EQ(counted.wakes, 2);
  step = counted.exchange->take();
  EXPECT_FALSE(step.begun);
  EXPECT_EQ(step.bytes, "three");
  EXPECT_TRUE(step.last);
}

TEST(HttpExchange, TellsOnceThatTheClientIsGone) {
  CountedExchange counted;
  HttpReply reply(counted.exchange);
  int told = 0;
  reply.on_gone([&] { ++told; });
  counted.exchange->client_left();
  counted.exchange->client_left();
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(reply.gone());
  EXPECT_FALSE(reply.send({}));
  EXPECT_FALSE(reply.write("no matter in which phase"));
  reply.on_gone([&] { told += 10; });
  EXPECT_EQ(told, 11);
}

TEST(HttpExchange, DoesNotTellWhoHasSaidEverything) {
  CountedExchange counted;
  HttpReply reply(counted.exchange);
  int told = 0;
  reply.on_gone([&] { ++told; });
  reply.send({});
  counted.exchange->client_left();
  reply.on_gone([&] { ++told; });
  EXPECT_EQ(told, 0);
}

TEST(HttpExchange, LetsGoOfTheCallbackWhenTheAnswerIsComplete) {
  CountedExchange counted;
  auto reply = std::make_shared<HttpReply>(counted.exchange);
  const std::weak_ptr<HttpReply> watched = reply;
  reply->on_gone([reply] {});
  reply->begin_events();
  reply->finish();
  reply.reset();
  EXPECT_TRUE(watched.expired());
}

TEST(HttpExchange, AClientThatTakesNothingOverflows) {
  CountedExchange counted;
  HttpReply reply(counted.exchange);
  int told = 0;
  reply.on_gone([&] { ++told; });
  reply.begin_events();
  EXPECT_TRUE(reply.write(std::string(1000, 'x')));  // nothing waited
  counted.exchange->take();
  counted.exchange->set_in_flight(40);
  EXPECT_TRUE(reply.write(std::string(59, 'x')));
  EXPECT_TRUE(reply.write("x"));
  EXPECT_FALSE(counted.exchange->overflowed());
  const int wakes = counted.wakes;
  EXPECT_FALSE(reply.write("x"));
  EXPECT_EQ(counted.wakes, wakes + 1);
  EXPECT_TRUE(counted.exchange->overflowed());
  EXPECT_TRUE(reply.gone());
  EXPECT_FALSE(reply.finish());
  EXPECT_EQ(told, 0);
  counted.exchange->client_left();
  EXPECT_EQ(told, 1);
}

TEST(HttpExchange, AReplyThatIsDroppedIsAbandoned) {
  CountedExchange counted;
  { const HttpReply reply(counted.exchange); }
  EXPECT_TRUE(counted.exchange->take().abandoned);
  CountedExchange finished;
  { HttpReply(finished.exchange).send({}); }
  EXPECT_FALSE(finished.exchange->take().abandoned);
}

TEST(HttpExchange, OutOfOrderIsOurMistake) {
  CountedExchange counted;
  HttpReply reply(counted.exchange);
  EXPECT_THROW(reply.write("x"), std::logic_error);
  EXPECT_THROW(reply.finish(), std::logic_error);
  EXPECT_THROW(reply.send({.headers = {{"A", "b\n"}}}), std::logic_error);
  reply.begin_events();
  EXPECT_THROW(reply.begin_events(), std::logic_error);
  EXPECT_THROW(reply.send({}), std::logic_error);
  reply.finish();
  EXPECT_THROW(reply.finish(), std::logic_error);
  EXPECT_THROW(reply.write("x"), std::logic_error);
}

TEST(HttpExchange, WakesNobodyWhenTheConnectionIsDone) {
  CountedExchange counted;
  HttpReply reply(counted.exchange);
  counted.exchange->detach();
  reply.send({});
  EXPECT_EQ(counted.wakes, 0);
}

TEST(HttpExchange, ACallbackThatThrowsConcernsNobody) {
  CountedExchange counted;
  HttpReply reply(counted.exchange);
  reply.on_gone([] { throw std::runtime_error("x"); });
  EXPECT_NO_THROW(counted.exchange->client_left());
}

// As when there is no memory for telling the connection.
struct DeafExchange {
  bool deaf = true;
  int wakes = 0;
  std::shared_ptr<HttpExchange> exchange = std::make_shared<HttpExchange>(100, [this] {
    if (deaf) throw std::bad_alloc();
    ++wakes;
  });
};

TEST(HttpExchange, WhatCouldNotBeToldHasNotHappenedAndMayBeTriedAgain) {
  DeafExchange told;
  HttpReply reply(told.exchange);
  EXPECT_THROW(reply.begin_events(), std::bad_alloc);
  EXPECT_FALSE(told.exchange->take().begun);
  told.deaf = false;
  EXPECT_TRUE(reply.begin_events());
  told.exchange->take();
  told.deaf = true;
  EXPECT_THROW(reply.write("x"), std::bad_alloc);
  EXPECT_THROW(reply.finish(), std::bad_alloc);
  told.deaf = false;
  EXPECT_TRUE(reply.finish());
  const HttpExchange::Step step = told.exchange->take();
  EXPECT_EQ(step.bytes, "");
  EXPECT_TRUE(step.last);
  EXPECT_EQ(told.wakes, 2);
}

TEST(HttpExchange, AnAnswerThatCouldNotBeSentMayStillBeAnError) {
  DeafExchange told;
  HttpReply reply(told.exchange);
  EXPECT_THROW(reply.send({.status = 200}), std::bad_alloc);
  told.deaf = false;
  EXPECT_TRUE(reply.send({.status = 500}));
  EXPECT_EQ(told.exchange->take().whole->status, 500);
}

TEST(HttpExchange, AReplyIsAbandonedAlsoWhereThatCannotBeTold) {
  DeafExchange told;
  { const HttpReply reply(told.exchange); }
  EXPECT_TRUE(told.exchange->take().abandoned) << "whoever looks finds it";
}

TEST(HttpExchange, BehindAPieceLongerThanTheOutboxThereIsRoomForAnOutboxMore) {
  CountedExchange counted;
  HttpReply reply(counted.exchange);
  reply.begin_events();
  counted.exchange->take();
  EXPECT_TRUE(reply.write(std::string(1000, 'x')));
  EXPECT_TRUE(reply.write(std::string(60, 'y'))) << "nobody had the time to take the first";
  counted.exchange->take();
  counted.exchange->set_in_flight(900);
  EXPECT_TRUE(reply.write(std::string(60, 'z'))) << "nor all of it";
  EXPECT_FALSE(reply.write(std::string(200, 'z')));
  EXPECT_TRUE(counted.exchange->overflowed());
}

TEST(HttpExchange, TakesFromSeveralThreads) {
  const auto exchange = std::make_shared<HttpExchange>(std::size_t{1} << 20, [] {});
  HttpReply reply(exchange);
  reply.begin_events();
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i)
    writers.emplace_back([&reply, i] {
      for (int k = 0; k < 500; ++k) reply.write(std::string(3, static_cast<char>('a' + i)));
    });
  std::string bytes;
  while (bytes.size() < 4 * 500 * 3) bytes += exchange->take().bytes;
  for (std::thread& writer : writers) writer.join();
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    ASSERT_EQ(bytes[i], bytes[i + 1]);
    ASSERT_EQ(bytes[i], bytes[i + 2]);
  }
}

}  // namespace
}  // namespace espalier
