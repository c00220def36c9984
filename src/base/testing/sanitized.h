// Whether this is a sanitizer build, where tests take fewer rounds: they are slower, and look at the same code.
#pragma once

namespace espalier {

#ifdef ESPALIER_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace espalier
