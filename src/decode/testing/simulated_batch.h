// Requests that arrive, run as planned with answers of random lengths, and end: a batch without a model, for tests of
// the scheduler. It knows what is wrong with a plan (plan_fault.h), and when there were too many of them.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "decode/scheduler.h"
#include "decode/testing/simulated_blocks.h"

namespace espalier {

class SimulatedBatch {
 public:
  SimulatedBatch(std::uint32_t seed, std::span<const double> seconds);

  void step();
  bool over() const { return ahead_ == 0 && requests_.empty(); }

  // What was wrong with the last plan; empty: nothing.
  const std::string& fault() const { return fault_; }
  std::int64_t steps() const { return steps_; }
  int preemptions() const { return preemptions_; }
  int most_preemptions() const { return most_preemptions_; }  // of one request
  int parallel() const { return limits_.parallel; }
  std::int64_t taken_by_decoders() const { return taken_by_decoders_; }  // blocks, less those that copies set free

 private:
  struct Request {
    SequenceState state = {};
    std::int64_t prompt = 1, max_tokens = 1, answered = 0;
    int family = 0;  // whose requests begin with the same tokens
    std::vector<int> blocks = {};
    int preemptions = 0;
  };

  int below(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }
  void arrive();

  int stream_of(const Request& request, std::int64_t place) const;
  int found(const Request& request, std::int64_t place) const;
  std::int64_t leader_of(std::size_t index) const;
  const SequenceState& look_at(Request& request);
  void look_up(Request& request);
  void look_at_blocks(Request& request);

  Request& request(std::int64_t id);
  void carry_out(const BatchPlan& plan);
  void preempt(Request& request);
  void pin(Request& request);
  void copy_partial_hit(Request& request);
  void copy_last(Request& request);
  int take();
  void open(Request& request, std::int64_t rows);
  void commit_prompt(Request& request, std::int64_t rows);
  void commit_tokens(Request& request, std::int64_t rows);
  void advance(Request& request, std::int64_t positions);
  void release(Request& request);

  std::mt19937 random_;
  std::span<const double> seconds_;
  SchedulerLimits limits_;
  PoolState pool_;
  SimulatedBlocks blocks_;
  int rows_ = 1;
  int ahead_;     // requests that will still arrive
  int busy_ = 1;  // steps between two arrivals, on the average
  LastKeys last_keys_;
  std::int64_t next_id_ = 0;
  std::vector<Request> requests_;  // by id
  std::vector<SequenceState> states_;
  std::int64_t steps_ = 0, work_ = 0;
  int preemptions_ = 0, most_preemptions_ = 0;
  std::int64_t taken_by_decoders_ = 0;
  std::string fault_;
};

}  // namespace espalier
