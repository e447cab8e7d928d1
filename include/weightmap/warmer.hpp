// Brings tensors into memory before they are asked for, in the background.
//
//   auto warmer = weightmap::Warmer::start(checkpoint);         // the whole file, in file order
//   if (!warmer) return fail(warmer.error());
//   auto there = checkpoint.demand(first_needed);  // reads it now; the warmer gives way meanwhile
//   auto report = warmer->wait();
//
// A tensor that was warmed costs no disk and few page faults when it is read. Warming changes
// nothing else: a tensor that was not is read when it is touched, as before.
//
// Pages are brought in and mapped by MADV_POPULATE_READ (Linux 5.14), in 2 MiB steps of huge pages
// where the file system has them; an older kernel fills the page cache by pread and maps nothing.
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
  // Positions in Checkpoint::tensors(), in the order in which they will be needed. Empty: the whole
  // file, in its own order.
  std::vector<std::size_t> tensors = {};
  // Instead of `tensors`, and not with `follow`: parts of tensors of this checkpoint, as narrow()
  // and select() give them and pieces() of chunks.hpp, in the order in which they will be needed.
  // The pages that they touch are read and none around them; rows that lie within 16 KiB of one
  // another come with what is between. For the rank that needs a slice of each tensor only. Empty:
  // what `tensors` says.
  std::vector<TensorSlice> slices = {};
  // Two keep a disk busy while one of them waits for it; at most 64.
  unsigned threads = 2;
  // What a thread brings in between two looks at whether somebody waits in Checkpoint::demand(), or
  // called cancel(); at least 2 MiB. More makes these wait longer, and brings nothing.
  std::uint64_t step_bytes = std::uint64_t{2} << 20;
  // Stop after this many bytes. 0: what fits into the memory that the machine and the process's
  // cgroup have left, so that warming never throws out what it has just brought in.
  std::uint64_t budget_bytes = 0;
  // What happens beyond the budget. false: it is left out. true: the warmer keeps so many bytes
  // ahead of the consumer and waits until passed() tells it to go on; what the consumer has passed
  // before it came in is skipped.
  bool follow = false;
  // With `follow`: passed() also drops what is not needed any more from the mapping and from the
  // page cache, whoever brought it in, so that a file larger than memory displaces nothing else. It
  // is read again if it is touched again. Not for a checkpoint that is private and writable; not
  // together with verify_crc.
  bool drop_behind = false;
  // Lock what comes in, so that it stays in memory until the Checkpoint is destroyed. Needs Linux
  // 5.14; not together with `follow`.
  bool lock = false;
  // Compare the CRC-32 of every storage that is brought in as a whole, as soon as it is there: one
  // more thread, which reads from memory and not from the disk.
  bool verify_crc = false;
  // Of all warmers of this user that warm the same file at the same time, in whatever processes,
  // one reads from the disk; the others wait for its pages and map them, each in its own order.
  // When the reader ends, or is killed, one of those who still miss something reads on. All must
  // set this, and find the same runtime directory (runtime_directory.hpp); without one each reads
  // for itself. demand() never waits for a reader, and cancel() ends the wait. Not together with
  // `follow`, which would make all wait for one consumer.
  bool one_reader = false;
  // With `one_reader`: a reader that has not begun a step for so long (it was stopped, or its disk
  // does not answer) is waited for no longer: this warmer then reads for itself.
  std::chrono::milliseconds reader_patience{30'000};
};

struct WarmProgress {
  std::uint64_t bytes_done = 0;  // of the file, brought in; never goes back
  std::uint64_t bytes_all = 0;   // that were planned
  bool finished = false;         // nothing more will happen
};

struct WarmReport {
  std::string_view method;    // by what: "populate", or "read", which maps nothing
  std::string method_reason;  // what the system lacks for "populate"; or empty
  // Nothing was read ahead, since this system was seen to bring the file in by huge pages. false:
  // it was not, so the system read ahead as it likes; or the method is "read"; or another process
  // was the reader.
  bool exact_reads = false;
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_left_out = 0;  // by the budget
  std::uint64_t bytes_skipped = 0;   // with `follow`: the consumer was faster
  std::string budget_reason;         // "MemAvailable", "memory.max of /pod"; empty if it was given
  std::uint64_t budget_bytes = 0;
  std::uint64_t steps = 0;              // that were planned, also if it was cancelled
  std::uint64_t waits_for_demands = 0;  // how often a thread gave way to demand() before a step
  bool cancelled = false;
  // With verify_crc: what was compared, with a fault for each storage that differs, and how many
  // storages were not brought in as a whole.
  CrcReport crc;
  std::uint64_t storages_left_out = 0;
  // With one_reader. A warmer that found all of it cached was no reader and waited for none.
  bool was_reader = false;             // this one was elected, at the beginning or later
  std::uint64_t takeovers = 0;         // 1 if it was elected after it had waited for another
  std::uint64_t bytes_read = 0;        // by this one: what was not cached when its turn came
  std::uint64_t bytes_waited_for = 0;  // that another read meanwhile
  std::string why_alone;               // why this one read for itself; else empty
  std::chrono::nanoseconds time{};
};

// Movable. The Checkpoint must outlive it; moving the Checkpoint is fine. progress(), passed(),
// cancel() and wait_for() may be called from any thread; wait() from one at a time.
//
// A warmer belongs to the process that started it. In a forked child, where its threads do not
// exist, progress() answers that it is finished, passed() and cancel() do nothing, wait() fails,
// and the destructor leaves its memory behind. The child may start warmers of its own.
class WEIGHTMAP_API Warmer {
 public:
  // Begins and returns. Fails with invalid_argument for options out of range or that exclude one
  // another, and with unsupported for what this kernel or this checkpoint does not allow.
  static Result<Warmer> start(const Checkpoint& checkpoint, const WarmOptions& options = {});

  Warmer(Warmer&&) noexcept;
  Warmer& operator=(Warmer&&) noexcept;
  ~Warmer();  // cancels and waits for the step that is under way

  WarmProgress progress() const noexcept;
  // The consumer has done with this tensor, a position in Checkpoint::tensors(), and with all that
  // come before it in WarmOptions::tensors, or in the file if that is empty. Their pages are then
  // the first to go when the system needs memory; with `drop_behind` they go at once. For
  // WarmOptions::follow; does nothing without it, or if the tensor was passed already or is not
  // among them.
  void passed(std::size_t tensor);
  // Stops at the next step, also while it gives way to demand(), and within a MiB of a checksum;
  // wait() then says how far it came.
  void cancel() noexcept;
  // Blocks until the work is done, cancelled or has failed; with `follow` until passed() was told
  // of enough. Fails with io, at the byte, if the file was truncated, the disk failed, or the
  // system does not lock so much; with invalid_argument in a forked child of the process that
  // started it. Called again it answers the same.
  Result<WarmReport> wait();
  // Blocks until wait() would not, or for so long. Answers whether wait() would not block.
  bool wait_for(std::chrono::nanoseconds most) const noexcept;

 private:
  explicit Warmer(std::unique_ptr<WarmWork> work) noexcept;
  std::unique_ptr<WarmWork> work_;
};

}  // namespace weightmap
