#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

constexpr int kBetweenQuestions = 100;               // milliseconds between two questions whether to go on
constexpr auto kPatience = std::chrono::seconds(2);  // with a child that was asked to end
constexpr auto kBetweenLooks = std::chrono::milliseconds(10);

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

// Both ends, closed in whatever is executed.
struct Pipe {
  Pipe() : Pipe(make()) {}
  FileHandle read_end, write_end;

 private:
  static std::pair<int, int> make() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) device_error("pipe2: {}", std::strerror(errno));
    return {ends[0], ends[1]};
  }
  explicit Pipe(std::pair<int, int> ends) : read_end(ends.first), write_end(ends.second) {}
};

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

// What the child does before it is another program; only what may be called behind a fork. Returns where that failed.
void become(char* const* words, char* const* environment, int input, int output, int errors, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // it is gone already
  std::signal(SIGPIPE, SIG_DFL);      // what this program ignores, others expect to die of
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(input, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 && dup2(errors, STDERR_FILENO) >= 0)
    execve(words[0], words, environment);
}

// Where the program cannot be executed, result.problem says why and there is no child.
pid_t start(const ChildCommand& command, int output, int errors, std::string& problem) {
  const std::vector<char*> words = pointers(command.words), own = pointers(command.environment);
  char* const* const environment = command.environment.empty() ? environ : own.data();
  const FileHandle input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe failure;
  const pid_t parent = getpid(), child = fork();
  if (child < 0) device_error("fork: {}", std::strerror(errno));
  if (child == 0) {
    become(words.data(), environment, input.get(), output, errors, parent);
    const int reason = errno;
    [[maybe_unused]] const auto written = ::write(failure.write_end.get(), &reason, sizeof reason);
    _exit(127);
  }
  failure.write_end.close();
  int reason = 0;
  ssize_t count = 0;
  while ((count = ::read(failure.read_end.get(), &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  if (count == static_cast<ssize_t>(sizeof reason)) problem = std::strerror(reason);
  return child;
}

// False when it was cancelled.
bool read_all(int descriptor, const ChildCommand& command, std::string& text) {
  char buffer[4096];
  pollfd wait{descriptor, POLLIN, 0};
  while (!command.cancelled || !command.cancelled()) {
    const int ready = ::poll(&wait, 1, kBetweenQuestions);
    if (ready < 0 && errno != EINTR) device_error("poll: {}", std::strerror(errno));
    if (ready <= 0) continue;
    const ssize_t count = ::read(descriptor, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    const std::string_view piece(buffer, static_cast<std::size_t>(count));
    text += piece;
    if (command.on_output) command.on_output(piece);
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

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

int end(pid_t child) {
  kill(child, SIGTERM);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (int status = 0; std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(kBetweenLooks))
    if (waitpid(child, &status, WNOHANG) == child) return status;
  kill(child, SIGKILL);
  return wait_for(child);
}

}  // namespace

ChildResult run_child(const ChildCommand& command) {
  check(!command.words.empty(), "run_child: no program");
  Pipe output;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> errors(std::tmpfile(), std::fclose);
  if (errors == nullptr) device_error("tmpfile: {}", std::strerror(errno));
  ChildResult result;
  const pid_t child = start(command, output.write_end.get(), fileno(errors.get()), result.problem);
  output.write_end.close();
  result.cancelled = !read_all(output.read_end.get(), command, result.output);
  result.status = result.cancelled ? end(child) : wait_for(child);
  result.complaint = last_line(errors.get());
  return result;
}

std::string end_of_child(const ChildResult& result) {
  if (!result.problem.empty()) return "cannot start: " + result.problem;
  if (WIFSIGNALED(result.status))
    return fmt::format("ended by signal {} ({})", WTERMSIG(result.status), strsignal(WTERMSIG(result.status)));
  const std::string code = fmt::format("exit code {}", WEXITSTATUS(result.status));
  return result.complaint.empty() ? code : code + ": " + result.complaint;
}

}  // namespace espalier
