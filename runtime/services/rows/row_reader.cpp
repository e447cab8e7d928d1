#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "mmap/page_loader.hpp"
#include "mmap/pages/page_cache.hpp"
#include "mmap/pages/touched_pages.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/services/rows/row_table.hpp"
#include "runtime/system/memory/own_memory.hpp"
#include "weightmap/on_demand.hpp"

namespace weightmap {
namespace {

// New pages that are asked for at a time: enough for any disk, and few enough to stay in the page
// cache until they are copied.
constexpr std::size_t most_pages = 16384;

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

Result<void> set_access(const Checkpoint::State& state, ByteRange range, Access access) {
  const SourceFile& source = state.sources.at(range.offset);
  Result<void> done = mmap::allow_readahead(source.in(state.mapping), range.offset - source.base(),
                                            range.length, access == Access::normal);
  if (done) return done;
  return tl::unexpected<Error>(source.about(std::move(done.error())));
}

// Those of this thread that waited for the disk.
long major_faults() noexcept {
  struct rusage usage {};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_majflt;
}

}  // namespace

struct RowReader::State {
  State(const Checkpoint::State& opened, std::vector<RowTable> given, std::uint64_t budget)
      : checkpoint(opened),
        tables(std::move(given)),
        budget_bytes(budget),
        touched(all_of(tables)) {}

  struct TableFile {
    const SourceFile* source;
    bool tells_what_is_cached;
  };

  const Checkpoint::State& checkpoint;
  const std::vector<RowTable> tables;
  const std::uint64_t budget_bytes;
  std::vector<TableFile> files;
  // Of any thread:
  mmap::TouchedPages touched;
  std::atomic<std::uint64_t> mapped_bytes{0};              // by gathers, since they were given back
  std::atomic<std::uint64_t> bytes_a_row{os::large_page};  // that a row mapped lately

  Result<void> add_files();
  Result<void> advise() const;
  Result<void> check(Rows ids, Outputs out) const;
  Result<void> check_files() const;
  void gather(Rows ids, std::size_t begin, Outputs out);
  std::size_t end_of_wave(Rows ids, std::size_t begin, std::vector<std::uint64_t>& new_pages);
  void begin_to_read(std::vector<std::uint64_t>& pages) const;
  void begin_to_read(ByteRange range) const;
  void copy(Rows ids, std::size_t begin, std::size_t end, Outputs out) const;
  void copy_counting(Rows ids, std::size_t begin, std::size_t end, Outputs out);
  void give_back();
};

Result<void> RowReader::State::add_files() {
  std::set<const SourceFile*> sources;
  for (const RowTable& table : tables)
    for (const RowTable::Piece& piece : table.pieces())
      sources.insert(&checkpoint.sources.at(piece.position));
  for (const SourceFile* source : sources)
    files.push_back({source, mmap::check_tells_what_is_cached(source->file).has_value()});
  return {};
}

Result<void> RowReader::State::advise() const {
  if (files.empty()) return {};
  for (const RowTable& table : tables)
    for (const RowTable::Piece& piece : table.pieces())
      TRY(set_access(checkpoint, {piece.position, piece.bytes}, Access::random));
  return {};
}

// What was truncated would raise a signal, and what was written to would be other bytes.
Result<void> RowReader::State::check_files() const {
  for (const TableFile& file : files) {
    TRY(file.source->in(checkpoint.mapping).check_not_lost());
    if (Result<void> same = file.source->file.check_unchanged(); !same)
      return tl::unexpected<Error>(file.source->about(std::move(same.error())));
  }
  return {};
}

Result<void> RowReader::State::check(Rows ids, Outputs out) const {
  if (out.size() != tables.size())
    return failure(ErrorCode::invalid_argument, std::to_string(out.size()) + " buffers for " +
                                                    std::to_string(tables.size()) + " tables");
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i].size() / std::max<std::uint64_t>(tables[i].row_bytes(), 1) != ids.size() ||
        out[i].size() != ids.size() * tables[i].row_bytes())
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

void RowReader::State::gather(Rows ids, std::size_t begin, Outputs out) {
  std::vector<std::uint64_t> new_pages;
  while (begin < ids.size()) {
    new_pages.clear();
    const std::size_t end = end_of_wave(ids, begin, new_pages);
    if (new_pages.empty()) {
      const long before = major_faults();
      copy(ids, begin, end, out);
      // The system has taken pages back: which ones is not known.
      if (major_faults() != before) touched.forget();
    } else {
      begin_to_read(new_pages);
      copy_counting(ids, begin, end, out);
    }
    begin = end;
  }
}

std::size_t RowReader::State::end_of_wave(Rows ids, std::size_t begin,
                                          std::vector<std::uint64_t>& new_pages) {
  std::size_t end = begin;
  for (; end < ids.size() && new_pages.size() < most_pages; ++end)
    for (const RowTable& table : tables)
      touched.touch({table.position_of(ids[end]), table.row_bytes()}, new_pages);
  return end;
}

void RowReader::State::begin_to_read(std::vector<std::uint64_t>& pages) const {
  std::ranges::sort(pages);
  const std::uint64_t page_bytes = os::page_bytes();
  for (std::size_t i = 0; i < pages.size();) {
    std::size_t end = i + 1;
    while (end < pages.size() && pages[end] == pages[end - 1] + 1) ++end;
    begin_to_read({pages[i] * page_bytes, (end - i) * page_bytes});
    i = end;
  }
}

// The range begins with a page and ends with one, perhaps behind the end of the file.
void RowReader::State::begin_to_read(ByteRange range) const {
  const SourceFile& source = checkpoint.sources.at(range.offset);
  const auto file = std::ranges::find(files, &source, &TableFile::source);
  const std::uint64_t offset = range.offset - source.base();
  const std::uint64_t length = std::min(range.length, source.file.size() - offset);
  const mmap::MappedFile mapped = source.in(checkpoint.mapping);
  if (file->tells_what_is_cached && mmap::is_cached(mapped, offset, length)) return;
  mmap::begin_to_read(mapped, offset, length);
}

void RowReader::State::copy(Rows ids, std::size_t begin, std::size_t end, Outputs out) const {
  const std::byte* const mapping = checkpoint.mapping.bytes().data();
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const RowTable& table = tables[i];
    const std::uint64_t bytes = table.row_bytes();
    std::byte* to = out[i].data() + begin * bytes;
    for (std::size_t at = begin; at < end; ++at, to += bytes)
      std::memcpy(to, mapping + table.position_of(ids[at]), bytes);
  }
}

// In steps that map no more than the budget has left, as far as the last one tells: a fault may map
// what is cached around its page, too, up to a large page.
void RowReader::State::copy_counting(Rows ids, std::size_t begin, std::size_t end, Outputs out) {
  while (begin < end) {
    const std::uint64_t mapped = mapped_bytes.load();
    const std::uint64_t left = budget_bytes > mapped ? budget_bytes - mapped : 0;
    const std::uint64_t rows = std::clamp<std::uint64_t>(left / bytes_a_row.load(), 1, end - begin);
    const std::uint64_t before = os::resident_file_bytes();
    copy(ids, begin, begin + rows, out);
    const std::uint64_t after = os::resident_file_bytes();
    const std::uint64_t more = after > before ? after - before : 0;
    bytes_a_row = std::max<std::uint64_t>(more / rows + 1, bytes_a_row.load() / 2);
    if (mapped_bytes += more; mapped_bytes.load() > budget_bytes) give_back();
    begin += rows;
  }
}

void RowReader::State::give_back() {
  touched.forget();
  mapped_bytes = 0;
  for (const RowTable& table : tables)
    for (const RowTable::Piece& piece : table.pieces()) {
      const SourceFile& source = checkpoint.sources.at(piece.position);
      mmap::unmap_range(source.in(checkpoint.mapping), piece.position - source.base(), piece.bytes);
    }
}

Result<void> advise(const Checkpoint& checkpoint, const TensorView& view, Access access) {
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  TRY(state.check_view_memory());
  const std::span<const std::byte> bytes = view.stored_bytes();
  if (bytes.empty() || state.is_in_memory()) return {};
  const std::optional<std::uint64_t> position = state.position_of(bytes);
  if (!position)
    return failure(ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  return set_access(state, {*position, bytes.size()}, access);
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
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
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
  if (!state.is_in_memory()) TRY(reader->add_files());
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
  state_->gather(ids, 0, out);
  return state_->check_files();
}

}  // namespace weightmap
