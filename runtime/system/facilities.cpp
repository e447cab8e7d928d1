#include "runtime/system/facilities.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>

#include "runtime/system/kernel.hpp"
#include "runtime/system/page_size.hpp"
#include "runtime/system/unique_fd.hpp"

namespace weightmap::os {

bool has_populate_read() noexcept {
  const auto size = static_cast<std::size_t>(page_bytes());
  void* const page =
      ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (page == MAP_FAILED) return false;
  const bool is_known = ::madvise(page, size, MADV_POPULATE_READ) == 0;
  ::munmap(page, size);
  return is_known;
}

// Passes no file: a kernel with this call reports a bad descriptor.
bool has_cachestat() noexcept {
  kernel::CachestatRange range{};
  kernel::Cachestat counts{};
  return ::syscall(kernel::cachestat_call, -1, &range, &counts, 0u) != 0 && errno == EBADF;
}

std::string kernel_release() {
  utsname names{};
  return ::uname(&names) == 0 ? names.release : "";
}

// Returns the word in brackets: "always [madvise] never".
std::string huge_page_setting() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']');
  return close == std::string::npos ? "" : line.substr(open + 1, close - open - 1);
}

bool host_takes_back_free_memory() noexcept {
  static const bool takes = [] {
    // Without a driver that reports, it is -1, or not there. A block has 2^order pages.
    const UniqueFd parameter(
        ::open("/sys/module/page_reporting/parameters/page_reporting_order", O_RDONLY | O_CLOEXEC));
    std::array<char, 1> first{};
    if (parameter.get() < 0 || ::read(parameter.get(), first.data(), first.size()) != 1)
      return false;
    return first[0] >= '1' && first[0] <= '9';
  }();
  return takes;
}

}  // namespace weightmap::os
