// The fake driver as a test has it: fresh at the beginning, and nothing held at the end.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/services/cuda/fake_libcuda.hpp"
#include "weightmap/cuda.hpp"

namespace weightmap::test {

class FakeDriver {
 public:
  FakeDriver() { reset(); }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;
  ~FakeDriver() {
    CHECK(faults() == "");
    CHECK(held() == "");
  }

  void reset() { get<void()>("fake_cuda_reset")(); }
  void set_attribute(int attribute, int value) {
    get<void(int, int)>("fake_cuda_set_attribute")(attribute, value);
  }
  void set_memory(std::size_t bytes) { get<void(std::size_t)>("fake_cuda_set_memory")(bytes); }
  void fail(const std::string& function, int nth, int error) {
    get<void(const char*, int, int)>("fake_cuda_fail")(function.c_str(), nth, error);
  }
  int calls(const std::string& function) {
    return get<int(const char*)>("fake_cuda_calls")(function.c_str());
  }
  std::string faults() { return get<const char*()>("fake_cuda_faults")(); }
  std::string held() { return get<const char*()>("fake_cuda_held")(); }
  void forget_held() { get<void()>("fake_cuda_forget_held")(); }
  std::size_t largest_registration() {
    return get<std::size_t()>("fake_cuda_largest_registration")();
  }
  std::string bytes_of(const cuda::DeviceTensor& tensor) {
    std::string bytes(tensor.nbytes(), '\0');
    const bool is_read =
        bytes.empty() || get<int(std::uint64_t, void*, std::size_t)>("fake_cuda_read")(
                             tensor.pointer(), bytes.data(), bytes.size()) == 1;
    CHECK(is_read);
    return bytes;
  }
  template <class Type>
  Type* get(const char* name) const {
    void* const found = ::dlsym(library_, name);
    if (found == nullptr) throw std::runtime_error(name);
    return reinterpret_cast<Type*>(found);
  }

  static constexpr const char* path = WEIGHTMAP_FAKE_LIBCUDA;

 private:
  void* library_ = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
};

}  // namespace weightmap::test
