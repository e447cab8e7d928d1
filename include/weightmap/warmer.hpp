// Brings checkpoints into memory: prefetches tensors in background threads, in an order that is
// kept from one start to the next, or copies whole files.
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
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

class WarmWork;

struct WarmOptions {
  // Positions in Checkpoint::tensors(), in the order of use. Empty: the whole file, in order, but
  // for what advise() has made Access::random, as far as it shares no large page with the rest.
  std::vector<std::size_t> tensors = {};
  // Instead of `tensors`, and not with `follow`: parts of tensors of this checkpoint, from
  // narrow(), select() or pieces() of chunks.hpp, in the order of use, for a rank that needs only a
  // slice of each tensor. Only the pages that they touch are read; rows within 16 KiB of one
  // another are read together with the gap between them. Empty: `tensors` applies.
  std::vector<TensorSlice> slices = {};
  // At most 64. 0: two, which keep a disk busy while one of them waits for it; of files on a
  // network or FUSE 32, since there each read waits for a server that answers many at once.
  unsigned threads = 0;
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
  // over. All must set this, and find the same runtime directory ($WEIGHTMAP_RUNTIME_DIR, else
  // $XDG_RUNTIME_DIR/weightmap, else /dev/shm/weightmap-UID); without one each reads for itself.
  // demand() never waits for a reader, and cancel() ends the wait. Not together with `follow`,
  // which would make all wait for one consumer.
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
  std::string budget_reason;         // "MemAvailable", "memory.max of /pod"; empty if given
  std::uint64_t budget_bytes = 0;
  std::uint64_t steps = 0;  // planned steps, even if it was cancelled
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

// The order in which a program needs its tensors, saved as text from one start to the next.
//
//   const std::string path = "model.pt.order";  // where `weightmap warm` looks
//   weightmap::WarmOptions options;
//   const auto order = weightmap::load_tensor_order(checkpoint, path);
//   if (order) options.tensors = order->tensors;
//   auto warmer = weightmap::Warmer::start(checkpoint, options);
//   auto there = checkpoint.demand(needed);  // reads it at once; so for each that is needed
//   const auto saved = weightmap::save_tensor_order(checkpoint, demand_order(checkpoint), path);
//
// An order file is UTF-8 text with one tensor on each line, which can also be written by hand. A
// line is a pattern (match_tensors()) for all tensors whose names match, in the order of
// tensors(); two tensors of one name both match. Spaces at either end of a line, empty lines and
// lines that begin with # are skipped. In a saved name, a backslash, a quotation mark, *, ?, [ and
// #, spaces at either end, control characters and bytes that are not UTF-8 are written as \xHH; the
// empty name is \ alone. All functions may be called from any thread.

struct TensorOrder {
  // Positions in Checkpoint::tensors(), each once: the first line that names a tensor counts. Empty
  // if the file has only comments; note that an empty WarmOptions::tensors means all tensors.
  std::vector<std::size_t> tensors;
  std::size_t unmatched_lines = 0;  // lines without a matching tensor in this checkpoint
};

// Returns positions in Checkpoint::tensors() in the order of the first demand() of each, including
// failed ones. A view counts as the first tensor that has its first byte.
WEIGHTMAP_API std::vector<std::size_t> demand_order(const Checkpoint& checkpoint);

// Writes the names of `tensors`, which are positions in Checkpoint::tensors(), to a new file in the
// directory of `path`, and then renames it to `path`, so that readers see the old or the new order.
// Names that would need a line of more than 1 MiB are omitted. Fails with invalid_argument if there
// is no such tensor, or if `path` is the checkpoint itself or not a regular file; with
// limit_exceeded beyond 64 MiB; with io if the system refuses to write.
WEIGHTMAP_API Result<void> save_tensor_order(const Checkpoint& checkpoint,
                                             std::span<const std::size_t> tensors,
                                             const std::filesystem::path& path);

// Reads an order file. Lines without a match are counted and skipped, since a model changes from
// one training run to the next. Fails with invalid_argument if no line matches, since the order
// then belongs to another model; with io if the file cannot be read or is not a regular file (a
// FIFO does not block); with limit_exceeded if it has more than 64 MiB, a line of more than 1 MiB,
// or lines with wildcards of more than 64 KiB together.
WEIGHTMAP_API Result<TensorOrder> load_tensor_order(const Checkpoint& checkpoint,
                                                    const std::filesystem::path& path);
// Does the same for any names, such as those of several checkpoints; returns positions in `names`.
WEIGHTMAP_API Result<TensorOrder> load_tensor_order(std::span<const std::string_view> names,
                                                    const std::filesystem::path& path);

// Copies a checkpoint into shared memory, for file systems that are slow to map.
//
//   auto staged = weightmap::stage("/mnt/remote/model.pt");
//   if (!staged) return tl::unexpected(staged.error());
//   auto checkpoint = weightmap::Checkpoint::open_descriptor(staged->descriptor());
//
// The copy uses its memory once for the whole machine: all processes that open it share its pages.
// By default it has no name (a memfd). Then it is sealed against changes, and is freed when the
// last process that has it open or mapped ends. Other processes get it by inheriting the
// descriptor, by receiving it over a Unix socket (SCM_RIGHTS) or, under the same user, by its
// path() while the StagedFile exists. With a name it is a file in /dev/shm, with mode 0600, which
// stays until it is removed; such a file cannot be sealed.
//
// The copy requests huge pages, and gets them where the system has them for shared memory (see
// /sys/kernel/mm/transparent_hugepage/shmem_enabled). Reserved ones (hugetlbfs) are not used: the
// size of a file there is a multiple of 2 MiB, while a zip archive must end with its directory.
//
// The copy can move to swap but not to a disk, and it cannot be evicted: only the end of the copy
// frees its memory. All functions may be called from any thread.

struct StageOptions {
  // The name of the file in /dev/shm: up to 255 bytes without a slash, not beginning with a dot.
  // Empty: memory without a name.
  std::string name = {};
  // A larger file is refused. 0: the memory that the machine, the process's cgroups and, with a
  // name, /dev/shm have left, less a sixteenth.
  std::uint64_t budget_bytes = 0;
  // Keeps the copy mapped for writing in this process, and seals it against every other way to
  // write to it (F_SEAL_FUTURE_WRITE, Linux 5.1): a driver that pins memory with write intent can
  // use StagedFile::pinnable_memory() directly. Not together with a name, since any process of the
  // user can map a file in /dev/shm for writing.
  bool pinnable = false;
  Progress progress = {};  // called by the calling thread
};

// How the file was read. All sizes are in bytes.
struct StageReport {
  std::uint64_t file_bytes = 0;
  std::uint64_t direct_bytes = 0;  // read past the page cache (O_DIRECT)
  std::uint64_t cached_bytes = 0;  // copied from the page cache, which held them before
  // Read through the page cache and dropped from it at once.
  std::uint64_t dropped_bytes = 0;
  std::string why_not_direct;    // why the file system refused direct reads; empty if it did not
  std::uint64_t huge_bytes = 0;  // of the copy, in huge pages
  bool sealed = false;           // unchangeable, except through pinnable_memory()
  std::chrono::nanoseconds time{};
};

// Movable. Const members may be called from several threads at once.
class WEIGHTMAP_API StagedFile {
 public:
  StagedFile(StagedFile&&) noexcept;
  StagedFile& operator=(StagedFile&&) noexcept;
  // Closes the descriptor. Memory without a name is freed once no other process has it open or
  // mapped; a file with a name stays.
  ~StagedFile();

  // Returns the descriptor of the copy, which is open for reading, close-on-exec, and owned by this
  // object. Clear FD_CLOEXEC so that a started program inherits it.
  int descriptor() const noexcept;
  // "/proc/PID/fd/N", valid while this object and this process exist, or "/dev/shm/NAME".
  const std::filesystem::path& path() const noexcept;
  const StageReport& report() const noexcept;
  // Returns the copy in this process's memory: writable, shared with all processes that have it
  // open, and valid as long as this object, also in a forked child. Empty unless
  // StageOptions::pinnable was set. All of these processes see a write.
  std::span<std::byte> pinnable_memory() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void pinnable_memory() const&& = delete;  // would dangle

  struct WEIGHTMAP_LOCAL State;  // for other parts of the library
  struct WEIGHTMAP_LOCAL Access;

 private:
  explicit StagedFile(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

// Copies a checkpoint into memory, and opens the copy to prove that it has the same tensors. Bytes
// that are not cached are read past the page cache, so that memory does not hold them twice. If the
// file system does not support that, they are dropped from the page cache afterwards.
//
// Fails as Checkpoint::open() does if the file is not a whole checkpoint, before anything is
// copied; with io if the copy does not fit into memory, the system refuses, the disk fails, or the
// file is written to or truncated meanwhile; with invalid_argument if the name cannot be used, or
// exists already. Nothing is left behind then, nor if the process is killed.
WEIGHTMAP_API Result<StagedFile> stage(const std::filesystem::path& path,
                                       const StageOptions& options = {});

// Removes /dev/shm/NAME. Processes that have it open or mapped keep it. Fails with invalid_argument
// if stage() would refuse the name, or it is not a regular file of this user; with io if it is
// missing.
WEIGHTMAP_API Result<void> remove_staged(const std::string& name);

// Returns true if the file itself is in memory (on tmpfs or the like, or a staged copy), so that
// reading it never waits for a disk and evicting it has no effect.
WEIGHTMAP_API bool lives_in_memory(const Checkpoint& checkpoint) noexcept;

}  // namespace weightmap
