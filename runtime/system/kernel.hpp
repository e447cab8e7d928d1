// Linux interfaces that the oldest supported headers lack, each with its first kernel. The running
// kernel may lack them; only a call can tell.
#pragma once

#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cstdint>

// In the headers, constants are macros.
#ifndef MADV_POPULATE_READ
constexpr int MADV_POPULATE_READ =
    22;  // Linux 5.14: maps the pages it reads, and fails without a signal
#endif
#ifndef MADV_POPULATE_WRITE
constexpr int MADV_POPULATE_WRITE = 23;  // Linux 5.14
#endif
#ifndef MADV_COLLAPSE
constexpr int MADV_COLLAPSE = 25;  // Linux 6.1
#endif
#ifndef MFD_NOEXEC_SEAL
constexpr unsigned MFD_NOEXEC_SEAL = 8;  // Linux 6.3
#endif

namespace weightmap::os::kernel {

// cachestat(2), Linux 6.5.
constexpr long cachestat_call = 451;  // on all architectures
struct CachestatRange {
  std::uint64_t offset;
  std::uint64_t length;  // 0: to the end of the file
};
struct Cachestat {  // in pages
  std::uint64_t cached;
  std::uint64_t dirty;
  std::uint64_t in_writeback;
  std::uint64_t evicted;
  std::uint64_t recently_evicted;
};

// ioctl(PAGEMAP_SCAN) of /proc/PID/pagemap, Linux 6.7 (<linux/fs.h>).
struct PageRegion {
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t categories;
};
struct PagemapScan {
  std::uint64_t size;
  std::uint64_t flags;
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t walk_end;  // output
  std::uint64_t vec;
  std::uint64_t vec_len;
  std::uint64_t max_pages;
  std::uint64_t category_inverted;
  std::uint64_t category_mask;
  std::uint64_t category_anyof_mask;
  std::uint64_t return_mask;
};
constexpr unsigned long pagemap_scan = _IOWR('f', 16, PagemapScan);
constexpr std::uint64_t page_is_file = 1 << 2;
constexpr std::uint64_t page_is_present = 1 << 3;
constexpr std::uint64_t page_is_huge = 1 << 6;

// The bits of an entry of /proc/PID/pagemap, from Documentation/admin-guide/mm/pagemap.rst.
constexpr std::uint64_t entry_is_exclusive = std::uint64_t{1} << 56;  // Linux 4.2: mapped once
constexpr std::uint64_t entry_is_file = std::uint64_t{1} << 61;       // Linux 3.5
constexpr std::uint64_t entry_is_present = std::uint64_t{1} << 63;

// File system types of statfs (<linux/magic.h> lacks some of them).
constexpr std::uint64_t xfs_magic = 0x58465342;
constexpr std::uint64_t zfs_magic = 0x2fc12fc1;
constexpr std::uint64_t bcachefs_magic = 0xca451a4e;

}  // namespace weightmap::os::kernel
