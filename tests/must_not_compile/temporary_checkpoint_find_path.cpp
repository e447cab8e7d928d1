// A view, found by its path, from a checkpoint that is gone at the end of the line.
#include "weightmap/checkpoint.hpp"

std::uint64_t elements() {
#ifdef WEIGHTMAP_MISUSE
  return weightmap::Checkpoint::open("model.pt").value().find_path({"layers", 0})->numel();
#else
  auto checkpoint = weightmap::Checkpoint::open("model.pt");
  return checkpoint.value().find_path({"layers", 0})->numel();
#endif
}
