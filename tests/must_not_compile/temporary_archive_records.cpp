// Names of records borrow from the reader.
#include "weightmap/archive.hpp"

std::size_t count() {
#ifdef WEIGHTMAP_MISUSE
  return weightmap::ArchiveReader::open("model.pt").value().records().size();
#else
  auto reader = weightmap::ArchiveReader::open("model.pt");
  return reader.value().records().size();
#endif
}
