// A variable of the environment, set or not set for as long as this lives.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace weightmap::test {

class Variable {
 public:
  explicit Variable(const char* name) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    ::unsetenv(name);
  }
  Variable(const char* name, const std::string& value) : Variable(name) { set(value); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() {
    if (before_)
      set(*before_);
    else
      ::unsetenv(name_);
  }
  void set(const std::string& value) const { ::setenv(name_, value.c_str(), 1); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace weightmap::test
