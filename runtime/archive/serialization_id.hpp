// The record `.data/serialization_id`, by which torch recognises equal content.
#pragma once

#include <string>

#include "runtime/zip/plan.hpp"

namespace weightmap {

// 20 digits of a hash of all names, then 20 of all checksums, as PyTorchStreamWriter computes them
// (caffe2/serialize/inline_container.cc). The hash is that of the C++ library, and the order that
// of its std::unordered_set: with libstdc++, which torch is built with, the digits are torch's.
std::string serialization_id(const zip::Plan& plan);

}  // namespace weightmap
