// Finds the libraries of CANN on this machine and fills the table of their functions. Nothing is linked: a machine
// without CANN builds and runs the program, and gets one line that says what is missing.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/ascend/acl.h"

namespace espalier::ascend {

struct LibraryOptions {
  std::string home = {};  // where CANN is installed ($ASCEND_HOME_PATH); its lib64 is searched after the system's paths
  std::string library = {};             // one library with all symbols instead of CANN's
  std::function<void(Api&)> look = {};  // may change the table when the runtime is initialised (testing/beside.h)
};

// The table, with the runtime initialised. Throws DeviceError with one line that names the library, the functions or
// the driver that is missing. Libraries stay loaded for the life of the process, and so does what aclInit made.
std::shared_ptr<const Api> load_api(const LibraryOptions& options = {});

// aclFinalize, where load_api() has loaded the runtime before; for the end of a process, when all devices are closed.
void shut_down(const LibraryOptions& options = {});

}  // namespace espalier::ascend
