// F4 and F60: which symbols the libraries export, as dlsym sees them.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace ascend_fake {
namespace {

bool exports(const char* library, const char* symbol) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  return handle != nullptr && dlsym(handle, symbol) != nullptr;
}

TEST(Exports, F4EveryVersionHasItsSymbolsAndNoNewerOnes) {
  for (const char* library : {ASCEND_FAKE_8_1, ASCEND_FAKE_8_5, ASCEND_FAKE_9_1}) {
    for (const char* symbol : {"aclInit", "aclrtMalloc", "aclmdlRICaptureBegin", "aclCreateTensor", "aclnnMm",
                               "aclnnMmGetWorkspaceSize", "aclnnFusedInferAttentionScoreV2", "ascend_fake_name"}) {
      EXPECT_TRUE(exports(library, symbol)) << symbol << " in " << library;
    }
  }
  EXPECT_FALSE(exports(ASCEND_FAKE_8_1, "aclnnFusedInferAttentionScoreV4"));
  EXPECT_TRUE(exports(ASCEND_FAKE_8_5, "aclnnFusedInferAttentionScoreV4"));
  EXPECT_FALSE(exports(ASCEND_FAKE_8_5, "aclnnFusedInferAttentionScoreV5GetWorkspaceSize"));
  EXPECT_TRUE(exports(ASCEND_FAKE_9_1, "aclnnFusedInferAttentionScoreV5GetWorkspaceSize"));
}

TEST(Exports, F4TheLibraryOfAVersionAnswersWithItsVersion) {
  void* handle = dlopen(ASCEND_FAKE_8_1, RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr);
  const auto init = reinterpret_cast<int (*)(const char*)>(dlsym(handle, "aclInit"));
  const auto finalise = reinterpret_cast<int (*)()>(dlsym(handle, "aclFinalize"));
  const auto version = reinterpret_cast<int (*)(int32_t*, int32_t*, int32_t*)>(dlsym(handle, "aclrtGetVersion"));
  ASSERT_NE(version, nullptr);
  int32_t major = 0, minor = 0, patch = 0;
  EXPECT_EQ(init(nullptr), 0);
  EXPECT_EQ(version(&major, &minor, &patch), 0);
  EXPECT_EQ(minor, 13);
  EXPECT_EQ(finalise(), 0);
}

// A process of its own: leaves a call before aclInit behind it, and ends.
[[noreturn]] void break_a_rule_and_exit(const std::string& report) {
  setenv("ASCEND_FAKE", "seed=3 soc_name=Ascend310P3", 1);
  setenv("ASCEND_FAKE_REPORT", report.c_str(), 1);
  void* handle = dlopen(ASCEND_FAKE_8_5, RTLD_LAZY | RTLD_LOCAL);
  reinterpret_cast<int (*)(uint32_t*)>(dlsym(handle, "aclrtGetDeviceCount"))(nullptr);
  reinterpret_cast<int (*)(const char*)>(dlsym(handle, "aclInit"))(nullptr);
  const std::string name = reinterpret_cast<const char* (*)()>(dlsym(handle, "aclrtGetSocName"))();
  std::exit(name == "Ascend310P3" ? 0 : 1);
}

TEST(Exports, AProcessThatCannotCallResetIsToldByItsEnvironmentAndReportsAtItsEnd) {
  const std::string report = testing::TempDir() + "ascend_fake_report_" + std::to_string(getpid());
  EXPECT_EXIT(break_a_rule_and_exit(report), testing::ExitedWithCode(0), "");
  std::stringstream text;
  text << std::ifstream(report).rdbuf();
  std::filesystem::remove(report);
  EXPECT_NE(text.str().find("violation F1 at call 1 (aclrtGetDeviceCount)"), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("calls 3"), std::string::npos) << text.str();
}

// The dynamic symbols of a library, by nm: "U name" where it needs it, "T name" where it has it.
std::vector<std::string> dynamic_symbols(const char* library) {
  std::vector<std::string> lines;
  FILE* const pipe = popen((std::string("nm -D -P ") + library + " 2>/dev/null").c_str(), "r");
  char line[4096];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) lines.emplace_back(line);
  if (pipe != nullptr) pclose(pipe);
  return lines;
}

TEST(Exports, F60NothingOfTheEngineIsInsideOrNeeded) {
  const std::vector<std::string> symbols = dynamic_symbols(ASCEND_FAKE_9_1);
  if (symbols.empty()) GTEST_SKIP() << "nm is not installed";
  size_t exported = 0;
  for (const std::string& line : symbols) {
    std::istringstream words(line);
    std::string name, kind;
    words >> name >> kind;
    EXPECT_EQ(name.find("espalier"), std::string::npos) << line;
    if (kind != "T") continue;
    ++exported;
    EXPECT_TRUE(name.starts_with("acl") || name.starts_with("ascend_fake_")) << name << ": its insides stay inside";
  }
  EXPECT_GT(exported, 150u);
}

TEST(Exports, F60ItsSourcesIncludeNoFileButTheirOwn) {
  const std::filesystem::path folder = std::filesystem::path(__FILE__).parent_path();
  if (!std::filesystem::exists(folder / "fake.cpp")) GTEST_SKIP() << "the sources are elsewhere";
  size_t quoted = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with("#include \"")) continue;
      const std::string name = line.substr(10, line.rfind('"') - 10);
      EXPECT_EQ(name.find('/'), std::string::npos) << entry.path() << ": " << line;
      EXPECT_TRUE(std::filesystem::exists(folder / name)) << entry.path() << ": " << line;
      ++quoted;
    }
  }
  EXPECT_GT(quoted, 50u);
}

}  // namespace
}  // namespace ascend_fake
