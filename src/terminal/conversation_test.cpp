#include "terminal/conversation.h"

#include <gmock/gmock.h>

#include <memory>

#include "base/error.h"
#include "engine/testing/tiny_model.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

class NoInterrupt final : public InterruptSource {
 public:
  bool interrupted() const override { return false; }
  void clear() override {}
  bool wait_for_input(int) override { return true; }
};

class Remarks final : public Listener {
 public:
  void remark(std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

class Conversation : public ::testing::Test {
 protected:
  void type(std::string_view lines) {
    const std::unique_ptr<std::FILE, CloseFile> in(std::fopen(folder_.write("typed", lines).c_str(), "r"));
    const ChatTerminal terminal{.in = in.get(),
                                .print = [this](std::string_view text) { shown_ += text; },
                                .tell = [this](std::string_view text) { told_ += text; },
                                .width = [] { return 80; },
                                .listener = &remarks_};
    const OpenEngine engine = open_engine({.model = kTinyModel, .threads = 1, .context = 128});
    TerminalChat chat({.text = {.generate = {.max_tokens = 4}}, .drafting = {.draft = "none"}}, engine, terminal);
    NoInterrupt nobody;
    converse(chat, terminal, nobody);
  }

  TemporaryFolder folder_;
  Remarks remarks_;
  std::string shown_, told_;  // to standard output, to standard error
};

TEST_F(Conversation, AScriptGetsTheAnswersAndFindsWhatCommandsSayBesideThem) {
  type("/system be brief\n/system\n");
  EXPECT_EQ(shown_, "");
  EXPECT_EQ(told_, "be brief\n");
  type("hello\n");
  EXPECT_TRUE(shown_.ends_with("\n"));
  EXPECT_GT(shown_.size(), 1u);
}

TEST_F(Conversation, ABadTurnIsRemarkedAndTheNextOneIsRead) {
  type("/nonsense\n/undo\n/set seed 5\n/set\n");
  ASSERT_EQ(remarks_.lines.size(), 2u);
  EXPECT_THAT(remarks_.lines[0], HasSubstr("no such command"));
  EXPECT_EQ(remarks_.lines[1], "/undo: there is no question yet");
  EXPECT_THAT(told_, HasSubstr("seed 5"));
}

TEST_F(Conversation, AnInputThatEndsInsideAMessageIsAnError) {
  EXPECT_THROW(type("\"\"\"half of\na message\n"), InputError);
}

}  // namespace
}  // namespace espalier
