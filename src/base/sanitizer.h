// Whether this is a build under the address or the thread sanitizer, which compilers name in different ways.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HONE_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HONE_SANITIZER 1
#endif
#endif

namespace hone {

// Tests of sheer size do less of the same then: instrumented code without optimisation is 50 times slower.
#if defined(HONE_SANITIZER)
inline constexpr bool kSanitizer = true;
#else
inline constexpr bool kSanitizer = false;
#endif

}  // namespace hone
