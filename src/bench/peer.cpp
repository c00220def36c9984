#include "bench/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/figures.h"

namespace espalier {
namespace {

constexpr int kRepeatsPerRun = 3;
constexpr int kBetweenQuestions = 100;  // milliseconds between two questions whether to go on

class FileHandle {
 public:
  explicit FileHandle(int descriptor) : descriptor_(descriptor) {}
  ~FileHandle() { close(); }
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;

  int get() const { return descriptor_; }
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

 private:
  int descriptor_;
};

struct ProgramResult {
  int status = 0;  // as waitpid says
  std::string output = {};
  std::string complaint = {};  // the last line of its standard error
  bool interrupted = false;
};

struct SpawnActions {
  SpawnActions() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnActions() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

pid_t start(const std::vector<std::string>& command, int output, int errors) {
  SpawnActions actions;
  posix_spawn_file_actions_addopen(&actions.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions.files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions.files, errors, STDERR_FILENO);
  // What this program ignores, others expect to die of.
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&actions.attributes, &defaults);
  posix_spawnattr_setflags(&actions.attributes, POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int problem = posix_spawn(&child, arguments[0], &actions.files, &actions.attributes, arguments.data(), environ);
  if (problem != 0) input_error("--against {}: cannot start: {}", command[0], std::strerror(problem));
  return child;
}

// Everything the program prints; false when it was cancelled, which is asked several times a second.
bool read_all(int descriptor, const std::function<bool()>& cancelled, std::string& text) {
  char buffer[4096];
  pollfd wait{descriptor, POLLIN, 0};
  while (!cancelled()) {
    const int ready = ::poll(&wait, 1, kBetweenQuestions);
    if (ready < 0 && errno != EINTR) device_error("poll: {}", std::strerror(errno));
    if (ready <= 0) continue;
    const ssize_t count = ::read(descriptor, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text.append(buffer, static_cast<std::size_t>(count));
  }
  return false;
}

std::string last_line(std::FILE* file) {
  std::rewind(file);
  std::string line, last;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
    if (c != '\n' && c != '\r') {
      line += static_cast<char>(c);
    } else if (!line.empty()) {
      last = std::exchange(line, {});
    }
  }
  return line.empty() ? last : line;
}

ProgramResult run_program(const std::vector<std::string>& command, const std::function<bool()>& cancelled) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) device_error("pipe2: {}", std::strerror(errno));
  FileHandle read_end(ends[0]), write_end(ends[1]);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> errors(std::tmpfile(), std::fclose);
  if (errors == nullptr) device_error("tmpfile: {}", std::strerror(errno));
  const pid_t child = start(command, write_end.get(), fileno(errors.get()));
  write_end.close();
  ProgramResult result;
  result.interrupted = !read_all(read_end.get(), cancelled, result.output);
  if (result.interrupted) kill(child, SIGTERM);
  while (waitpid(child, &result.status, 0) < 0 && errno == EINTR) {
  }
  result.complaint = last_line(errors.get());
  return result;
}

std::string describe_failure(const ProgramResult& result) {
  const std::string how = WIFSIGNALED(result.status) ? fmt::format("ended by signal {} ({})", WTERMSIG(result.status),
                                                                   strsignal(WTERMSIG(result.status)))
                                                     : fmt::format("exit code {}", WEXITSTATUS(result.status));
  return WIFSIGNALED(result.status) || result.complaint.empty() ? how : how + ": " + result.complaint;
}

}  // namespace

PeerAnswer read_peer_answer(std::string_view json, const PeerTest& test) {
  const auto parsed = nlohmann::json::parse(json, nullptr, false);
  if (parsed.is_discarded() || !parsed.is_array() || parsed.size() != 1 || !parsed[0].is_object())
    return {.problem = "printed no JSON list with one test"};
  const auto samples = parsed[0].find("samples_ns");
  if (samples == parsed[0].end() || !samples->is_array() || samples->empty())
    return {.problem = "printed no samples_ns"};
  std::vector<double> seconds;
  for (const auto& sample : *samples) {
    if (!sample.is_number() || sample.get<double>() <= 0) return {.problem = "printed a samples_ns that is no time"};
    seconds.push_back(sample.get<double>() * 1e-9 / static_cast<double>(std::max<std::int64_t>(1, test.generated)));
  }
  return {.seconds = spread_of(seconds).median};
}

LlamaBench::LlamaBench(std::string program, PeerOptions options)
    : program_(std::move(program)), options_(std::move(options)) {
  if (!std::filesystem::is_regular_file(program_) || access(program_.c_str(), X_OK) != 0)
    input_error("--against {}: expected the path of a llama-bench program", program_);
}

PeerAnswer LlamaBench::run(const PeerTest& test, const std::function<bool()>& cancelled) const {
  std::vector<std::string> command = {program_,
                                      "-m",
                                      options_.model,
                                      "-t",
                                      std::to_string(options_.threads),
                                      "-p",
                                      std::to_string(test.prompt),
                                      "-n",
                                      std::to_string(test.generated),
                                      "-d",
                                      std::to_string(test.depth),
                                      "-r",
                                      std::to_string(kRepeatsPerRun),
                                      "-o",
                                      "json"};
  if (options_.kv != "f16") command.insert(command.end(), {"-ctk", options_.kv, "-ctv", options_.kv});
  const ProgramResult result = run_program(command, cancelled);
  if (result.interrupted) return {.interrupted = true};
  if (!WIFEXITED(result.status) || WEXITSTATUS(result.status) != 0) return {.problem = describe_failure(result)};
  return read_peer_answer(result.output, test);
}

PeerAnswer LlamaBench::measure(PeerTest test, const std::function<bool()>& cancelled, std::int64_t& depth_used) const {
  depth_used = test.depth;
  const PeerAnswer answer = run(test, cancelled);
  if (answer.seconds || answer.interrupted || test.depth == 0) return answer;
  test.depth = depth_used = 0;
  PeerAnswer shallow = run(test, cancelled);
  if (!shallow.seconds && !shallow.interrupted) shallow.problem = answer.problem;
  return shallow;
}

}  // namespace espalier
