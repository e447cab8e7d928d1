// Prefetches tensors in background threads.
//
//   auto warmer = weightmap::Warmer::start(checkpoint);         // the whole file, in file order
//   if (!warmer) return tl::unexpected(warmer.error());
//   auto there = checkpoint.demand(needed);  // reads it now; the warmer gives way meanwhile
//   auto report = warmer->wait();
//
// Reading a prefetched tensor needs no disk and few page faults. Other tensors are read when they
// are touched, as before.
//
// Pages are read and mapped by MADV_POPULATE_READ (Linux 5.14), in 2 MiB steps of huge pages where
// the file system has them; an older kernel fills the page cache by pread and maps nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

class WarmWork;

struct WarmOptions {
  // Positions in Checkpoint::tensors(), in the order of use. Empty: the whole file, in order.
  std::vector<std::size_t> tensors = {};
  // Instead of `tensors`, and not with `follow`: parts of tensors of this checkpoint, from
  // narrow(), select() or pieces() of chunks.hpp, in the order of use, for a rank that needs only a
  // slice of each tensor. Only the pages that they touch are read; rows within 16 KiB of one
  // another are read together with the gap between them. Empty: `tensors` applies.
  std::vector<TensorSlice> slices = {};
  // Two threads keep a disk busy while one of them waits for it; at most 64.
  unsigned threads = 2;
  // Bytes that a thread reads between two checks for Checkpoint::demand() or cancel(); at least 2
  // MiB. A larger step makes these wait longer without any gain.
  std::uint64_t step_bytes = std::uint64_t{2} << 20;
  // Stops after this many bytes. 0: the memory that the machine and the process's cgroup have left,
  // so that the warmer never evicts its own pages.
  std::uint64_t budget_bytes = 0;
  // Beyond the budget: false leaves the rest out. true keeps so many bytes prefetched ahead of the
  // consumer and waits for passed() to go on; tensors that the consumer passed before are skipped.
  bool follow = false;
  // With `follow`: passed() also drops used pages from the mapping and from the page cache,
  // whichever process read them, so that a file larger than memory evicts nothing else. A later
  // touch reads them again. Not for a private writable checkpoint; not together with verify_crc.
  bool drop_behind = false;
  // Locks the pages during the Checkpoint's lifetime. Needs Linux 5.14; not together with `follow`.
  bool lock = false;
  // For other processes: reads into the page cache and maps nothing. The reads copy, which in a
  // virtual machine also has the host map fresh memory; pages that a disk has filled and nobody has
  // touched cost the first touch 3 us each there (docs/performance.md). Not together with `lock`.
  bool for_others = false;
  // Compares the CRC-32 of every storage that is prefetched as a whole, as soon as it is cached.
  // One more thread does so, from memory and not from the disk.
  bool verify_crc = false;
  // Elects one reader among all warmers of this user that prefetch the same file at the same time,
  // in any process. Only the reader uses the disk; the others wait for its pages and map them, each
  // in its own order. When the reader ends, or is killed, another warmer with remaining work takes
  // over. All must set this, and find the same runtime directory (runtime_directory.hpp); without
  // one each reads for itself. demand() never waits for a reader, and cancel() ends the wait. Not
  // together with `follow`, which would make all wait for one consumer.
  bool one_reader = false;
  // With `one_reader`: if a reader begins no step for this time (it was stopped, or its disk does
  // not respond), this warmer reads for itself.
  std::chrono::milliseconds reader_patience{30'000};
};

struct WarmProgress {
  std::uint64_t bytes_done = 0;  // of the file; never decreases
  std::uint64_t bytes_all = 0;   // planned bytes
  bool finished = false;         // all work has ended
};

struct WarmReport {
  // "populate"; "copy", which copies what is not cached before that, where the first touch of a
  // page is slow (virtual machines whose host takes back free memory); or "read", which maps
  // nothing.
  std::string_view method;
  std::string method_reason;  // the reason why it is "read"; or empty
  // True if the system read nothing ahead, since a test showed that huge pages of this file need
  // none. false: the test failed; or the method is "read"; or another process was the reader.
  bool exact_reads = false;
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_left_out = 0;  // by the budget
  std::uint64_t bytes_skipped = 0;   // with `follow`: the consumer had passed them
  std::string budget_reason;         // "MemAvailable", "memory.max of /pod"; empty if given
  std::uint64_t budget_bytes = 0;
  std::uint64_t steps = 0;              // planned steps, even if it was cancelled
  std::uint64_t waits_for_demands = 0;  // how often a thread gave way to demand() before a step
  bool cancelled = false;
  // With verify_crc: the comparisons, with a fault for each storage that differs, and the number of
  // storages that were not prefetched as a whole.
  CrcReport crc;
  std::uint64_t storages_left_out = 0;
  // With one_reader. A warmer that found everything cached was no reader and waited for none.
  bool was_reader = false;             // elected, at the beginning or later
  std::uint64_t takeovers = 0;         // 1 if it was elected after waiting for another reader
  std::uint64_t bytes_read = 0;        // by this one, of pages that were not cached
  std::uint64_t bytes_waited_for = 0;  // bytes that another reader read meanwhile
  std::string why_alone;               // the reason why this one read for itself; else empty
  std::chrono::nanoseconds time{};
};

// Movable. The Checkpoint must outlive it; moving the Checkpoint is fine. progress(), passed(),
// cancel() and wait_for() may be called from any thread; wait() from one at a time.
//
// A warmer belongs to the process that started it. In a forked child, which lacks its threads,
// progress() reports that it is finished, passed() and cancel() do nothing, wait() fails, and the
// destructor leaks its memory. The child may start warmers of its own.
class WEIGHTMAP_API Warmer {
 public:
  // Starts the work and returns. Fails with invalid_argument for options out of range or that
  // exclude one another, with unsupported for those that this kernel or checkpoint lacks.
  static Result<Warmer> start(const Checkpoint& checkpoint, const WarmOptions& options = {});

  Warmer(Warmer&&) noexcept;
  Warmer& operator=(Warmer&&) noexcept;
  ~Warmer();  // cancels and waits for the current step

  WarmProgress progress() const noexcept;
  // Reports that the consumer has finished with this tensor, a position in Checkpoint::tensors(),
  // and with all before it in WarmOptions::tensors, or in the file if that is empty. Their pages
  // become the first to be evicted under memory pressure; with `drop_behind` they are evicted at
  // once. For WarmOptions::follow; does nothing without it, or for a tensor that was passed or is
  // not planned.
  void passed(std::size_t tensor);
  // Stops at the next step, even while it gives way to demand(), and within a MiB of a checksum;
  // wait() then returns how far it came.
  void cancel() noexcept;
  // Blocks until the work has finished, was cancelled or has failed; with `follow` until passed()
  // has covered enough. Fails with io, at the byte, if the file was truncated, the disk failed, or
  // the system refuses to lock so much; with invalid_argument in a forked child of the process that
  // started it. Further calls return the same.
  Result<WarmReport> wait();
  // Blocks until wait() would not, or for this time. Returns whether wait() would return at once.
  bool wait_for(std::chrono::nanoseconds most) const noexcept;

 private:
  explicit Warmer(std::unique_ptr<WarmWork> work) noexcept;
  std::unique_ptr<WarmWork> work_;
};

}  // namespace weightmap
