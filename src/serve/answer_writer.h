// An answer on its way from the engine thread to its client: what the engine tells is kept in order, and written as
// JSON by the worker threads, one piece after the other. The engine never waits: where a client, or the writing, falls
// too far behind, the request ends.
//
// Shared by the service, which tells it, by the job that writes, and by the connection, which knows when the client has
// gone. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "engine/receipt.h"
#include "serve/answer_listener.h"
#include "serve/answer_service.h"
#include "serve/http/http_reply.h"
#include "serve/protocol/answer_events.h"
#include "serve/protocol/request_plan.h"
#include "serve/worker_pool.h"

namespace espalier {

// What an answer is written with.
struct AnswerSheet {
  AnswerFrame frame = {};
  std::vector<PlannedPrompt> prompts = {};
  std::vector<PlannedChoice> choices = {};
  ReceiptOrigin receipts = {};
  std::shared_ptr<const void> owner = {};  // of the tokenizer: whatever keeps it alive
  const Tokenizer* tokenizer = nullptr;
};

// The whole answer that an error is.
HttpResponse error_response(const ApiError& error, std::vector<HttpHeader> headers = {});

class AnswerWriter final : public AnswerListener, public std::enable_shared_from_this<AnswerWriter> {
 public:
  // The first two must outlive this. outbox_bytes: of a stream, that may wait here to be written.
  AnswerWriter(WorkerPool& pool, Metrics& metrics, AnswerSheet sheet, std::shared_ptr<HttpReply> reply,
               std::size_t outbox_bytes);
  ~AnswerWriter() override;  // an answer whose last word was not told is given up
  AnswerWriter(const AnswerWriter&) = delete;
  AnswerWriter& operator=(const AnswerWriter&) = delete;

  void begun() override;
  void prompt_scored(int choice, std::vector<Logprobs> logprobs) override;
  bool piece(int choice, AnswerPiece piece, const ChoiceFigures& figures) override;
  void ended(int choice, EndedChoice ended) override;
  void failed(const ApiError& error) override;

 private:
  struct Begun {};
  struct Scored {
    int choice;
    std::vector<Logprobs> logprobs;
  };
  struct Piece {
    int choice;
    AnswerPiece piece;
    ChoiceFigures figures;
  };
  struct Ended {
    int choice;
    EndedChoice ended;
  };
  using Event = std::variant<Begun, Scored, Piece, Ended, ApiError>;

  bool push(Event event, std::size_t bytes);
  void write_waiting();
  void write(Event& event);
  int prompt_of(int choice) const;
  bool waits_for_scores(int choice) const;
  void write_event(const Begun& begun);
  void write_event(Scored& scored);
  void write_event(Piece& piece);
  void write_event(Ended& ended);
  void write_event(const ApiError& error);
  AnswerPiece with_echo(int choice, AnswerPiece piece);
  ChoiceAnswer answer_of(Ended& ended);
  std::vector<HttpHeader> headers() const;
  void open_stream();

  WorkerPool& pool_;
  Metrics& metrics_;
  const std::size_t outbox_bytes_;
  const std::shared_ptr<HttpReply> reply_;

  std::mutex mutex_;
  std::vector<Event> waiting_;
  std::size_t waiting_bytes_ = 0;
  bool scheduled_ = false;  // a job writes, or will

  // Of the job that writes.
  AnswerSheet sheet_;
  std::optional<AnswerEvents> stream_;                        // none: one object
  std::vector<std::optional<std::vector<Logprobs>>> scored_;  // of the prompts, as their first choices tell them
  std::vector<Event> held_;                                   // of other choices, which came before these
  std::vector<bool> echoed_;                                  // choices whose prompt was said
  std::vector<ChoiceAnswer> answers_;                         // where there is no stream
  std::size_t open_;                                          // choices that have not ended
  bool streaming_ = false;                                    // the head has left
  bool over_ = false;
};

}  // namespace espalier
