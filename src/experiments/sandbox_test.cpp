#include "experiments/sandbox.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace espalier {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class Sandbox : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      run_sandboxed("pass", Confinement::namespaces);
    } catch (const InputError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  static SandboxResult run(std::string_view program, SandboxLimits limits = {.wall_time = milliseconds(5000)}) {
    return run_sandboxed(program, Confinement::namespaces, limits);
  }
};

TEST_F(Sandbox, AProgramThatEndsWellHasFinishedAndIsHeard) {
  const SandboxResult result = run("print(6 * 7)");
  EXPECT_EQ(result.end, SandboxEnd::finished);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.output, "42\n");
}

TEST_F(Sandbox, AProgramThatFailsTellsWhy) {
  const SandboxResult result = run("assert 1 == 2, 'sums'");
  EXPECT_EQ(result.end, SandboxEnd::failed);
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.output.find("AssertionError: sums"), std::string::npos) << result.output;
}

TEST_F(Sandbox, AnEndlessLoopIsEndedWhenItsTimeIsOver) {
  const auto start = steady_clock::now();
  EXPECT_EQ(run("while True: pass", {.wall_time = milliseconds(500)}).end, SandboxEnd::timed_out);
  EXPECT_LT(steady_clock::now() - start, milliseconds(5000));
}

TEST_F(Sandbox, ProcessorTimeIsLimitedToo) {
  const SandboxResult result = run("while True: pass", {.wall_time = milliseconds(20000), .processor_seconds = 1});
  EXPECT_EQ(result.end, SandboxEnd::failed);
}

TEST_F(Sandbox, AProgramThatRefusesToEndIsEndedAllTheSame) {
  const char* stubborn =
      "import signal, time\n"
      "for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU): signal.signal(s, signal.SIG_IGN)\n"
      "time.sleep(1000)";
  EXPECT_EQ(run(stubborn, {.wall_time = milliseconds(500)}).end, SandboxEnd::timed_out);
}

TEST_F(Sandbox, AForkBombRunsIntoItsLimitAndLeavesNothingBehind) {
  const auto start = steady_clock::now();
  const SandboxResult result =
      run("import os, time\n"
          "n = 0\n"
          "try:\n"
          "    while True:\n"
          "        if os.fork() == 0: time.sleep(1000)\n"
          "        n += 1\n"
          "except OSError: print(n)\n");
  EXPECT_EQ(result.end, SandboxEnd::finished) << result.output;
  EXPECT_LE(std::stoi(result.output), 8);
  EXPECT_LT(steady_clock::now() - start, milliseconds(5000));
}

TEST_F(Sandbox, AChildThatWentItsOwnWayDiesWithTheProgram) {
  // It would keep the pipe of its output open: here the output is a file, so it is counted by what it prints later.
  const SandboxResult result =
      run("import os, sys, time\n"
          "if os.fork() == 0:\n"
          "    os.setsid()\n"
          "    if os.fork() == 0:\n"
          "        time.sleep(1)\n"
          "        print('still here', flush=True)\n"
          "        os._exit(0)\n"
          "    os._exit(0)\n"
          "time.sleep(0.2)\n");
  EXPECT_EQ(result.end, SandboxEnd::finished);
  EXPECT_EQ(result.output, "");
}

TEST_F(Sandbox, MemoryIsLimited) {
  const SandboxResult result = run("x = bytearray(8 << 30)", {.memory_bytes = std::int64_t{256} << 20});
  EXPECT_EQ(result.end, SandboxEnd::failed);
  EXPECT_NE(result.output.find("MemoryError"), std::string::npos) << result.output;
}

TEST_F(Sandbox, AFileCanBeWrittenButNoLargeOne) {
  EXPECT_EQ(run("open('/tmp/a', 'w').write('x'); assert open('a').read() == 'x'").end, SandboxEnd::finished);
  EXPECT_EQ(run("open('/tmp/a', 'wb').write(bytes(64 << 20))").end, SandboxEnd::failed);
  const SandboxResult many = run("for i in range(100): open(f'/tmp/{i}', 'wb').write(bytes(3 << 20))");
  EXPECT_EQ(many.end, SandboxEnd::failed);
  EXPECT_NE(many.output.find("No space left"), std::string::npos) << many.output;
}

TEST_F(Sandbox, APrintThatNeverEndsIsCut) {
  const SandboxResult result = run("while True: print('x' * 1000)");
  EXPECT_NE(result.end, SandboxEnd::finished);
  EXPECT_LE(result.output.size(), 4096u);
}

TEST_F(Sandbox, FilesOutsideCanBeReadAndNotWritten) {
  // Not in /tmp, which the program has one of its own of.
  std::string place = "/var/tmp/espalier-sandbox-test-XXXXXX";
  ASSERT_NE(::mkdtemp(place.data()), nullptr);
  const std::filesystem::path folder = place;
  std::ofstream(folder / "note") << "hello";
  for (const auto& path : {folder, folder / "note"})
    std::filesystem::permissions(path, std::filesystem::perms::all);  // it is not permissions that protect them
  EXPECT_EQ(run("print(open('/etc/passwd').read()[:4])").output, "root\n");
  for (const std::string& program : {"open('" + place + "/new', 'w')", "open('" + place + "/note', 'w')",
                                     "import os; os.remove('" + place + "/note')", std::string("open('/etc/new', 'w')"),
                                     std::string("open('/dev/shm/new', 'wb').write(bytes(1 << 20))")})
    EXPECT_EQ(run(program).end, SandboxEnd::failed) << program;
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  std::string note;
  std::ifstream(folder / "note") >> note;
  EXPECT_EQ(note, "hello");
  EXPECT_EQ(run("print(open('" + place + "/note').read(), end='')").output, "hello");
  std::filesystem::remove_all(folder);
}

TEST_F(Sandbox, ThereIsNoNetworkNotEvenThisMachine) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  socklen_t size = sizeof address;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const SandboxResult result =
      run("import socket; socket.create_connection(('127.0.0.1', " + std::to_string(ntohs(address.sin_port)) + "), 2)");
  ::close(listener);
  EXPECT_EQ(result.end, SandboxEnd::failed);
  EXPECT_NE(result.output.find("unreachable"), std::string::npos) << result.output;
}

TEST_F(Sandbox, OtherProcessesAreOutOfSight) {
  EXPECT_EQ(run("import os; assert os.getpid() == 2 and os.listdir('/proc') == []").end, SandboxEnd::finished);
  const std::string kill = "import os; os.kill(" + std::to_string(::getpid()) + ", 9)";
  EXPECT_EQ(run(kill).end, SandboxEnd::failed);
  EXPECT_NE(run("import os; os.kill(0, 9)").end, SandboxEnd::timed_out);  // its own group at most
}

// A file of ours that a careless library opened: no O_CLOEXEC, and a number that no short loop reaches.
class CarelessFile {
 public:
  CarelessFile() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit more = before_;
    more.rlim_cur = std::max<rlim_t>(more.rlim_cur, kNumber + 1);
    setrlimit(RLIMIT_NOFILE, &more);
    const int file = ::memfd_create("secret", 0);
    EXPECT_EQ(::write(file, "secret", 6), 6);
    EXPECT_EQ(::dup2(file, kNumber), kNumber);
    ::close(file);
  }
  ~CarelessFile() {
    ::close(kNumber);
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  CarelessFile(const CarelessFile&) = delete;
  CarelessFile& operator=(const CarelessFile&) = delete;

  static constexpr int kNumber = 1023;

 private:
  rlimit before_ = {};
};

constexpr const char* kCountDescriptors =
    "import os\n"
    "def there(n):\n"
    "    try: os.fstat(n)\n"
    "    except OSError: return False\n"
    "    return True\n"
    "print([n for n in range(4096) if there(n)])\n";

TEST_F(Sandbox, NoOpenFileOfOursIsInherited) {
  const CarelessFile file;
  EXPECT_EQ(run(kCountDescriptors).output, "[0, 1, 2]\n");
  EXPECT_EQ(run("import os; os.pwrite(1023, b'changed', 0)").end, SandboxEnd::failed);
}

TEST(SandboxWithoutNamespaces, NoOpenFileOfOursIsInheritedEither) {
  const CarelessFile file;
  EXPECT_EQ(run_sandboxed(kCountDescriptors, Confinement::limits_only).output, "[0, 1, 2]\n");
}

TEST_F(Sandbox, TwoProgramsHaveAChannelAndNothingElseInCommon) {
  const CarelessFile file;
  const char* candidate =
      "import os\n"
      "assert os.read(3, 9) == b'ping'\n"
      "open('/tmp/here', 'w')\n"
      "os.write(3, b'pong')\n"
      "os.read(3, 9)\n";
  const std::string judge =
      "import os\n"
      "os.write(3, b'ping')\n"
      "assert os.read(3, 9) == b'pong' and os.listdir('/tmp') == [] and os.getpid() == 2\n" +
      std::string(kCountDescriptors);
  const SandboxResult result = run_sandboxed_pair(judge, candidate, Confinement::namespaces);
  EXPECT_EQ(result.end, SandboxEnd::finished) << result.output;
  EXPECT_EQ(result.output, "[0, 1, 2, 3]\n");
}

TEST_F(Sandbox, TheChannelEndsWithTheProgramBehindIt) {
  const SandboxResult result =
      run_sandboxed_pair("import os; assert os.read(3, 9) == b''", "pass", Confinement::namespaces);
  EXPECT_EQ(result.end, SandboxEnd::finished) << result.output;
  EXPECT_EQ(run_sandboxed_pair("import os; assert os.read(3, 9) == b''", "pass", Confinement::limits_only).end,
            SandboxEnd::finished);
}

TEST_F(Sandbox, TheCandidateEndsWithTheJudge) {
  const auto start = steady_clock::now();
  const SandboxLimits limits{.wall_time = milliseconds(5000)};
  EXPECT_EQ(run_sandboxed_pair("pass", "while True: pass", Confinement::namespaces, limits).end, SandboxEnd::finished);
  EXPECT_LT(steady_clock::now() - start, milliseconds(4000));
}

// A pipe that a program holds open as long as it lives.
class SignOfLife {
 public:
  SignOfLife() {
    EXPECT_NE(::mkdtemp(place_.data()), nullptr);
    EXPECT_EQ(::mkfifo(path().c_str(), 0666), 0);
    for (const std::string& path : {place_, path()}) std::filesystem::permissions(path, std::filesystem::perms::all);
    reader_ = ::open(path().c_str(), O_RDONLY | O_NONBLOCK);
  }
  ~SignOfLife() {
    ::close(reader_);
    std::filesystem::remove_all(place_);
  }
  SignOfLife(const SignOfLife&) = delete;
  SignOfLife& operator=(const SignOfLife&) = delete;

  // What the program says first.
  std::string python() const {
    return "import os\nkept = os.open('" + path() + "', os.O_RDWR)\nos.write(kept, b'x')\n";
  }
  bool began() const { return read_until(1); }
  bool ended() const { return read_until(0); }  // nobody holds it open any more

 private:
  std::string path() const { return place_ + "/alive"; }
  bool read_until(ssize_t wanted) const {
    const auto deadline = steady_clock::now() + milliseconds(10'000);
    char byte = 0;
    while (::read(reader_, &byte, 1) != wanted) {
      if (steady_clock::now() > deadline) return false;
      ::usleep(10'000);
    }
    return true;
  }

  std::string place_ = "/var/tmp/espalier-sandbox-test-XXXXXX";
  int reader_ = -1;
};

// It forgets its parent, leaves its group and lets nothing but the end of its namespaces end it.
TEST_F(Sandbox, ACandidateThatFreesItselfOfItsParentEndsAllTheSame) {
  const SignOfLife life;
  const std::string candidate = life.python() +
                                "import ctypes, time\nos.setsid()\nctypes.CDLL(None).prctl(1, 0)\n"
                                "os.write(3, b'free')\ntry: os.kill(1, 9)\nexcept OSError: pass\ntime.sleep(1000)\n";
  const SandboxResult result =
      run_sandboxed_pair("import os; assert os.read(3, 9) == b'free'", candidate, Confinement::namespaces);
  EXPECT_EQ(result.end, SandboxEnd::finished) << result.output;
  EXPECT_TRUE(life.began());
  EXPECT_TRUE(life.ended()) << "the candidate lives on";
}

// Root's too, which runs as somebody else.
TEST_F(Sandbox, AProgramEndsWithUsWhenWeAreKilled) {
  const SignOfLife life;
  const pid_t caller = ::fork();
  if (caller == 0) {
    run(life.python() + "import time\ntime.sleep(1000)\n", {.wall_time = milliseconds(1'000'000)});
    ::_exit(0);
  }
  EXPECT_TRUE(life.began());
  ::kill(caller, SIGKILL);
  ::waitpid(caller, nullptr, 0);
  EXPECT_TRUE(life.ended()) << "the program lives on";
}

// In a user namespace of its own, which allows one more: the judge's.
bool allow_one_more_namespace() {
  const auto write = [](const char* path, const std::string& text) {
    return bool(std::ofstream(path) << text << std::flush);
  };
  const std::string user = fmt::format("1000 {} 1", ::geteuid()), group = fmt::format("1000 {} 1", ::getegid());
  return ::unshare(CLONE_NEWUSER) == 0 && write("/proc/self/setgroups", "deny") && write("/proc/self/uid_map", user) &&
         write("/proc/self/gid_map", group) && write("/proc/sys/user/max_user_namespaces", "1");
}

TEST_F(Sandbox, ACandidateThatCannotStartIsNoWrongAnswer) {
  constexpr int kTold = 0, kTakenForWrong = 1, kCannot = 77;
  const pid_t caller = ::fork();
  if (caller == 0) {
    if (!allow_one_more_namespace()) ::_exit(kCannot);
    try {
      run_sandboxed_pair("import os; assert os.read(3, 9) == b'42'", "import os; os.write(3, b'42')",
                         Confinement::namespaces);
    } catch (const InputError&) {
      ::_exit(kTold);
    }
    ::_exit(kTakenForWrong);
  }
  int status = 0;
  ::waitpid(caller, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannot) GTEST_SKIP() << "namespaces cannot be counted here";
  EXPECT_EQ(WEXITSTATUS(status), kTold);
}

TEST_F(Sandbox, AHiddenFileIsFoundEmpty) {
  std::string place = "/var/tmp/espalier-sandbox-test-XXXXXX";
  ASSERT_NE(::mkdtemp(place.data()), nullptr);
  const std::string secret = place + "/solutions";
  std::ofstream(secret) << "secret";
  for (const auto& path : {place, secret}) std::filesystem::permissions(path, std::filesystem::perms::all);
  const std::string read = "print(open('" + secret + "').read())";
  EXPECT_EQ(run(read).output, "secret\n");
  EXPECT_EQ(run(read, {.wall_time = milliseconds(5000), .hidden = {secret}}).output, "\n");
  std::filesystem::remove_all(place);
}

TEST(SandboxWithoutNamespaces, LimitsHoldAndTheFolderIsRemoved) {
  const auto run = [](std::string_view program) {
    return run_sandboxed(program, Confinement::limits_only, {.wall_time = milliseconds(3000)});
  };
  const SandboxResult place = run("import os; open('x', 'w').write('y'); print(os.getcwd(), end='')");
  EXPECT_EQ(place.end, SandboxEnd::finished) << place.output;
  EXPECT_FALSE(std::filesystem::exists(place.output));
  EXPECT_EQ(run("while True: pass").end, SandboxEnd::timed_out);
  EXPECT_EQ(run("x = bytearray(8 << 30)").end, SandboxEnd::failed);
  EXPECT_EQ(run("open('a', 'wb').write(bytes(64 << 20))").end, SandboxEnd::failed);
}

}  // namespace
}  // namespace espalier
