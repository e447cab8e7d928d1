// A plug-in of some program.
#include "weightmap/checkpoint.hpp"
#include "weightmap/warmer.hpp"

extern "C" [[gnu::visibility("default")]] long tensors_of(const char* path) {
  const auto checkpoint = weightmap::Checkpoint::open(path);
  if (!checkpoint || !weightmap::Warmer::start(*checkpoint)) return -1;
  return static_cast<long>(checkpoint.value().tensors().size());
}
