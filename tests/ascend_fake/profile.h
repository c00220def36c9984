// The one thing that differs from library to library.
#pragma once

namespace ascend_fake {

extern const int kLibraryProfile;  // 81, 85 or 91: which symbols this library exports

}  // namespace ascend_fake
