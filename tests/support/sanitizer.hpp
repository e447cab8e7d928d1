// Whether this is built with a sanitizer, under which everything takes several times as long.
#pragma once

namespace weightmap::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool under_sanitizer = true;
#elif defined(__has_feature)
inline constexpr bool under_sanitizer =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool under_sanitizer = false;
#endif

}  // namespace weightmap::test
