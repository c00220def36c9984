#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "cli/serve_flags.h"
#include "cli/shutdown_signals.h"

namespace espalier {
namespace {

// What the engine thread has said so far, for the main thread to hear.
class ServerNews {
 public:
  explicit ServerNews(ShutdownSignals& signals) : signals_(signals) {}

  ServerEvents events() {
    return {.on_ready = [this] { tell([this] { ready_ = true; }); },
            .on_failed = [this](std::exception_ptr failure) { tell([&] { failure_ = failure; }); },
            .on_ended = [this] { tell([this] { ended_ = true; }); }};
  }

  bool take_ready() {
    const std::lock_guard lock(mutex_);
    return std::exchange(ready_, false);
  }
  std::exception_ptr failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  template <typename Change>
  void tell(const Change& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    signals_.wake();
  }

  ShutdownSignals& signals_;
  mutable std::mutex mutex_;
  bool ready_ = false, ended_ = false;
  std::exception_ptr failure_;
};

// Nothing waits for anybody: not for an answer, nor for a model that is being read.
[[noreturn]] void end_server_at_once(int code) {
  std::_Exit(code);
}

int run_serve(const ServeFlags& flags) {
  const ServerOptions options = server_options(flags, process_environment);
  Screen screen(flags.engine.verbose);
  ShutdownSignals signals;
  ServerNews news(signals);
  Server server(options, screen, news.events());
  bool loaded = false, draining = false;
  while (!news.ended()) {
    if (signals.wait() == ShutdownSignals::Heard::signal) {
      if (!loaded) {
        screen.remark("ended before the model was loaded");
        end_server_at_once(0);
      }
      if (std::exchange(draining, true)) end_server_at_once(1);
      server.drain(std::chrono::milliseconds(std::llround(flags.drain_seconds * 1e3)));
    } else if (news.take_ready()) {
      loaded = true;
      screen.remark(server.start_line());
    }
  }
  // The last answers may be long in leaving; whoever has no time says so once more.
  std::atomic<bool> finished = false;
  bool well = false;
  std::thread finishing([&] {
    well = server.finish();
    finished = true;
    signals.wake();
  });
  while (!finished)
    if (signals.wait() == ShutdownSignals::Heard::signal) end_server_at_once(1);
  finishing.join();
  if (const std::exception_ptr failure = news.failure()) std::rethrow_exception(failure);
  return well ? 0 : 1;
}

}  // namespace

Command add_serve(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "answer requests over HTTP, as OpenAI's API (docs/serving.md)");
  auto flags = std::make_shared<ServeFlags>();
  add_serve_flags(*command, *flags);
  return [flags] { return run_serve(*flags); };
}

}  // namespace espalier
