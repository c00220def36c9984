// The one thread that owns the batch, its drafters and the device, and what stands before it: a bounded queue. Requests
// come in prepared and are heard of by their listeners; this touches no socket and no JSON.
//
// The thread opens the engine itself, and closes it. Between two steps it takes what has come: new requests,
// cancellations, deadlines, the end. A request that waits is known to the batch, which decides who is next; the queue's
// limit counts all that were not admitted yet. Whatever happens to one request happens to no other: a fault in an
// answer ends its request, a fault of a step those in it. Then everything in the cache is counted, and the device is
// asked whether it still works; where it does not, where the count does not add up, or where one step after the other
// fails, the service is over, and says so.
//
// Thread-safe: every call may come from any thread but the engine's own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "serve/live_request.h"
#include "serve/metrics.h"
#include "serve/service_reading.h"

namespace espalier {

struct ServiceOptions {
  using Duration = std::chrono::milliseconds;

  int queue = 64;                // requests that wait
  int per_key = 0;               // requests of one key at once, waiting ones included; 0: any number
  Duration queue_time{120'000};  // that a request may wait
  Duration request_time{600'000};
  Duration begin_time{1'000};  // after so long in the queue a stream begins all the same
};

// What the engine thread has opened.
class ServedEngine {
 public:
  virtual ~ServedEngine() = default;

  virtual Batch& batch() = 0;
  virtual Device& device() = 0;  // outlives the batch
  virtual const ModelText& text() const = 0;
  virtual int parallel() const = 0;  // answers at once
  // An answer fails: leaves what can be looked at later, and says where in one line. Must not throw.
  virtual std::string keep_failure(const AnswerFailure& failure, const std::string& id) = 0;
};

// All of them are called on the engine thread and may be empty.
struct ServiceEvents {
  std::function<void()> on_ready = {};                     // requests are taken from now on
  std::function<void(std::exception_ptr)> on_failed = {};  // it could not be opened, or can be trusted no more
  std::function<void(std::string_view line)> on_remark = {};
  std::function<void()> on_ended = {};  // the last: the engine is closed
};

class AnswerService {
 public:
  using Ticket = std::uint64_t;
  using Open = std::function<std::unique_ptr<ServedEngine>()>;

  // The thread begins. The metrics must outlive this.
  AnswerService(ServiceOptions options, Open open, Metrics& metrics, ServiceEvents events = {});
  ~AnswerService();  // aborts, and waits for the thread
  AnswerService(const AnswerService&) = delete;
  AnswerService& operator=(const AnswerService&) = delete;

  // Throws ApiError where a request of this key would be turned away now: 503 while loading or draining, when it failed
  // and when the queue is full, 429 when the key has enough.
  void check_room(int key) const;
  // Likewise. Its listener is told everything else.
  Ticket submit(ServiceRequest request);
  // Its answer ends with the step that runs now; the listener hears nothing more. Does nothing where it has ended.
  void cancel(Ticket ticket);

  ServerHealth health() const;
  ServiceReading reading() const;  // as it was after the last step

  // Requests are turned away from now on, those that wait too; running ones have so long to end. Returns at once.
  void drain(ServiceOptions::Duration time);
  // Nobody has any time.
  void abort() { drain(ServiceOptions::Duration(0)); }
  // True: the thread has ended.
  bool wait_until_ended(ServiceOptions::Duration time);
  // No request was cut off by a drain, and nothing failed.
  bool all_well() const { return !cut_off_ && health() != ServerHealth::failed; }

 private:
  using Time = ServiceClock::time_point;
  struct Live;
  struct Arrival {
    Ticket ticket;
    ServiceRequest request;
  };

  void run();
  void open_engine_here();
  void serve();
  bool turn();
  void recover(std::exception_ptr failure);
  void ask_device();
  bool device_is_lost();
  void wait_for_work();
  std::optional<Arrival> next_arrival();
  void cancel_those_who_left();
  void take_in(Ticket ticket, ServiceRequest request);
  void look_at_clock();
  void step();
  void sweep();
  void forget(int key, bool waits);
  void learn_duration(const LiveRequest& request);
  void note_admission(Ticket ticket);
  void refuse_waiting();
  void fail_all(const ApiError& error);
  void give_up(std::exception_ptr failure);
  void publish();
  std::vector<SlotFacts> slots();
  void remark(std::string_view line) const;

  void check_room_locked(int key) const;
  int retry_after_locked() const;

  const ServiceOptions options_;
  const Open open_;
  Metrics& metrics_;
  const ServiceEvents events_;

  // The engine thread's.
  std::unique_ptr<ServedEngine> engine_;
  Tensor pulse_;  // of the engine's device: a number that comes back from it as long as it works
  std::vector<std::unique_ptr<Live>> live_;  // in the order they came
  std::vector<RequestId> slots_;             // -1: idle
  std::vector<Ticket> leaving_;              // taken from cancelled_

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ServerHealth health_ = ServerHealth::loading;
  std::deque<Arrival> arrived_;
  std::vector<Ticket> cancelled_;
  std::optional<Time> drain_end_;
  Ticket next_ticket_ = 1;
  std::int64_t waiting_ = 0;   // requests that were not admitted
  std::map<int, int> by_key_;  // requests of each key
  double mean_seconds_ = 0;    // that a request runs; 0: none has
  int parallel_ = 1;
  ServiceReading reading_;
  bool ended_ = false;

  std::atomic<bool> cut_off_ = false;
  std::thread thread_;  // last: everything else is there when it begins
};

}  // namespace espalier
