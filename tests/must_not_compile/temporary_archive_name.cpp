// The archive's name borrows from the reader.
#include "weightmap/archive.hpp"

std::size_t length() {
#ifdef WEIGHTMAP_MISUSE
  const std::string_view name = weightmap::ArchiveReader::open("model.pt").value().archive_name();
#else
  auto reader = weightmap::ArchiveReader::open("model.pt");
  const std::string_view name = reader.value().archive_name();
#endif
  return name.size();
}
