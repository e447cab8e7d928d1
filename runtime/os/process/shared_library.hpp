// A library that is found when the program runs.
#pragma once

#include <string>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Stays loaded until the process ends: drivers leave threads and handlers behind.
class SharedLibrary {
 public:
  // `name` is a path, or a file name that is searched for as the dynamic linker does. Fails with
  // unsupported, and what the linker says.
  static Result<SharedLibrary> load(const std::string& name);

  // nullptr if it has no such function.
  void* find(const char* symbol) const noexcept;

 private:
  explicit SharedLibrary(void* handle) noexcept : handle_(handle) {}
  void* handle_;
};

}  // namespace weightmap::os
