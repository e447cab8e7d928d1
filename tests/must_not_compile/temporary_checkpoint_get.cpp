// A named tensor from a checkpoint that is gone at the end of the line.
#include "weightmap/checkpoint.hpp"

std::uint64_t offset() {
#ifdef WEIGHTMAP_MISUSE
  return weightmap::Checkpoint::open("model.pt").value().get("weight")->file_offset;
#else
  auto checkpoint = weightmap::Checkpoint::open("model.pt");
  return checkpoint.value().get("weight")->file_offset;
#endif
}
