#include <cstdio>
#include <filesystem>
#include <weightmap/remote.hpp>

int main(int, char** argv) {
  const auto source = weightmap::open_url("file://" + std::string(argv[1]));
  if (!source) return std::puts(to_string(source.error()).c_str()), 1;
  const auto version = (*source)->identify({}, {});
  if (!version) return std::puts(to_string(version.error()).c_str()), 1;
  return version->size == std::filesystem::file_size(argv[1]) ? 0 : 1;
}
