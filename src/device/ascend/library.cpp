#include "device/ascend/library.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/ascend/errors.h"

namespace espalier::ascend {
namespace {

// The runtime under its old and its new name; whoever has the first has no need of the second.
constexpr std::array<const char*, 2> kRuntimeNames = {"libascendcl.so", "libacl_rt.so"};
// In this order: operators find their base in the global scope, and later versions have them in several libraries, with
// libopapi.so in front.
constexpr std::array<const char*, 7> kOperatorNames = {
    "libnnopbase.so",          "libopapi_math.so",   "libopapi_nn.so", "libopapi_cv.so",
    "libopapi_transformer.so", "libopapi_legacy.so", "libopapi.so"};
// Without these there are no operators in any version.
constexpr std::array<const char*, 2> kNeededOperatorNames = {"libnnopbase.so", "libopapi.so"};
constexpr const char* kDriverLibrary = "libascend_hal";

struct Opened {
  void* handle = nullptr;
  std::string problem = {};  // of the loader, where there is no handle
};

Opened open_library(const std::string& file, int flags = 0) {
  void* const handle = dlopen(file.c_str(), RTLD_LAZY | RTLD_GLOBAL | flags);
  if (handle != nullptr) return {handle, {}};
  const char* const problem = dlerror();
  return {nullptr, problem == nullptr ? "" : problem};
}

bool names_the_driver(const std::string& problem) {
  return problem.find(kDriverLibrary) != problem.npos;
}

// By its name, then below the home of CANN; one that is there and lacks the driver lacks it there too.
Opened open_by_name(const std::string& name, const std::string& home, int flags = 0) {
  Opened opened = open_library(name, flags);
  if (opened.handle != nullptr || home.empty() || names_the_driver(opened.problem)) return opened;
  return open_library(home + "/lib64/" + name, flags);
}

// Where neither opens, the one that is there and lacks the driver says more than the one that is not there.
Opened open_runtime(const LibraryOptions& options, int flags = 0) {
  if (!options.library.empty()) return open_library(options.library, flags);
  Opened first = open_by_name(kRuntimeNames[0], options.home, flags);
  if (first.handle != nullptr) return first;
  Opened second = open_by_name(kRuntimeNames[1], options.home, flags);
  return second.handle != nullptr || names_the_driver(second.problem) ? second : first;
}

[[noreturn]] void refuse_without_runtime(const LibraryOptions& options, const std::string& problem) {
  if (!options.library.empty()) device_error("Ascend: {}: cannot be loaded: {}", options.library, problem);
  if (names_the_driver(problem)) device_error("Ascend: the driver is missing: {}", problem);
  device_error("Ascend: {} was not found: is CANN installed, and its set_env.sh sourced? ({})", kRuntimeNames[0],
               problem);
}

// Fills what the libraries have, the first one that has it first.
void fill(Api& api, const std::vector<void*>& handles) {
  for (AnySymbol* symbol : api.all)
    for (void* handle : handles)
      if (symbol->address == nullptr) symbol->address = dlsym(handle, symbol->name.c_str());
}

void refuse_missing_symbols(const Api& api, const std::vector<std::string>& absent_libraries) {
  const AnySymbol* first = nullptr;
  std::size_t missing = 0;
  for (const AnySymbol* symbol : api.all) {
    if (symbol->address != nullptr || symbol->optional) continue;
    if (first == nullptr) first = symbol;
    ++missing;
  }
  if (missing == 0) return;
  const std::string others = missing == 1 ? "" : fmt::format(" and {} other functions", missing - 1);
  if (!absent_libraries.empty())
    device_error(
        "Ascend: {}{} missing: {} not found: is CANN's set_env.sh sourced?", first->name,
        missing == 1 ? " is" : others + " are",
        fmt::format("{} {}", fmt::join(absent_libraries, " and "), absent_libraries.size() == 1 ? "was" : "were"));
  device_error("Ascend: {}{} missing from the installed libraries, expected CANN 8.1 or later", first->name,
               missing == 1 ? " is" : others + " are");
}

}  // namespace

std::shared_ptr<const Api> load_api(const LibraryOptions& options) {
  const Opened runtime = open_runtime(options);
  if (runtime.handle == nullptr) refuse_without_runtime(options, runtime.problem);
  std::vector<void*> handles = {runtime.handle};
  std::vector<std::string> absent;
  if (options.library.empty())
    for (const char* name : kOperatorNames) {
      const Opened opened = open_by_name(name, options.home);
      if (opened.handle != nullptr) {
        handles.push_back(opened.handle);
      } else if (std::ranges::find(kNeededOperatorNames, std::string_view(name)) != kNeededOperatorNames.end()) {
        absent.emplace_back(name);
      }
    }
  auto api = std::make_shared<Api>();
  fill(*api, handles);
  refuse_missing_symbols(*api, absent);
  if (const AclCode code = api->aclInit(nullptr); code != 0 && code != kRepeatedInit)
    throw_failure(*api, api->aclInit.name, code);
  if (options.look) options.look(*api);
  return api;
}

void shut_down(const LibraryOptions& options) {
  const Opened runtime = open_runtime(options, RTLD_NOLOAD);
  if (runtime.handle == nullptr) return;
  Api api;
  fill(api, {runtime.handle});
  if (!api.aclInit || !api.aclFinalize) return;
  const AclCode code = api.aclInit(nullptr);  // the second time, unless loading was given up before the first
  if (code == 0 || code == kRepeatedInit) api.aclFinalize();
}

}  // namespace espalier::ascend
