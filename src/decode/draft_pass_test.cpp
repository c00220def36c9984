#include "decode/draft_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using PartFields = std::tuple<std::size_t, std::int64_t, std::int64_t>;

// `count` rows of a job, told apart by their tokens. The last `logits` of them want logits.
std::vector<Row> job_rows(std::int32_t first_token, std::int32_t count, std::int32_t logits) {
  std::vector<Row> rows;
  for (std::int32_t i = 0; i < count; ++i)
    rows.push_back({.token = first_token + i, .wants_logits = i >= count - logits});
  return rows;
}

// What a pass asked its steps for.
struct StepLog {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::vector<PartFields>> parts;

  // A guess for each row that wants one: ten times its token.
  Guesses operator()(std::span<const Row> rows, std::span<const DraftPart> of_jobs) {
    tokens.emplace_back();
    parts.emplace_back();
    Guesses lists;
    for (const Row& row : rows) {
      tokens.back().push_back(row.token);
      if (row.wants_logits) lists.push_back({{.token = 10 * row.token}});
    }
    for (const DraftPart& part : of_jobs) parts.back().emplace_back(part.job, part.begin, part.end);
    return lists;
  }
};

Guesses run_logged(const DraftPass& pass, std::int64_t step_rows, StepLog& log) {
  return pass.run(step_rows,
                  [&](std::span<const Row> rows, std::span<const DraftPart> parts) { return log(rows, parts); });
}

std::vector<std::int32_t> first_tokens(const Guesses& lists) {
  std::vector<std::int32_t> tokens;
  for (const auto& list : lists) tokens.push_back(list.at(0).token);
  return tokens;
}

TEST(DraftPass, WhatFitsIsOneStep) {
  DraftPass pass;
  pass.add(job_rows(10, 2, 1));
  pass.add(job_rows(20, 3, 3));
  for (std::int64_t step_rows : {5, 64}) {
    StepLog log;
    EXPECT_THAT(first_tokens(run_logged(pass, step_rows, log)), ElementsAre(110, 200, 210, 220));
    EXPECT_THAT(log.tokens, ElementsAre(ElementsAre(10, 11, 20, 21, 22)));
    EXPECT_THAT(log.parts, ElementsAre(ElementsAre(PartFields(0, 0, 2), PartFields(1, 0, 3))));
  }
}

TEST(DraftPass, MoreRowsAreSplitIntoFullStepsThatAreToldWhoseTheyAre) {
  DraftPass pass;
  pass.add(job_rows(10, 3, 1));
  pass.add(job_rows(20, 7, 2));
  pass.add(job_rows(30, 1, 1));
  StepLog log;
  EXPECT_THAT(first_tokens(run_logged(pass, 4, log)), ElementsAre(120, 250, 260, 300)) << "in the order of the jobs";
  EXPECT_THAT(log.tokens,
              ElementsAre(ElementsAre(10, 11, 12, 20), ElementsAre(21, 22, 23, 24), ElementsAre(25, 26, 30)));
  EXPECT_THAT(log.parts, ElementsAre(ElementsAre(PartFields(0, 0, 3), PartFields(1, 0, 1)),  //
                                     ElementsAre(PartFields(1, 1, 5)),                       //
                                     ElementsAre(PartFields(1, 5, 7), PartFields(2, 0, 1))));
}

TEST(DraftPass, TheGuessesDoNotDependOnTheSizeOfAStep) {
  DraftPass pass;
  for (std::int32_t job = 1; job <= 6; ++job) pass.add(job_rows(100 * job, job * job % 7, job % 3));
  StepLog whole;
  const auto expected = first_tokens(run_logged(pass, 1000, whole));
  for (std::int64_t step_rows = 1; step_rows < 30; ++step_rows) {
    SCOPED_TRACE(step_rows);
    StepLog log;
    EXPECT_EQ(first_tokens(run_logged(pass, step_rows, log)), expected);
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < log.tokens.size(); ++i) {
      EXPECT_LE(std::ssize(log.tokens[i]), step_rows);
      tokens.insert(tokens.end(), log.tokens[i].begin(), log.tokens[i].end());
      std::vector<std::int32_t> told;
      for (const auto& [job, begin, end] : log.parts[i])
        for (std::int64_t row = begin; row < end; ++row)
          told.push_back(100 * static_cast<std::int32_t>(job + 1) + static_cast<std::int32_t>(row));
      EXPECT_EQ(log.tokens[i], told);
    }
    EXPECT_EQ(tokens, whole.tokens.at(0)) << "each row once";
  }
}

TEST(DraftPass, JobsWithoutRowsHaveNoPartAndKeepTheirNumber) {
  DraftPass pass;
  pass.add({});
  pass.add(job_rows(10, 2, 1));
  pass.add({});
  pass.add(job_rows(20, 1, 1));
  StepLog log;
  EXPECT_THAT(first_tokens(run_logged(pass, 2, log)), ElementsAre(110, 200));
  EXPECT_THAT(log.parts, ElementsAre(ElementsAre(PartFields(1, 0, 2)), ElementsAre(PartFields(3, 0, 1))));
}

TEST(DraftPass, WithoutRowsThereIsNoStep) {
  DraftPass pass;
  StepLog log;
  EXPECT_THAT(run_logged(pass, 4, log), IsEmpty());
  pass.add({});
  EXPECT_THAT(run_logged(pass, 4, log), IsEmpty());
  EXPECT_THAT(log.tokens, IsEmpty());
}

// Jobs with so many nodes.
std::vector<DraftJob> jobs_of(std::span<const int> nodes, std::initializer_list<std::size_t> counts) {
  std::vector<DraftJob> jobs;
  for (std::size_t count : counts) jobs.push_back({.nodes = nodes.first(count)});
  return jobs;
}

Guesses numbered_lists(std::int32_t count) {
  Guesses lists;
  for (std::int32_t i = 0; i < count; ++i) lists.push_back({{.token = i}});
  return lists;
}

TEST(GuessesByJob, HandsTheListsBackToTheNodesOfEachJob) {
  const std::vector<int> nodes = {1, 2, 3};
  const auto all = guesses_by_job(jobs_of(nodes, {2, 1, 3}), {true, true, true}, numbered_lists(6));
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_THAT(first_tokens(all[0]), ElementsAre(0, 1));
  EXPECT_THAT(first_tokens(all[1]), ElementsAre(2));
  EXPECT_THAT(first_tokens(all[2]), ElementsAre(3, 4, 5));
}

TEST(GuessesByJob, AJobWithoutRowsHasAnEmptyListForEachNode) {
  const std::vector<int> nodes = {1, 2, 3};
  const auto all = guesses_by_job(jobs_of(nodes, {2, 3, 1}), {false, true, false}, numbered_lists(3));
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_THAT(all[0], ElementsAre(IsEmpty(), IsEmpty()));
  EXPECT_THAT(first_tokens(all[1]), ElementsAre(0, 1, 2));
  EXPECT_THAT(all[2], ElementsAre(IsEmpty()));
  EXPECT_THAT(guesses_by_job({}, {}, {}), IsEmpty());
}

TEST(GuessesByJob, RefusesTooFewListsAndTooMany) {
  const std::vector<int> nodes = {1, 2, 3};
  const std::vector<DraftJob> jobs = jobs_of(nodes, {2, 1, 3});
  EXPECT_NO_THROW(guesses_by_job(jobs, {true, false, true}, numbered_lists(5)));
  for (std::int32_t lists : {0, 1, 4, 6, 9})
    EXPECT_THROW(guesses_by_job(jobs, {true, false, true}, numbered_lists(lists)), std::logic_error) << lists;
  EXPECT_THROW(guesses_by_job(jobs, {false, false, false}, numbered_lists(1)), std::logic_error);
}

}  // namespace
}  // namespace espalier
