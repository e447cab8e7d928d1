#include <cstdio>
#include <weightmap/archive.hpp>
#include <weightmap/checkpoint.hpp>

int main(int argc, char** argv) {
  const auto checkpoint = weightmap::Checkpoint::open(argc > 1 ? argv[1] : "model.pt");
  if (!checkpoint) return std::puts(to_string(checkpoint.error()).c_str()), 1;
  const auto reader = weightmap::ArchiveReader::open(argv[1]);
  std::printf("%zu tensors in %zu records\n", checkpoint->tensors().size(),
              reader.value().record_count());
}
