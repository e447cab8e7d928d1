// A library that is loaded at run time.
#pragma once

#include <string>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Stays loaded until the process ends, since drivers leave threads and handlers behind.
class SharedLibrary {
 public:
  // `name` is a path, or a file name that the dynamic linker searches for. Fails with unsupported
  // and the linker's message.
  static Result<SharedLibrary> load(const std::string& name);

  // Returns nullptr if there is no such function.
  void* find(const char* symbol) const noexcept;

 private:
  explicit SharedLibrary(void* handle) noexcept : handle_(handle) {}
  void* handle_;
};

}  // namespace weightmap::os
