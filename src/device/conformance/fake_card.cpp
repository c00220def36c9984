#include "device/conformance/fake_card.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"

namespace espalier {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{256} << 10;
constexpr std::size_t kArenaBytes = std::size_t{1} << 20;

std::vector<std::string> texts(std::size_t count, const char* (*text)(std::size_t)) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < count; ++i) all.emplace_back(text(i));
  return all;
}

// All of them lie in one folder.
std::string library_file(const std::string& name) {
  return std::filesystem::path(ESPALIER_ASCEND_FAKE).replace_filename("lib" + name + ".so").string();
}

}  // namespace

FakeCard::FakeCard(const std::string& name) : library_(dlopen(library_file(name).c_str(), RTLD_LAZY | RTLD_LOCAL)) {
  check(library_ != nullptr, "the fake cannot be loaded: {}", dlerror());
}

template <typename Function>
Function* FakeCard::control(const char* name) const {
  void* const address = dlsym(library_, name);
  check(address != nullptr, "the fake has no {}", name);
  return reinterpret_cast<Function*>(address);
}

ascend::Options FakeCard::device_options(const std::string& name) {
  ascend::Options options;
  options.library.library = library_file(name);
  options.staging_bytes = kStagingBytes;
  options.arena_bytes = kArenaBytes;
  return options;
}

std::string FakeCard::home() {
  return ESPALIER_ASCEND_FAKE_HOME;
}

AscendFakeOptions FakeCard::default_options(const std::string& name) {
  AscendFakeOptions options{};
  FakeCard(name).control<void(AscendFakeOptions*)>("ascend_fake_default_options")(&options);
  return options;
}

void FakeCard::reset(const AscendFakeOptions& options) const {
  control<void(const AscendFakeOptions*)>("ascend_fake_reset")(&options);
}

void FakeCard::set_faults(const AscendFakeOptions& options) const {
  control<void(const AscendFakeOptions*)>("ascend_fake_set_faults")(&options);
}

std::unique_ptr<Device> FakeCard::open_anew(std::uint64_t seed) const {
  AscendFakeOptions options = default_options();
  options.seed = seed;
  reset(options);
  return ascend::make_device(device_options());
}

std::string FakeCard::call(std::uint64_t number) const {
  const char* const name = control<const char*(std::uint64_t)>("ascend_fake_call")(number);
  return name == nullptr ? "" : name;
}

void FakeCard::peek(const void* address, std::span<std::byte> to) const {
  const auto peek = control<std::int32_t(const void*, void*, std::size_t)>("ascend_fake_peek");
  check(peek(address, to.data(), to.size()) == 0, "the fake has no memory there");
}

void FakeCard::warm() const {
  control<void()>("ascend_fake_warm")();
}

AscendFakeCounters FakeCard::counters() const {
  AscendFakeCounters counters{};
  control<void(AscendFakeCounters*)>("ascend_fake_counters")(&counters);
  return counters;
}

std::vector<std::string> FakeCard::violations() const {
  return texts(control<std::size_t()>("ascend_fake_violations")(),
               control<const char*(std::size_t)>("ascend_fake_violation"));
}

std::vector<std::string> FakeCard::live_objects() const {
  return texts(control<std::size_t()>("ascend_fake_live_objects")(),
               control<const char*(std::size_t)>("ascend_fake_live_object"));
}

void FakeCard::expect_nothing_left() const {
  for (const std::string& violation : violations()) ADD_FAILURE() << violation;
  for (const std::string& object : live_objects()) ADD_FAILURE() << "still there: " << object;
}

}  // namespace espalier
