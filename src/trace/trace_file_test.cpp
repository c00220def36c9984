#include "trace/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/testing/sanitized.h"
#include "format/testing/temporary_folder.h"
#include "trace/testing/random_turn.h"
#include "trace/trace_frame.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

constexpr int kTurns = 3;
constexpr std::size_t kByteStep = kSanitized ? 7 : 1;

TraceHeader header() {
  return {
      .origin = {.commit = "abc", .configuration = R"({"sampling":{"seed":1},"model":"m"})"}, .rank = 2, .world = 3};
}

// A whole trace, and where each of its frames ends.
struct WholeTrace {
  std::string bytes = trace_bytes(header());
  std::vector<std::size_t> ends = {bytes.size()};

  WholeTrace() {
    for (int i = 0; i < kTurns; ++i) {
      bytes += trace_bytes(random_turn(static_cast<std::uint64_t>(i)));
      ends.push_back(bytes.size());
    }
  }
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// How many turns can be read, all of them as they were written.
int good_turns(TraceReader& reader) {
  int count = 0;
  while (const auto turn = reader.next())
    EXPECT_EQ(to_lines(*turn), to_lines(random_turn(static_cast<std::uint64_t>(count++))));
  return count;
}

std::string refusal(std::string_view bytes) {
  try {
    TraceReader reader(bytes_of(bytes), "t.zst");
    while (reader.next()) {
    }
  } catch (const InputError& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  return "accepted";
}

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TraceReader, ReadsWhatWasWritten) {
  const WholeTrace trace;
  TraceReader reader(bytes_of(trace.bytes), "t.zst");
  EXPECT_EQ(reader.header(), header());
  EXPECT_EQ(good_turns(reader), kTurns);
  EXPECT_FALSE(reader.truncated());
  EXPECT_EQ(reader.truncation(), std::nullopt);
}

TEST(TraceReader, ATraceCutAnywhereIsReadableUpToItsLastWholeTurn) {
  const WholeTrace trace;
  for (std::size_t size = 0; size < trace.bytes.size(); size += kByteStep) {
    const auto cut = std::string_view(trace.bytes).substr(0, size);
    if (size < trace.ends[0]) {
      EXPECT_NE(refusal(cut), "accepted") << size;
      continue;
    }
    TraceReader reader(bytes_of(cut), "t.zst");
    const auto whole = std::ranges::upper_bound(trace.ends, size) - trace.ends.begin() - 1;
    EXPECT_EQ(good_turns(reader), whole) << size;
    EXPECT_EQ(reader.truncated(), size != trace.ends[static_cast<std::size_t>(whole)]) << size;
    const std::string note = fmt::format("t.zst: the file breaks off behind turn {}", whole);
    EXPECT_EQ(reader.truncation(), reader.truncated() ? std::optional(note) : std::nullopt) << size;
    EXPECT_EQ(reader.bytes_read(), static_cast<std::int64_t>(trace.ends[static_cast<std::size_t>(whole)]));
  }
}

TEST(TraceReader, AFlippedByteNeverGivesAnotherTurn) {
  const WholeTrace trace;
  for (std::size_t at = trace.ends[0]; at < trace.bytes.size(); at += kByteStep) {
    std::string damaged = trace.bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    try {
      TraceReader reader(bytes_of(damaged), "t.zst");
      good_turns(reader);
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("t.zst: turn ")) << at;
    }
  }
}

TEST(TraceReader, AFlippedByteNeverGivesAnotherHeader) {
  const std::string bytes = trace_bytes(header());
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    try {
      EXPECT_EQ(TraceReader(bytes_of(damaged), "t.zst").header(), header()) << at;
    } catch (const InputError& error) {
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    }
  }
}

TEST(TraceReader, AnotherSchemaIsRefused) {
  nlohmann::ordered_json object = record_head("trace", header().origin);
  object["schema"] = 1;
  EXPECT_EQ(refusal(compress_frame(object.dump())), "t.zst: a trace of schema 1, expected 2");
}

TEST(TraceReader, AnotherVersionOfTheProgramIsRefused) {
  nlohmann::ordered_json object = record_head("trace", header().origin);
  object["version"] = "0.0.7";
  EXPECT_THAT(refusal(compress_frame(object.dump())), HasSubstr("of version \"0.0.7\", expected "));
}

TEST(TraceReader, AnotherArithmeticIsRefusedByBothNumbers) {
  nlohmann::ordered_json object = record_head("trace", header().origin);
  object["arithmetic"] = 1;
  EXPECT_THAT(refusal(compress_frame(object.dump())), HasSubstr("t.zst: arithmetic 1, this program computes with 2: "));
  object.erase("arithmetic");
  EXPECT_THAT(refusal(compress_frame(object.dump())), HasSubstr("t.zst: arithmetic 1, this program computes with 2: "));
}

TEST(TraceReader, OtherFilesAreRefused) {
  EXPECT_EQ(refusal(""), "t.zst: expected a trace, got an empty file");
  EXPECT_THAT(refusal("{\"kind\": \"trace\", \"schema\": 1}"), HasSubstr("expected zstd"));
  EXPECT_THAT(refusal(std::string(100, '\0')), HasSubstr("expected zstd"));
  EXPECT_THAT(refusal(compress_frame("[]")), HasSubstr("expected a trace of espalier"));
  EXPECT_THAT(refusal(compress_frame("{}")), HasSubstr("expected a trace of espalier"));
  EXPECT_THAT(refusal(compress_frame("not json")), HasSubstr("t.zst:1:2"));
  EXPECT_THAT(refusal(compress_frame(record_head("dump", {}).dump())), HasSubstr("expected a trace of espalier"));
  EXPECT_THAT(refusal(compress_frame(record_head("trace", {}).dump())), HasSubstr("rank"));
}

TEST(TraceReader, AHeaderThatDoesNotHoldTogetherIsRefused) {
  nlohmann::ordered_json good = record_head("trace", header().origin);
  good["rank"] = 0;
  good["world"] = 1;
  EXPECT_EQ(refusal(compress_frame(good.dump())), "accepted");
  const auto with = [&](const char* field, const nlohmann::ordered_json& value) {
    nlohmann::ordered_json bad = good;
    bad[field] = value;
    return refusal(compress_frame(bad.dump()));
  };
  EXPECT_EQ(with("rank", "first"), "t.zst: rank: expected an integer, got string");
  EXPECT_THAT(with("rank", -1), HasSubstr("t.zst: rank: expected 0 to "));
  EXPECT_THAT(with("world", 0), HasSubstr("t.zst: world: expected 1 to "));
  EXPECT_THAT(with("world", 1e300), HasSubstr("t.zst: world: expected an integer, got number"));
  EXPECT_EQ(with("commit", 7), "t.zst: commit: expected a string, got number");
  EXPECT_EQ(with("version", nullptr).substr(0, 26), "t.zst: a trace of version ");
}

TEST(TraceReader, AFrameThatHoldsNoTextIsNoTurn) {
  // What zstd lets readers skip: its magic number, four bytes of size, and the bytes.
  const std::string skippable = std::string("\x50\x2a\x4d\x18\x03\x00\x00\x00", 8) + "abc";
  EXPECT_EQ(refusal(trace_bytes(header()) + skippable), "t.zst: turn 1: expected a turn, got nothing");
  EXPECT_EQ(refusal(trace_bytes(header()) + compress_frame("")), "t.zst: turn 1: expected a turn, got nothing");
}

TEST(TraceReader, AFrameThatClaimsToBeHugeIsRefusedBeforeMemoryIsTaken) {
  // Magic number, a descriptor that announces a size of eight bytes, that size, and one empty last block.
  std::string frame("\x28\xb5\x2f\xfd\xe0", 5);
  frame += std::string(7, '\xff') + std::string("\x0f", 1) + std::string("\x01\x00\x00", 3);
  EXPECT_THAT(refusal(trace_bytes(header()) + frame), HasSubstr("t.zst: turn 1: "));
}

class TraceWriterTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "trace.jsonl.zst";

  void write_some(int turns) {
    TraceWriter writer = TraceWriter::create(path_, header());
    for (int i = 0; i < turns; ++i) writer.add(random_turn(static_cast<std::uint64_t>(i)));
  }
  int readable() {
    TraceReader reader(path_);
    return good_turns(reader);
  }
};

TEST_F(TraceWriterTest, WritesTheBytesOfAWholeTrace) {
  write_some(kTurns);
  EXPECT_EQ(file_bytes(path_), WholeTrace().bytes);
}

TEST_F(TraceWriterTest, DoesNotWriteOverAFile) {
  folder_.write("trace.jsonl.zst", "mine");
  EXPECT_THROW(TraceWriter::create(path_, header()), InputError);
  EXPECT_EQ(file_bytes(path_), "mine");
}

TEST_F(TraceWriterTest, GoesOnBehindTheLastWholeTurnOfAFileThatWasCut) {
  write_some(2);
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  {
    TraceWriter writer = TraceWriter::append(path_, header());
    EXPECT_EQ(writer.turns(), 1);
    writer.add(random_turn(1));
    writer.add(random_turn(2));
  }
  EXPECT_EQ(file_bytes(path_), WholeTrace().bytes);
}

TEST_F(TraceWriterTest, KeepsAsManyTurnsAsItIsTold) {
  write_some(3);
  { EXPECT_EQ(TraceWriter::append(path_, header(), 1).turns(), 1); }
  EXPECT_EQ(readable(), 1);
  { EXPECT_EQ(TraceWriter::append(path_, header(), 5).turns(), 1); }
}

TEST_F(TraceWriterTest, DoesNotGoOnWithTheTraceOfAnotherRun) {
  write_some(1);
  TraceHeader other = header();
  other.origin.configuration = R"({"sampling":{"seed":2},"model":"m"})";
  EXPECT_THROW(TraceWriter::append(path_, other), InputError);
  EXPECT_EQ(readable(), 1);
}

TEST_F(TraceWriterTest, ASecondWriterIsRefused) {
  const TraceWriter writer = TraceWriter::create(path_, header());
  EXPECT_THROW(TraceWriter::append(path_, header()), InputError);
}

// Files of this process end here, as they do on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::size_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_ = {};
  void (*handler_)(int) = nullptr;
};

TEST_F(TraceWriterTest, AFullDiskLosesOnlyTheTurnInFlight) {
  TraceWriter writer = TraceWriter::create(path_, header());
  writer.add(random_turn(0));
  {
    const FileSizeLimit limit(std::filesystem::file_size(path_) + 20);
    EXPECT_THROW(writer.add(random_turn(1)), DeviceError);
  }
  EXPECT_EQ(readable(), 1);
  writer.add(random_turn(1));
  EXPECT_EQ(readable(), 2);
}

TEST_F(TraceWriterTest, AFullDiskLeavesNoTraceWithoutAHeader) {
  const FileSizeLimit limit(20);
  EXPECT_THROW(TraceWriter::create(path_, header()), DeviceError);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace espalier
