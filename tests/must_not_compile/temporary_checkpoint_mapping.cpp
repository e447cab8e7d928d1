// The bytes of a mapping that is gone at the end of the line.
#include "weightmap/checkpoint.hpp"

std::size_t size() {
#ifdef WEIGHTMAP_MISUSE
  return weightmap::Checkpoint::open("model.pt").value().mapping().size();
#else
  auto checkpoint = weightmap::Checkpoint::open("model.pt");
  return checkpoint.value().mapping().size();
#endif
}
