#include "bench/expert_ways.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "bench/played_policy.hpp"

namespace {

using weightmap::Checkpoint;
using weightmap::ResidentSet;
using Units = std::span<const std::size_t>;

constexpr std::uint64_t page_bytes = 4096, large_page = std::uint64_t{2} << 20;
constexpr std::uint64_t read_bytes = std::uint64_t{1} << 20;  // of one read of a ResidentSet
constexpr unsigned set_threads = 8;                           // likewise, on a local disk

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "experts_once: %s\n", why.c_str());
  std::exit(1);
}

std::uint64_t down(std::uint64_t offset) { return offset / page_bytes * page_bytes; }
std::uint64_t up(std::uint64_t offset) { return down(offset + page_bytes - 1); }

std::uint64_t sum_of(std::span<const std::byte> bytes) {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(bytes.data());
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size() / sizeof *words; ++i) sum += words[i];
  return sum;
}

// The end of the file may be inside the last page.
void read_all(int file, std::byte* to, std::uint64_t offset, std::uint64_t bytes,
              std::uint64_t file_bytes) {
  while (bytes != 0 && offset < file_bytes) {
    const ssize_t count = pread(file, to, bytes, static_cast<off_t>(offset));
    if (count <= 0) refuse("cannot read the file");
    const auto done = std::min(static_cast<std::uint64_t>(count), bytes);
    to += done, offset += done, bytes -= done;
  }
}

// Two halves in parallel, of whole pages.
void in_halves(std::uint64_t bytes, const std::function<void(std::uint64_t, std::uint64_t)>& work) {
  const std::uint64_t half = up(bytes / 2);
  std::jthread other([&] { work(half, bytes - half); });
  work(0, half);
}

// Pages of memory, or of a file.
class Mapped {
 public:
  // At the beginning of a huge page.
  explicit Mapped(std::uint64_t bytes)
      : Mapped(mmap(nullptr, bytes + large_page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
               bytes + large_page) {
    const auto address = reinterpret_cast<std::uintptr_t>(data_);
    data_ += (large_page - address % large_page) % large_page;
    madvise(data_, bytes, MADV_HUGEPAGE);
  }
  explicit Mapped(const ExpertFile& experts)
      : Mapped(mmap(nullptr, experts.bytes, PROT_READ, MAP_SHARED, experts.file, 0),
               experts.bytes) {}
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { munmap(all_, all_bytes_); }
  std::byte* at(std::uint64_t offset) const { return data_ + offset; }

 private:
  Mapped(void* all, std::uint64_t bytes)
      : all_(all), all_bytes_(bytes), data_(static_cast<std::byte*>(all)) {
    if (all == MAP_FAILED) refuse("there is no memory");
  }

  void* all_;
  std::uint64_t all_bytes_;
  std::byte* data_;
};

// Page faults, with one advice for all pages or none.
class Mapping : public ExpertWay {
 public:
  explicit Mapping(const ExpertFile& experts, int advice = MADV_NORMAL)
      : experts_(experts), mapped_(experts) {
    madvise(mapped_.at(0), experts.bytes, advice);
  }
  void bring(Units) override {}
  std::uint64_t use(std::size_t unit) override {
    return sum_of({mapped_.at(range(unit).offset), range(unit).bytes});
  }

 protected:
  const ExpertFile::Range& range(std::size_t unit) const { return experts_.ranges[unit]; }
  std::span<std::byte> pages(std::size_t unit) const {
    const std::uint64_t begin = down(range(unit).offset);
    return {mapped_.at(begin), up(range(unit).offset + range(unit).bytes) - begin};
  }

  const ExpertFile& experts_;
  const Mapped mapped_;
};

// Each expert is brought by one system call.
class Populated final : public Mapping {
 public:
  using Mapping::Mapping;
  void bring(Units units) override {
    for (const std::size_t unit : units)
      if (madvise(pages(unit).data(), pages(unit).size(), MADV_POPULATE_READ) != 0)
        refuse("the system has no MADV_POPULATE_READ");
  }
};

// Two threads read each expert into the page cache, by reads whose bytes they drop.
class Warmed : public Mapping {
 public:
  using Mapping::Mapping;
  void bring(Units units) override {
    for (const std::size_t unit : units) warm(unit);
  }

 protected:
  void warm(std::size_t unit) const {
    in_halves(range(unit).bytes, [&](std::uint64_t begin, std::uint64_t bytes) {
      thread_local std::vector<std::byte> buffer(std::size_t{1} << 20);
      for (std::uint64_t done = 0; done < bytes; done += buffer.size())
        read_all(experts_.file, buffer.data(), range(unit).offset + begin + done,
                 std::min<std::uint64_t>(buffer.size(), bytes - done), experts_.bytes);
    });
  }
};

// The same where the page cache lacks a part, and what was not used for long is dropped from it.
class WarmedLru final : public Warmed {
 public:
  WarmedLru(const ExpertFile& experts, std::size_t room)
      : Warmed(experts), lru_(weightmap::eviction_policy("lru"), experts.units.size(), room) {}
  void bring(Units units) override {
    const PlayedPolicy::Call call = lru_.acquire(units);
    for (const std::size_t gone : call.gone) drop(gone);
    for (const std::size_t unit : call.missing) missed_ += range(unit).bytes;
    for (const std::size_t unit : units)
      if (!is_cached(unit)) warm(unit);
  }
  std::uint64_t missed_bytes() override { return missed_; }

 private:
  bool is_cached(std::size_t unit) const {
    std::vector<unsigned char> present(pages(unit).size() / page_bytes);
    mincore(pages(unit).data(), pages(unit).size(), present.data());
    return std::ranges::all_of(present, [](unsigned char page) { return (page & 1) != 0; });
  }
  void drop(std::size_t unit) const {
    madvise(pages(unit).data(), pages(unit).size(), MADV_DONTNEED);
    posix_fadvise(experts_.file, static_cast<off_t>(range(unit).offset),
                  static_cast<off_t>(range(unit).bytes), POSIX_FADV_DONTNEED);
  }

  PlayedPolicy lru_;
  std::uint64_t missed_ = 0;
};

// Own memory for as many experts as the budget has room for, read by two threads.
class Slots final : public ExpertWay {
 public:
  Slots(const ExpertFile& experts, std::size_t room, bool is_direct)
      : experts_(experts),
        is_direct_(is_direct),
        slot_bytes_(largest(experts)),
        lru_(weightmap::eviction_policy("lru"), experts.units.size(), room),
        memory_(slot_bytes_ * room),
        slots_(experts.units.size()) {
    if (is_direct && experts.direct < 0) refuse("the file system has no O_DIRECT");
    for (std::size_t slot = 0; slot < room; ++slot) free_.push_back(memory_.at(slot * slot_bytes_));
  }
  void bring(Units units) override {
    const PlayedPolicy::Call call = lru_.acquire(units);
    for (const std::size_t gone : call.gone) free_.push_back(slots_[gone]);
    for (const std::size_t unit : call.missing) {
      slots_[unit] = free_.back();
      free_.pop_back();
      missed_ += experts_.ranges[unit].bytes;
      fill(unit);
    }
  }
  std::uint64_t use(std::size_t unit) override {
    const ExpertFile::Range& range = experts_.ranges[unit];
    return sum_of({slots_[unit] + range.offset % page_bytes, range.bytes});
  }
  std::uint64_t missed_bytes() override { return missed_; }

 private:
  static std::uint64_t largest(const ExpertFile& experts) {
    std::uint64_t most = 0;
    for (const ExpertFile::Range& range : experts.ranges)
      most = std::max(most, up(range.offset + range.bytes) - down(range.offset));
    return most;
  }
  // The whole pages: bytes lie in them as in the file, so that both kinds of reads suit.
  void fill(std::size_t unit) const {
    const ExpertFile::Range& range = experts_.ranges[unit];
    const std::uint64_t first = down(range.offset);
    in_halves(up(range.offset + range.bytes) - first,
              [&](std::uint64_t begin, std::uint64_t bytes) {
                read_all(is_direct_ ? experts_.direct : experts_.file, slots_[unit] + begin,
                         first + begin, bytes, experts_.bytes);
              });
  }

  const ExpertFile& experts_;
  const bool is_direct_;
  const std::uint64_t slot_bytes_;
  PlayedPolicy lru_;
  const Mapped memory_;
  std::vector<std::byte*> slots_;  // by unit
  std::vector<std::byte*> free_;
  std::uint64_t missed_ = 0;
};

// The whole model.
class InMemory final : public ExpertWay {
 public:
  explicit InMemory(const ExpertFile& experts) : experts_(experts), memory_(up(experts.bytes)) {
    const bool is_direct = experts.direct >= 0;
    for (std::uint64_t at = 0; at < experts.bytes; at += read_bytes)
      read_all(is_direct ? experts.direct : experts.file, memory_.at(at), at,
               std::min(read_bytes, up(experts.bytes) - at), experts.bytes);
  }
  void bring(Units) override {}
  std::uint64_t use(std::size_t unit) override {
    return sum_of({memory_.at(experts_.ranges[unit].offset), experts_.ranges[unit].bytes});
  }

 private:
  const ExpertFile& experts_;
  const Mapped memory_;
};

class Weightmap final : public ExpertWay {
 public:
  Weightmap(const Checkpoint& checkpoint, const ExpertFile& experts, const WayOptions& options)
      : set_(made(checkpoint, experts, options)) {}
  void bring(Units units) override {
    auto leases = set_.acquire(units);
    if (!leases) refuse(to_string(leases.error()));
    leases_ = std::move(*leases);
  }
  std::uint64_t use(std::size_t unit) override {
    const auto lease = std::ranges::find(leases_, unit, &weightmap::Lease::unit);
    std::uint64_t sum = 0;
    for (std::size_t part = 0; part < set_.units()[unit].parts.size(); ++part)
      sum += sum_of(lease->part(part));
    return sum;
  }
  void end_use() override { leases_.clear(); }
  std::uint64_t missed_bytes() override { return set_.stats().missed_bytes; }
  const ResidentSet* set() const override { return &set_; }

 private:
  static ResidentSet made(const Checkpoint& checkpoint, const ExpertFile& experts,
                          const WayOptions& options) {
    auto set = ResidentSet::of(checkpoint, experts.units,
                               {.budget_bytes = options.budget, .share = options.share});
    if (!set) refuse(to_string(set.error()));
    return std::move(*set);
  }

  const ResidentSet set_;
  std::vector<weightmap::Lease> leases_;
};

std::uint64_t largest_unit(const ExpertFile& experts) {
  return std::ranges::max_element(experts.ranges, {}, &ExpertFile::Range::bytes)->bytes;
}

}  // namespace

ExpertFile expert_file(const Checkpoint& checkpoint, const std::string& path) {
  auto units = weightmap::expert_units(checkpoint);
  if (!units) refuse(to_string(units.error()));
  ExpertFile experts{path,
                     open(path.c_str(), O_RDONLY | O_CLOEXEC),
                     open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT),
                     checkpoint.mapping().size(),
                     std::move(*units),
                     {}};
  if (experts.file < 0) refuse("cannot open " + path);
  for (const weightmap::Unit& unit : experts.units) {
    std::uint64_t first = experts.bytes, end = 0, bytes = 0;
    for (const weightmap::UnitPart& part : unit.parts) {
      const std::span<const std::byte> view = checkpoint.find(part.tensor)->bytes();
      const auto begin = static_cast<std::uint64_t>(view.data() - checkpoint.mapping().data());
      if (part.index) refuse("the experts are slices of tensors; they have to be tensors");
      first = std::min(first, begin);
      end = std::max(end, begin + view.size());
      bytes += view.size();
    }
    if (end - first != bytes || bytes % 8 != 0)
      refuse("the parts of " + unit.name + " do not lie side by side");
    experts.ranges.push_back({first, bytes});
  }
  return experts;
}

double disk_rate(const ExpertFile& experts, std::uint64_t bytes) {
  if (experts.direct < 0) return 0;
  const std::uint64_t reads_each = std::max<std::uint64_t>(largest_unit(experts) / read_bytes, 1);
  const std::uint64_t count =
      std::clamp<std::uint64_t>(bytes / (reads_each * read_bytes), 1, experts.ranges.size());
  std::atomic<std::uint64_t> next = 0, read = 0;
  const auto began = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < set_threads; ++thread)
      threads.emplace_back([&] {
        const Mapped buffer(large_page);  // a whole one, which a disk fills sooner
        for (std::uint64_t at = next++; at < count * reads_each; at = next++) {
          const std::size_t unit = at / reads_each * experts.ranges.size() / count;
          const ssize_t got = pread(
              experts.direct, buffer.at(0), read_bytes,
              static_cast<off_t>(down(experts.ranges[unit].offset) + at % reads_each * read_bytes));
          if (got > 0) read += static_cast<std::uint64_t>(got);
        }
      });
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - began;
  return static_cast<double>(read) / time.count();
}

std::unique_ptr<ExpertWay> expert_way(const std::string& name, const Checkpoint& checkpoint,
                                      const ExpertFile& experts, const WayOptions& options) {
  const auto room = static_cast<std::size_t>(options.budget / up(largest_unit(experts)));
  const std::map<std::string, std::function<std::unique_ptr<ExpertWay>()>> ways = {
      {"mapping", [&] { return std::make_unique<Mapping>(experts); }},
      {"random", [&] { return std::make_unique<Mapping>(experts, MADV_RANDOM); }},
      {"populate", [&] { return std::make_unique<Populated>(experts); }},
      {"pread", [&] { return std::make_unique<Warmed>(experts); }},
      {"pread_lru", [&] { return std::make_unique<WarmedLru>(experts, room); }},
      {"slots", [&] { return std::make_unique<Slots>(experts, room, false); }},
      {"direct", [&] { return std::make_unique<Slots>(experts, room, true); }},
      {"memory", [&] { return std::make_unique<InMemory>(experts); }},
      {"weightmap", [&] { return std::make_unique<Weightmap>(checkpoint, experts, options); }},
  };
  const auto found = ways.find(name);
  if (found == ways.end()) refuse("there is no way " + name);
  return found->second();
}
