// What the host says of itself, for records that must be told apart later.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace espalier {

// {"cpu", "cores", "memory_bytes", "system", "gpu"}; what is not known is null.
nlohmann::ordered_json machine_json();
// The models of the GPUs that NVIDIA's driver shows, whether this program uses them or not: "NVIDIA H200", "2 x NVIDIA
// H200", "NVIDIA A100, NVIDIA T4"; empty: none. `folder` has a folder for each.
std::string gpu_names(const std::filesystem::path& folder = "/proc/driver/nvidia/gpus");
// Size and time of the file of this program: changes with every build.
std::string program_state();

// Cores of the host, and those that this process may use: a launcher may have bound it to some.
int host_cores();
int usable_cores();

}  // namespace espalier
