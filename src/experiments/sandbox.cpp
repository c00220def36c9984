#include "experiments/sandbox.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace espalier {
namespace {

constexpr unsigned kNobody = 65534;
constexpr std::size_t kShownOutput = 4096;
constexpr int kFirstOfOurs = 16;  // our descriptors stay clear of those that a program gets
constexpr int kNamespaces = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC;

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() { close(); }
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&&) = delete;

  int get() const { return descriptor_; }
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

 private:
  int descriptor_;
};

File out_of_the_way(int descriptor) {
  const File low(descriptor);
  if (low.get() < 0) device_error("sandbox: cannot open: {}", std::strerror(errno));
  File file(::fcntl(low.get(), F_DUPFD_CLOEXEC, kFirstOfOurs));
  if (file.get() < 0) device_error("sandbox: fcntl: {}", std::strerror(errno));
  return file;
}

// A file without a name that holds `text`.
File memory_file(const char* name, std::string_view text) {
  File file = out_of_the_way(::memfd_create(name, MFD_CLOEXEC));
  while (!text.empty()) {
    const ssize_t count = ::write(file.get(), text.data(), text.size());
    if (count < 0) device_error("sandbox: write: {}", std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

std::string tail_of(const File& file) {
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  std::string text(std::min<std::size_t>(kShownOutput, size < 0 ? 0 : static_cast<std::size_t>(size)), '\0');
  const ssize_t count = ::pread(file.get(), text.data(), text.size(), size - static_cast<off_t>(text.size()));
  text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return text;
}

// Everything that the new processes need, made before they are: between fork and exec in a program with threads only
// system calls are safe.
struct Launch {
  Confinement confinement = Confinement::namespaces;
  SandboxLimits limits = {};
  std::string python = {};
  std::string folder = {};  // unconfined: where it starts
  std::string uid_map = {}, gid_map = {}, tmp_options = {};
  std::vector<std::string> hidden = {};
  int input = -1, output = -1, complaint = -1;
  int channel = -1;  // none
  bool root = false;
};

// Sent to the parent where something fails on the way to exec. Fixed size: no allocation.
struct Complaint {
  int error = 0;
  std::array<char, 32> call = {};
};

[[noreturn]] void give_up(const Launch& launch, const char* call) {
  Complaint complaint;
  complaint.error = errno;
  std::strncpy(complaint.call.data(), call, complaint.call.size() - 1);
  [[maybe_unused]] const ssize_t sent = ::write(launch.complaint, &complaint, sizeof complaint);
  ::_exit(127);
}

void require(const Launch& launch, bool good, const char* call) {
  if (!good) give_up(launch, call);
}

bool write_file(const char* path, const char* text) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const auto size = static_cast<ssize_t>(std::strlen(text));
  const bool good = ::write(file, text, static_cast<std::size_t>(size)) == size;
  ::close(file);
  return good;
}

void limit(const Launch& launch, decltype(RLIMIT_CPU) resource, std::int64_t value) {
  const rlimit both{static_cast<rlim_t>(value), static_cast<rlim_t>(value)};
  require(launch, ::setrlimit(resource, &both) == 0, "setrlimit");
}

void apply_limits(const Launch& launch) {
  const SandboxLimits& limits = launch.limits;
  limit(launch, RLIMIT_CPU, limits.processor_seconds);
  limit(launch, RLIMIT_AS, limits.memory_bytes);
  limit(launch, RLIMIT_FSIZE, limits.file_bytes);
  limit(launch, RLIMIT_NOFILE, limits.open_files);
  limit(launch, RLIMIT_CORE, 0);
  // Unconfined it would count every process of the user, and then nothing could be started at all.
  if (launch.confinement == Confinement::namespaces) limit(launch, RLIMIT_NPROC, limits.processes);
}

void hide(const Launch& launch, const char* folder) {
  if (::access(folder, F_OK) != 0) return;
  require(launch, ::mount("none", folder, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k") == 0, "mount tmpfs");
}

// What the program finds: the machine's files, to be read, and a small /tmp of its own.
void arrange_files(const Launch& launch) {
  require(launch, ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "mount private");
  for (const std::string& file : launch.hidden)
    if (::access(file.c_str(), F_OK) == 0)  // or it is out of reach as it is
      require(launch, ::mount("/dev/null", file.c_str(), nullptr, MS_BIND, nullptr) == 0, "mount hidden");
  for (const char* folder : {"/proc", "/run", "/dev/shm"}) hide(launch, folder);
  mount_attr read_only{};
  read_only.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID;
  require(launch, ::syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &read_only, sizeof read_only) == 0,
          "mount_setattr");
  require(launch, ::mount("none", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, launch.tmp_options.c_str()) == 0,
          "mount /tmp");
  require(launch, ::chdir("/tmp") == 0, "chdir");
}

[[noreturn]] void become_python(const Launch& launch) {
  require(launch, ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "prctl");
  apply_limits(launch);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  const bool connected = ::dup2(launch.input, 0) == 0 && ::dup2(launch.output, 1) == 1 && ::dup2(launch.output, 2) == 2;
  require(launch, connected, "dup2");
  if (launch.channel >= 0) require(launch, ::dup2(launch.channel, kChannel) == kChannel, "dup2");
  // Everything else ends with execve: a file of ours that somebody opened without O_CLOEXEC too.
  const unsigned others = launch.channel >= 0 ? kChannel + 1 : kChannel;
  require(launch, ::syscall(SYS_close_range, others, ~0U, CLOSE_RANGE_CLOEXEC) == 0, "close_range");
  // -I: nothing of the user's, no variables; -B: nothing is written beside sources.
  char python[] = "python3", isolated[] = "-I", no_bytecode[] = "-B", standard_input[] = "-";
  char* const words[] = {python, isolated, no_bytecode, standard_input, nullptr};
  char path[] = "PATH=/usr/bin:/bin", home[] = "HOME=/tmp", language[] = "LC_ALL=C.UTF-8";
  char* const environment[] = {path, home, language, nullptr};
  ::execve(launch.python.c_str(), words, environment);
  give_up(launch, "execve");
}

// Passes on how a process ended; others that end meanwhile are let go.
[[noreturn]] void end_as(pid_t process) {
  ::syscall(SYS_close_range, 0U, ~0U, 0);  // or a channel would never end
  for (int status = 0;;) {
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended == process) ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    if (ended < 0 && errno != EINTR) ::_exit(127);
  }
}

void die_with_parent(const Launch& launch) {
  require(launch, ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl");
}

// The first process of the new namespaces: with it dies everything in them. The program is a child of it, so that it
// cannot free itself from that, nor stop it: a namespace's first process takes no signals from inside.
[[noreturn]] void run_inside(const Launch& launch) {
  die_with_parent(launch);
  require(launch, write_file("/proc/self/setgroups", "deny"), "setgroups");
  require(launch, write_file("/proc/self/uid_map", launch.uid_map.c_str()), "uid_map");
  require(launch, write_file("/proc/self/gid_map", launch.gid_map.c_str()), "gid_map");
  arrange_files(launch);
  require(launch, ::prctl(PR_SET_DUMPABLE, 0) == 0, "prctl");  // nor traced
  const long python = ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  require(launch, python >= 0, "clone");
  if (python == 0) become_python(launch);
  end_as(static_cast<pid_t>(python));
}

// Raw calls: those of the C library would tell the threads of the parent, which are not there.
void leave_root(const Launch& launch) {
  if (!launch.root) return;
  require(launch, ::syscall(SYS_setgroups, 0, nullptr) == 0, "setgroups");
  require(launch, ::syscall(SYS_setresgid, kNobody, kNobody, kNobody) == 0, "setresgid");
  require(launch, ::syscall(SYS_setresuid, kNobody, kNobody, kNobody) == 0, "setresuid");
  require(launch, ::prctl(PR_SET_DUMPABLE, 1) == 0, "prctl");  // or its own uid_map would belong to root
}

// Stands outside of the namespaces and passes on how their first process ended.
[[noreturn]] void run_outside(const Launch& launch) {
  require(launch, ::setsid() >= 0, "setsid");  // or a signal to its own group would reach ours
  die_with_parent(launch);
  if (launch.confinement == Confinement::limits_only) {
    require(launch, ::chdir(launch.folder.c_str()) == 0, "chdir");
    become_python(launch);
  }
  leave_root(launch);
  die_with_parent(launch);  // again: another user has forgotten it
  const long inside = ::syscall(SYS_clone, kNamespaces | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  require(launch, inside >= 0, "clone");
  if (inside == 0) run_inside(launch);
  end_as(static_cast<pid_t>(inside));
}

std::string find_python() {
  for (const char* path : {"/usr/bin/python3", "/usr/local/bin/python3", "/bin/python3"})
    if (::access(path, X_OK) == 0) return path;
  device_error("sandbox: python3 is not in /usr/bin, /usr/local/bin or /bin");
}

std::string identity_map(unsigned id) {
  return fmt::format("{} {} 1", id, id);
}

Launch prepare(Confinement confinement, const SandboxLimits& limits) {
  Launch launch{.confinement = confinement, .limits = limits, .python = find_python()};
  launch.root = ::geteuid() == 0;
  launch.uid_map = identity_map(launch.root ? kNobody : ::geteuid());
  launch.gid_map = identity_map(launch.root ? kNobody : ::getegid());
  launch.hidden = limits.hidden;
  launch.tmp_options = fmt::format("size={},mode=0777", limits.disk_bytes);
  return launch;
}

// The folder of an unconfined program; removed with everything in it.
class StartFolder {
 public:
  StartFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "espalier-sandbox-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) device_error("sandbox: {}: {}", name, std::strerror(errno));
    path_ = name;
  }
  ~StartFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  StartFolder(const StartFolder&) = delete;
  StartFolder& operator=(const StartFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void check_complaint(const File& complaints, Confinement confinement) {
  Complaint complaint;
  if (::read(complaints.get(), &complaint, sizeof complaint) != sizeof complaint) return;
  const char* reason = std::strerror(complaint.error);
  if (confinement == Confinement::namespaces)
    input_error("the system does not allow a sandbox: {}: {}", complaint.call.data(), reason);
  device_error("sandbox: {}: {}", complaint.call.data(), reason);
}

SandboxResult result_of(int status, bool late, const File& output) {
  SandboxResult result{.output = tail_of(output)};
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  if (result.status > 128) result.status = 128 - result.status;  // as run_outside() passes a signal on
  result.end = late ? SandboxEnd::timed_out : result.status == 0 ? SandboxEnd::finished : SandboxEnd::failed;
  return result;
}

// A program that was started, until it ends; given up before that, it is killed with all its kin.
class RunningProgram {
 public:
  RunningProgram(std::string_view program, Confinement confinement, const SandboxLimits& limits, int channel = -1)
      : confinement_(confinement), input_(memory_file("program", program)), output_(memory_file("output", "")) {
    Launch launch = prepare(confinement, limits);
    if (confinement == Confinement::limits_only) launch.folder = folder_.emplace().path();
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) device_error("sandbox: pipe: {}", std::strerror(errno));
    complaints_.emplace(ends[0]);
    const File complain = out_of_the_way(ends[1]);
    launch.input = input_.get();
    launch.output = output_.get();
    launch.complaint = complain.get();
    launch.channel = channel;
    child_ = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    if (child_ < 0) device_error("sandbox: clone: {}", std::strerror(errno));
    if (child_ == 0) run_outside(launch);
  }
  ~RunningProgram() {
    if (child_ > 0) end();
  }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  // Ends it. Throws what kept it from beginning, if anything did.
  void dismiss() {
    end();
    check_complaint(*complaints_, confinement_);
  }

  // Throws what run_sandboxed() does.
  SandboxResult await(std::chrono::milliseconds wall_time) {
    const File handle(static_cast<int>(::syscall(SYS_pidfd_open, child_, 0)));
    const int refused = handle.get() < 0 ? errno : 0;
    const bool late = refused == 0 && !ends_within(handle, wall_time);
    const int status = late || refused != 0 ? end() : wait();
    // A program that nobody could wait for has not failed.
    if (refused != 0) device_error("sandbox: pidfd_open: {}", std::strerror(refused));
    check_complaint(*complaints_, confinement_);
    return result_of(status, late, output_);
  }

 private:
  static bool ends_within(const File& handle, std::chrono::milliseconds wall_time) {
    const auto deadline = std::chrono::steady_clock::now() + wall_time;
    pollfd ended{handle.get(), POLLIN, 0};
    int ready = 0;
    do {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      ready = ::poll(&ended, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    } while (ready < 0 && errno == EINTR);
    return ready != 0;
  }

  int end() {
    ::kill(-child_, SIGKILL);
    ::kill(child_, SIGKILL);
    return wait();
  }

  // The status as waitpid gives it.
  int wait() {
    const pid_t child = std::exchange(child_, -1);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    ::kill(-child, SIGKILL);  // unconfined: what it left behind in its group
    return status;
  }

  Confinement confinement_;
  std::optional<StartFolder> folder_;
  File input_, output_;
  std::optional<File> complaints_;
  pid_t child_ = -1;
};

}  // namespace

SandboxResult run_sandboxed(std::string_view program, Confinement confinement, const SandboxLimits& limits) {
  return RunningProgram(program, confinement, limits).await(limits.wall_time);
}

SandboxResult run_sandboxed_pair(std::string_view judge, std::string_view candidate, Confinement confinement,
                                 const SandboxLimits& limits) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    device_error("sandbox: socketpair: {}", std::strerror(errno));
  File left = out_of_the_way(ends[0]), right = out_of_the_way(ends[1]);
  RunningProgram judging(judge, confinement, limits, left.get());
  RunningProgram running(candidate, confinement, limits, right.get());
  left.close();
  right.close();
  SandboxResult result = judging.await(limits.wall_time);
  running.dismiss();  // an answer that could not be run is not wrong
  return result;
}

}  // namespace espalier
