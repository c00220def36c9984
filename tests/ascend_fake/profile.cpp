// Compiled once for every library: which symbols it exports.
#include "profile.h"

namespace ascend_fake {

const int kLibraryProfile = ASCEND_FAKE_PROFILE;

}  // namespace ascend_fake
