// The tiny model that tests of the engine open: it babbles, reproducibly. For tests.
#pragma once

#include <string>

namespace espalier {

inline const std::string kTinyModel = std::string(ESPALIER_TEST_DATA) + "/tiny/llama2.gguf";
inline const std::string kTinyEagle3 = std::string(ESPALIER_TEST_DATA) + "/heads/eagle3-full-vocabulary";

}  // namespace espalier
