// What a program needs that opens checkpoints and reads tensors. Each other header says in its
// first line what it is for.
//
//   const auto checkpoint = weightmap::Checkpoint::open("model.safetensors");
//   if (!checkpoint) {
//     std::cerr << checkpoint.error() << '\n';
//     return tl::unexpected(checkpoint.error());
//   }
//   for (const weightmap::NamedTensor tensor : checkpoint->tensors())
//     std::cout << tensor.name << ": " << tensor.view.numel() << " elements\n";
#pragma once

#include "weightmap/checkpoint.hpp"
#include "weightmap/half.hpp"
#include "weightmap/version.hpp"
