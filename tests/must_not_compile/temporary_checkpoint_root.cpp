// A value tree whose owner is gone at the end of the line.
#include "weightmap/checkpoint.hpp"

weightmap::Value::Kind kind() {
#ifdef WEIGHTMAP_MISUSE
  return weightmap::Checkpoint::open("model.pt").value().root().kind();
#else
  auto checkpoint = weightmap::Checkpoint::open("model.pt");
  return checkpoint.value().root().kind();
#endif
}
