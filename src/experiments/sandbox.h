// Runs a Python program that nobody has read, so that it can harm nothing: for the tests of answers that a model wrote.
//
// Confined, the program runs in user, process, network, mount and IPC namespaces of its own. It has no network, sees no
// process but the first one of these, which ends them, reads the machine's files but writes only to a small file system
// in memory at /tmp, and /proc, /run and /dev/shm are empty. Of our open files it has none. Whatever it started dies
// with it. Limits on wall time, processor time, memory, file sizes, open files and processes hold on top. Started by
// root it runs as nobody. Where the system does not let a user make namespaces there is only the unconfined form: the
// limits, and a temporary folder that the program starts in and that is removed afterwards. It has the user's rights
// then, also over other processes of the user.
//
// Linux only. Safe to call from a program with threads; one call at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

enum class Confinement { namespaces, limits_only };

struct SandboxLimits {
  std::chrono::milliseconds wall_time{10'000};
  std::int64_t processor_seconds = 10;
  std::int64_t memory_bytes = std::int64_t{512} << 20;  // address space of each process
  std::int64_t file_bytes = std::int64_t{4} << 20;      // of each file, and of what is printed
  std::int64_t disk_bytes = std::int64_t{16} << 20;     // of all files; confined only
  std::int64_t open_files = 64;
  std::int64_t processes = 8;            // and threads
  std::vector<std::string> hidden = {};  // files that it finds empty; confined only
};

enum class SandboxEnd { finished, failed, timed_out };

struct SandboxResult {
  SandboxEnd end = SandboxEnd::failed;  // finished: with exit status 0
  int status = 0;                       // its exit status, or minus the signal that ended it
  std::string output = {};              // what it printed, both streams, the last few kilobytes
};

// `program`: the text of a Python program. Throws InputError where namespaces were asked for and the system refuses
// them, with its reason; DeviceError where a process cannot be started or there is no python3.
SandboxResult run_sandboxed(std::string_view program, Confinement confinement, const SandboxLimits& limits = {});

// Two programs, each in a sandbox of its own, that can reach each other by nothing but kChannel, a socket between them.
// What the first one says is the result; the other one is ended with it.
SandboxResult run_sandboxed_pair(std::string_view judge, std::string_view candidate, Confinement confinement,
                                 const SandboxLimits& limits = {});
inline constexpr int kChannel = 3;  // the descriptor

}  // namespace espalier
