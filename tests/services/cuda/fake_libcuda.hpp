// What tests tell and ask the fake driver (fake_libcuda.cpp), which they load as a library.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Forgets faults, calls, failures and attributes; what is held stays. Two devices; attributes are
// 0.
void fake_cuda_reset();
void fake_cuda_set_attribute(int attribute, int value);
void fake_cuda_set_memory(std::size_t bytes);
// The n-th call of this function from now on returns `error`, once. What releases something does so
// all the same, as a driver that reports the error of an earlier copy.
void fake_cuda_fail(const char* function, int nth, int error);
// Since the last reset, of one function.
int fake_cuda_calls(const char* function);
// What was wrong about the calls, one in a line; and what was not given back. Until the next call.
const char* fake_cuda_faults();
const char* fake_cuda_held();
// What is held was lost, as the test expects.
void fake_cuda_forget_held();
// Copies from the device's memory what copies have brought there so far. 0: it is not allocated.
int fake_cuda_read(std::uint64_t pointer, void* out, std::size_t bytes);
// In bytes, since the last reset.
std::size_t fake_cuda_largest_registration();
}
