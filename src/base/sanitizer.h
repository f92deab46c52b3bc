// Whether this is a build under the address sanitizer, which compilers name in different ways.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define HONE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HONE_ADDRESS_SANITIZER 1
#endif
#endif

namespace hone {

// Tests of sheer size do less of the same then: instrumented code without optimisation is 50 times slower.
#if defined(HONE_ADDRESS_SANITIZER)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

}  // namespace hone
