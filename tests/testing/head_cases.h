// The draft heads of tests/data/heads (README there) as lists to run through: goldens, and heads to refuse or accept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "model/head_files.h"

namespace espalier::testing {

// An entry of heads.json.
struct HeadGolden {
  std::string name;               // of the golden file, without its suffixes
  std::filesystem::path head;     // what to open
  std::filesystem::path teacher;  // a folder with golden.safetensors of its own
  std::filesystem::path golden;
  HeadOptions options = {};
  std::int64_t window = 0;  // 0: none
};
std::vector<HeadGolden> head_goldens(HeadKind kind);
std::vector<HeadGolden> eagle_goldens();  // of both generations

// A folder of refusals/ or accepted/, as its expected.txt describes it.
struct HeadCase {
  std::string name;
  std::filesystem::path head;
  std::filesystem::path teacher;
  HeadOptions options = {};
  bool refused = false;
  std::vector<std::string> says = {};         // refused: parts of the message
  std::vector<std::int64_t> taps = {};        // accepted, EAGLE
  std::vector<std::int32_t> target_ids = {};  // accepted
};
std::vector<HeadCase> head_cases(HeadKind kind);
std::vector<HeadCase> eagle_cases();  // of both generations

// For test names: letters, digits and underscores.
std::string test_name(std::string name);
inline void PrintTo(const HeadGolden& golden, std::ostream* out) {
  *out << golden.name;
}
inline void PrintTo(const HeadCase& head_case, std::ostream* out) {
  *out << head_case.name;
}

}  // namespace espalier::testing
