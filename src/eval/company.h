// Conversations that are answered in company. Each has a thread of its own and asks as if it were alone; one thread
// runs at a time, so nothing that conversations share needs a lock. When all of them wait for answers, the thread that
// called run() steps their batch: whoever is answered goes on before the next step, and joins it again.
//
// There are two batches, with speculation and without. While one of them has answers in the making, those who ask the
// other wait, and their clocks with them: neither is timed with the other's steps, and both have the same company.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "decode/batch.h"

namespace espalier {

class Company {
 public:
  // Batches of options.parallel answers. The model must outlive this. `plain`: there is a batch without speculation
  // too.
  Company(const Transformer& model, const DecoderOptions& options, const Speculation& speculation, bool plain);
  ~Company();
  Company(const Company&) = delete;
  Company& operator=(const Company&) = delete;

  Batch& decoder() { return decoder_; }
  Batch& plain() { return plain_.value(); }
  // What a conversation gives its requests, so that it finds nothing that another one has computed.
  std::string next_salt() { return std::to_string(++salts_); }

  // Calls conversation(0) to conversation(count - 1), each on its thread, and returns when all have returned. Throws
  // what the first that threw did; the others are not told.
  void run(int count, const std::function<void(int)>& conversation);
  // For a conversation: the answer to the request, in one of the two batches. Throws what failed in it.
  GenerateResult generate(Batch& batch, const GenerateRequest& request);

  // In which answers without speculation were in the making.
  double plain_seconds() const { return plain_seconds_; }

 private:
  struct Asked;  // a request whose conversation waits

  void converse(int number, const std::function<void(int)>& conversation);
  void submit_asked();
  void submit(const std::shared_ptr<Asked>& asked);
  void step();
  void end(Asked& asked, std::exception_ptr failure);

  Batch decoder_;
  std::optional<Batch> plain_;
  int salts_ = 0;
  double plain_seconds_ = 0;

  std::mutex mutex_;  // whoever holds it is the one thread that runs
  std::condition_variable all_wait_;
  int here_ = 0;                                // conversations that have not returned
  int awake_ = 0;                               // of them, those that do not wait for an answer
  std::deque<std::shared_ptr<Asked>> asked_;    // not submitted yet, in the order in which they came
  std::deque<std::shared_ptr<Asked>> running_;  // submitted to `batch_`
  Batch* batch_ = nullptr;
  std::exception_ptr failure_;  // the first that a conversation ended with
  std::exception_ptr broken_;   // a batch that cannot go on: nobody is answered any more
};

}  // namespace espalier
