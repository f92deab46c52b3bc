// HONE_ADDRESS_SANITIZER is defined under the address sanitizer, which compilers name in different ways.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define HONE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HONE_ADDRESS_SANITIZER 1
#endif
#endif
