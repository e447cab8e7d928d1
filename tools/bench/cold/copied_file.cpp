#include "tools/bench/cold/copied_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/bench/cold/raw_file.hpp"

namespace weightmap::cli::bench {
namespace {

constexpr std::size_t block = std::size_t{8} << 20;
constexpr std::size_t huge_page = std::size_t{2} << 20;

bool read_part(int file, std::span<std::byte> memory, std::size_t from, std::size_t end) noexcept {
  while (from < end) {
    const ssize_t got =
        ::pread(file, memory.data() + from, std::min(block, end - from), static_cast<off_t>(from));
    if (got <= 0) return false;
    from += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

Result<CopiedFile> CopiedFile::read(const std::string& path) {
  TRY_ASSIGN(const RawFile file, RawFile::open(path));
  const std::size_t size = file.bytes();
  if (size == 0) return CopiedFile({});
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return tl::unexpected<Error>(system_error(path, "cannot be copied"));
  CopiedFile copy({static_cast<std::byte*>(memory), size});
  ::madvise(memory, size, MADV_HUGEPAGE);
  const std::size_t half = size / 2 / huge_page * huge_page;
  bool good = false;
  std::thread other([&] { good = read_part(file.descriptor(), copy.memory_, half, size); });
  const bool mine = read_part(file.descriptor(), copy.memory_, 0, half);
  other.join();
  if (!mine || !good) return tl::unexpected<Error>(system_error(path, "a read failed"));
  return copy;
}

CopiedFile::CopiedFile(CopiedFile&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}

CopiedFile::~CopiedFile() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

}  // namespace weightmap::cli::bench
