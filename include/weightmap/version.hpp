// The version of these headers. Before 1.0 a change of the minor version may change the interface;
// a shared library of another minor version is not found (its soname has both numbers). Names do
// not contain the version: plug-ins of one process that have different versions link the static
// library, which exports nothing (docs/building.md).
#pragma once

#if __cplusplus < 202002L
#error "weightmap needs C++20: compile with -std=c++20, or link weightmap::weightmap with CMake"
#endif

#define WEIGHTMAP_VERSION_MAJOR 0
#define WEIGHTMAP_VERSION_MINOR 1
#define WEIGHTMAP_VERSION_PATCH 0
#define WEIGHTMAP_VERSION "0.1.0"

// WEIGHTMAP_API marks what the shared library exports; everything else stays hidden. Members of an
// exported class that only the library uses are marked WEIGHTMAP_LOCAL. The static library exports
// nothing, so that two plug-ins of one program can each have a version of their own: CMake and
// pkg-config define WEIGHTMAP_STATIC for those who link it.
#if defined(WEIGHTMAP_STATIC) || !defined(__GNUC__)
#define WEIGHTMAP_API
#define WEIGHTMAP_LOCAL
#else
#define WEIGHTMAP_API __attribute__((visibility("default")))
#define WEIGHTMAP_LOCAL __attribute__((visibility("hidden")))
#endif

// Declares to clang that the result points into the object it was obtained from.
#if defined(__clang__)
#define WEIGHTMAP_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define WEIGHTMAP_LIFETIMEBOUND
#endif
