// WEIGHTMAP_API marks what the shared library exports; everything else stays hidden.
#pragma once

#if defined(__GNUC__) || defined(__clang__)
#define WEIGHTMAP_API __attribute__((visibility("default")))
#else
#define WEIGHTMAP_API
#endif

// Tells clang that the result points into the object it was obtained from.
#if defined(__clang__)
#define WEIGHTMAP_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define WEIGHTMAP_LIFETIMEBOUND
#endif
