// The classic: a loop over the tensors of a temporary, which C++20 destroys before the first turn.
#include "weightmap/checkpoint.hpp"

std::uint64_t bytes() {
  std::uint64_t sum = 0;
#ifdef WEIGHTMAP_MISUSE
  for (const weightmap::NamedTensor& t : weightmap::Checkpoint::open("model.pt").value().tensors())
    sum += t.view.nbytes();
#else
  auto checkpoint = weightmap::Checkpoint::open("model.pt");
  for (const weightmap::NamedTensor& t : checkpoint.value().tensors()) sum += t.view.nbytes();
#endif
  return sum;
}
