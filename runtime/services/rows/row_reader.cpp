#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mmap/page_loader.hpp"
#include "mmap/pages/page_cache.hpp"
#include "mmap/pages/process_faults.hpp"
#include "mmap/pages/touched_pages.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/services/rows/row_table.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/memory/own_memory.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/on_demand.hpp"

namespace weightmap {
namespace {

// New pages that are asked for at a time: enough for any disk, and few enough to stay in the page
// cache until they are copied.
constexpr std::size_t most_pages = 16384;
// Rows whose first bytes are prefetched: each is a cache miss of its own.
constexpr std::size_t ahead = 8;
constexpr std::size_t most_rows_a_step = 256;
// Rows that a thread reads at a time while the budget is used up, and those from which on there are
// two to four threads: a row is a system call of a microsecond, a thread one of fifty.
constexpr std::size_t rows_a_part = 1024;
constexpr std::size_t fewest_for_threads = 4096;
// Rows that are read so before what is mapped begins anew.
constexpr std::uint64_t renewed_after = std::uint64_t{1} << 20;

using Rows = std::span<const std::int64_t>;
using Outputs = std::span<const std::span<std::byte>>;

ByteRange all_of(const std::vector<RowTable>& tables) {
  std::uint64_t begin = ~std::uint64_t{0}, end = 0;
  for (const RowTable& table : tables)
    for (const RowTable::Piece& piece : table.pieces()) {
      begin = std::min(begin, piece.position);
      end = std::max(end, piece.position + piece.bytes);
    }
  return end == 0 ? ByteRange{0, 0} : ByteRange{begin, end - begin};
}

}  // namespace

struct RowReader::State {
  State(Checkpoint::State& opened, std::vector<RowTable> given, std::uint64_t budget)
      : checkpoint(opened),
        tables(std::move(given)),
        budget_bytes(budget),
        covered(all_of(tables)),
        is_counted(covered.length > budget),
        touched(covered) {}

  // What was not cached of some rows.
  struct Missing {
    std::vector<std::uint64_t> pages;
    std::vector<std::pair<std::uint64_t, std::span<std::byte>>> rows;  // their positions
    bool is_taken_back = false;  // by the system, of what was mapped
  };

  Checkpoint::State& checkpoint;
  const std::vector<RowTable> tables;
  const std::uint64_t budget_bytes;
  std::map<const SourceFile*, os::UniqueFd> files;  // for reads beyond the budget
  const ByteRange covered;                          // from the first table to the last
  const bool is_counted;  // what is mapped: the budget is not enough for all
  // Of any thread:
  mmap::TouchedPages touched;
  std::atomic<std::uint64_t> mapped_bytes{0};              // by gathers, since they were given back
  std::atomic<std::uint64_t> bytes_a_row{os::large_page};  // that a row mapped lately
  std::atomic<std::uint64_t> rows_read{0};                 // since then

  void add_files();
  Result<void> advise();
  Result<void> check(Rows ids, Outputs out) const;
  Result<void> check_files() const;
  Result<void> gather(Rows ids, Outputs out);
  std::size_t end_of_wave(Rows ids, std::size_t begin, std::vector<std::uint64_t>& pages) const;
  void begin_to_read(std::vector<std::uint64_t>& pages);
  bool is_cached(ByteRange range);
  bool is_large_page_cached(std::uint64_t large_page) const;
  void copy(Rows ids, std::size_t begin, std::size_t end, Outputs out) const;
  void touch(Rows ids);
  void copy_touched(Rows ids, std::size_t begin, std::size_t end, Outputs out);
  std::size_t copy_new(Rows ids, std::size_t begin, std::size_t end, Outputs out);
  Result<void> read(Rows ids, std::size_t begin, Outputs out);
  void read_cached(Rows ids, std::size_t begin, std::size_t end, Outputs out, Missing& missing);
  // Calls work(mapped file, offset, length) for a range of the mapping, cut at the end of its file.
  template <class Work>
  void in_file(ByteRange range, const Work& work) const {
    const SourceFile& source = checkpoint.sources.at(range.offset);
    const std::uint64_t offset = range.offset - source.base();
    work(source.in(checkpoint.mapping), offset,
         std::min(range.length, source.file.size() - offset));
  }
  void give_back();
};

void RowReader::State::add_files() {
  for (const RowTable& table : tables)
    for (const RowTable::Piece& piece : table.pieces())
      if (const SourceFile& source = checkpoint.sources.at(piece.position);
          !files.contains(&source))
        files.emplace(&source, is_counted ? source.file.open_without_readahead() : os::UniqueFd());
}

Result<void> RowReader::State::advise() {
  if (files.empty()) return {};
  for (const RowTable& table : tables)
    for (const RowTable::Piece& piece : table.pieces())
      TRY(checkpoint.advise({piece.position, piece.bytes}, Access::random));
  return {};
}

// What was truncated would raise a signal, and what was written to would be other bytes.
Result<void> RowReader::State::check_files() const {
  for (const auto& [source, exact] : files) {
    TRY(source->in(checkpoint.mapping).check_not_lost());
    if (Result<void> same = source->file.check_unchanged(); !same)
      return tl::unexpected<Error>(source->about(std::move(same.error())));
  }
  return {};
}

Result<void> RowReader::State::check(Rows ids, Outputs out) const {
  if (out.size() != tables.size())
    return failure(ErrorCode::invalid_argument, std::to_string(out.size()) + " buffers for " +
                                                    std::to_string(tables.size()) + " tables");
  for (std::size_t i = 0; i < out.size(); ++i)
    if (std::uint64_t wanted = 0;
        !bytes::checked_mul<std::uint64_t>(ids.size(), tables[i].row_bytes(), &wanted) ||
        out[i].size() != wanted)
      return failure(ErrorCode::invalid_argument,
                     "the buffer of " + bytes::quote(tables[i].name()) + " has " +
                         std::to_string(out[i].size()) + " bytes, not " +
                         std::to_string(ids.size()) + " rows of " +
                         std::to_string(tables[i].row_bytes()));
  const std::int64_t rows = tables.front().rows();
  const auto wrong = std::ranges::find_if(ids, [rows](std::int64_t id) {
    return static_cast<std::uint64_t>(id) >= static_cast<std::uint64_t>(rows);
  });
  if (wrong == ids.end()) return {};
  return failure(ErrorCode::invalid_argument,
                 "id " + std::to_string(*wrong) + ", number " +
                     std::to_string(wrong - ids.begin()) + ", is no row of " +
                     bytes::quote(tables.front().name()) + ", which has " + std::to_string(rows));
}

Result<void> RowReader::State::gather(Rows ids, Outputs out) {
  std::vector<std::uint64_t> pages;
  for (std::size_t begin = 0; begin < ids.size();) {
    if (mapped_bytes.load() >= budget_bytes) return read(ids, begin, out);
    pages.clear();
    const std::size_t end = end_of_wave(ids, begin, pages);
    if (pages.empty()) {
      copy_touched(ids, begin, end, out);
      begin = end;
    } else {
      begin_to_read(pages);
      begin = copy_new(ids, begin, end, out);
    }
  }
  return {};
}

// Collects the pages that may have to be read; and those that are to be counted, if any are.
std::size_t RowReader::State::end_of_wave(Rows ids, std::size_t begin,
                                          std::vector<std::uint64_t>& pages) const {
  std::size_t end = begin;
  for (; end < ids.size() && pages.size() < most_pages; ++end)
    for (const RowTable& table : tables)
      if (is_counted)
        touched.add_untouched(table.range_of(ids[end]), pages);
      else
        touched.add_uncached(table.range_of(ids[end]), pages);
  return end;
}

// Asks for the pages but for those in large pages that are cached.
void RowReader::State::begin_to_read(std::vector<std::uint64_t>& pages) {
  std::ranges::sort(pages);
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  const std::uint64_t page_bytes = os::page_bytes();
  for (std::size_t i = 0; i < pages.size();) {
    std::size_t end = i + 1;
    while (end < pages.size() && pages[end] == pages[end - 1] + 1) ++end;
    const ByteRange range{pages[i] * page_bytes, (end - i) * page_bytes};
    if (!is_cached(range)) in_file(range, mmap::begin_to_read);
    i = end;
  }
}

// By large pages, of which each is asked about once.
bool RowReader::State::is_cached(ByteRange range) {
  const auto ask = [this](std::uint64_t large_page) { return is_large_page_cached(large_page); };
  const std::uint64_t last = (range.offset + range.length - 1) / os::large_page;
  for (std::uint64_t at = range.offset / os::large_page; at <= last; ++at)
    if (!touched.is_full(at, ask)) return false;
  return true;
}

bool RowReader::State::is_large_page_cached(std::uint64_t large_page) const {
  bool is_cached = false;
  const std::uint64_t begin = std::max(large_page * os::large_page, covered.offset);
  const std::uint64_t end =
      std::min((large_page + 1) * os::large_page, covered.offset + covered.length);
  in_file({begin, end - begin},
          [&](const mmap::MappedFile& mapped, std::uint64_t offset, std::uint64_t length) {
            is_cached = mmap::is_surely_cached(mapped, offset, length);
          });
  return is_cached;
}

void RowReader::State::copy(Rows ids, std::size_t begin, std::size_t end, Outputs out) const {
  const std::byte* const mapping = checkpoint.mapping.bytes().data();
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const RowTable& table = tables[i];
    const std::uint64_t bytes = table.row_bytes();
    std::byte* to = out[i].data() + begin * bytes;
    for (std::size_t at = begin; at < end; ++at, to += bytes) {
      if (at + ahead < end) __builtin_prefetch(mapping + table.range_of(ids[at + ahead]).offset);
      std::memcpy(to, mapping + table.range_of(ids[at]).offset, bytes);
    }
  }
}

void RowReader::State::touch(Rows ids) {
  for (const std::int64_t id : ids)
    for (const RowTable& table : tables) touched.touch(table.range_of(id));
}

void RowReader::State::copy_touched(Rows ids, std::size_t begin, std::size_t end, Outputs out) {
  const std::uint64_t before = mmap::thread_major_faults();
  copy(ids, begin, end, out);
  if (mmap::thread_major_faults() != before)
    touched.forget();  // the system has taken back some of them
}

// Returns the row before which the budget was used up, else `end`. In steps that map no more than
// it has left, as far as the last step tells: a fault may map what is cached around its page, too,
// up to a large page.
std::size_t RowReader::State::copy_new(Rows ids, std::size_t begin, std::size_t end, Outputs out) {
  if (!is_counted) {
    copy(ids, begin, end, out);
    touch(ids.subspan(begin, end - begin));
    return end;
  }
  while (begin < end && mapped_bytes.load() < budget_bytes) {
    const std::uint64_t left = budget_bytes - std::min(budget_bytes, mapped_bytes.load());
    const std::size_t rows = std::clamp<std::size_t>(left / bytes_a_row.load(), 1,
                                                     std::min(end - begin, most_rows_a_step));
    const std::uint64_t before = os::resident_file_bytes();
    copy(ids, begin, begin + rows, out);
    const std::uint64_t after = os::resident_file_bytes();
    touch(ids.subspan(begin, rows));
    const std::uint64_t more = after > before ? after - before : 0;
    bytes_a_row = std::max<std::uint64_t>(more / rows + 1, bytes_a_row.load() / 2);
    if ((mapped_bytes += more) > budget_bytes + budget_bytes / 32) give_back();
    begin += rows;
  }
  return begin;
}

// The budget is used up: rows of pages that are not mapped are read. After many of them others may
// be wanted often, and what the system has taken back is not known, so that it begins anew.
Result<void> RowReader::State::read(Rows ids, std::size_t begin, Outputs out) {
  const std::size_t left = ids.size() - begin;
  std::vector<Missing> missing((left + rows_a_part - 1) / rows_a_part);
  const unsigned most = std::clamp(std::thread::hardware_concurrency(), 1u, 4u);
  TRY(parallel_for(missing.size(), left < fewest_for_threads ? 1 : most, [&](std::size_t part) {
    const std::size_t first = begin + part * rows_a_part;
    read_cached(ids, first, std::min(first + rows_a_part, ids.size()), out, missing[part]);
    return Result<void>();
  }));
  std::vector<std::uint64_t> pages;
  for (const Missing& of_part : missing)
    pages.insert(pages.end(), of_part.pages.begin(), of_part.pages.end());
  begin_to_read(pages);
  bool is_taken_back = false;
  for (const Missing& of_part : missing) {
    is_taken_back = is_taken_back || of_part.is_taken_back;
    for (const auto& [position, to] : of_part.rows) TRY(checkpoint.sources.read(position, to));
  }
  if (rows_read > renewed_after || is_taken_back) give_back();
  return {};
}

// Reads those rows that are mapped or cached.
void RowReader::State::read_cached(Rows ids, std::size_t begin, std::size_t end, Outputs out,
                                   Missing& missing) {
  const std::uint64_t before = mmap::thread_major_faults();
  std::uint64_t read = 0;
  for (std::size_t i = 0; i < tables.size(); ++i)
    for (std::size_t at = begin; at < end; ++at) {
      const ByteRange range = tables[i].range_of(ids[at]);
      const std::span<std::byte> to = out[i].subspan(at * range.length, range.length);
      const std::size_t known = missing.pages.size();
      touched.add_untouched(range, missing.pages);
      if (missing.pages.size() == known) {
        std::memcpy(to.data(), checkpoint.mapping.bytes().data() + range.offset, range.length);
        continue;
      }
      ++read;
      const SourceFile& source = checkpoint.sources.at(range.offset);
      if (os::read_if_cached(files.at(&source).get(), range.offset - source.base(), to))
        missing.pages.resize(known);
      else
        missing.rows.emplace_back(range.offset, to);
    }
  rows_read += read;
  missing.is_taken_back = mmap::thread_major_faults() != before;
}

void RowReader::State::give_back() {
  touched.forget();
  rows_read = 0;
  mapped_bytes = 0;
  for (const RowTable& table : tables)
    for (const RowTable::Piece& piece : table.pieces()) {
      const SourceFile& source = checkpoint.sources.at(piece.position);
      mmap::unmap_range(source.in(checkpoint.mapping), piece.position - source.base(), piece.bytes);
    }
}

Result<void> advise(const Checkpoint& checkpoint, const TensorView& view, Access access) {
  return Checkpoint::Access::state(checkpoint).advise(view, access);
}

RowReader::RowReader(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
RowReader::RowReader(RowReader&&) noexcept = default;
RowReader& RowReader::operator=(RowReader&&) noexcept = default;
RowReader::~RowReader() = default;

std::size_t RowReader::table_count() const noexcept { return state_->tables.size(); }
std::int64_t RowReader::row_count() const noexcept { return state_->tables.front().rows(); }
std::uint64_t RowReader::row_bytes(std::size_t table) const noexcept {
  return state_->tables[table].row_bytes();
}

Result<RowReader> RowReader::of(const Checkpoint& checkpoint,
                                std::span<const std::string_view> tables,
                                const RowOptions& options) {
  Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  TRY(state.check_view_memory());
  if (tables.empty()) return failure(ErrorCode::invalid_argument, "no table is named");
  if (state.info.writable)
    return failure(ErrorCode::invalid_argument,
                   "the checkpoint is writable, so that its pages cannot be given back; open it to "
                   "be read");
  std::vector<RowTable> found;
  for (const std::string_view name : tables) {
    TRY_ASSIGN(RowTable table, RowTable::of(checkpoint, name));
    if (!found.empty() && found.front().rows() != table.rows())
      return failure(ErrorCode::invalid_argument, bytes::quote(found.front().name()) + " has " +
                                                      std::to_string(found.front().rows()) +
                                                      " rows, " + bytes::quote(name) + " has " +
                                                      std::to_string(table.rows()));
    found.push_back(std::move(table));
  }
  auto reader = std::make_unique<State>(state, std::move(found), options.budget_bytes);
  if (!state.is_in_memory()) reader->add_files();
  TRY(reader->advise());
  return RowReader(std::move(reader));
}

Result<void> RowReader::gather(Rows ids, Outputs out) const {
  TRY(state_->check(ids, out));
  if (state_->files.empty()) {
    state_->copy(ids, 0, ids.size(), out);
    return {};
  }
  TRY(state_->check_files());
  TRY(state_->gather(ids, out));
  return state_->check_files();
}

}  // namespace weightmap
