// Parts of tensors that are larger than memory, read when they are needed.
//
// A table of embeddings of which each token needs a few dozen scattered rows is read badly through
// a mapping: the system's read-ahead fetches megabytes around each row. A RowReader asks for
// exactly the pages of the rows, all of them at once, copies the rows out, and gives the process's
// mapped pages back above a budget. The pages stay in the page cache, which all processes share.
//
//   const auto rows = weightmap::RowReader::of(*checkpoint, {"engram.weight", "engram.scale"});
//   if (!rows) return tl::unexpected(rows.error());
//   std::vector<std::byte> weights(ids.size() * rows->row_bytes(0));
//   std::vector<std::byte> scales(ids.size() * rows->row_bytes(1));
//   auto done = rows->gather(ids, {weights, scales});
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

class Checkpoint;

// How the pages of a tensor are read when they are first touched.
enum class Access : std::uint8_t {
  normal,  // with the system's read-ahead, as everything that is mapped: tensors that are read
           // whole
  random,  // each page alone (MADV_RANDOM): tables of which scattered rows are read
};

// Sets it for the pages of a tensor, also those that it shares with its neighbours. Reads nothing;
// replaces what was set before. Without effect on a checkpoint in memory. Fails with
// invalid_argument for a view of another checkpoint, with io if the system refuses. Any thread.
WEIGHTMAP_API Result<void> advise(const Checkpoint& checkpoint, const TensorView& view,
                                  Access access);

struct RowOptions {
  // Pages of the tables that stay mapped into this process (RssFile), in bytes. A gather that maps
  // more gives all of them back; a later one maps those that it needs again, from the page cache.
  std::uint64_t budget_bytes = std::uint64_t{64} << 20;
};

// Rows of one table or of several that belong together: weights and their scales. The tables may
// lie in several files, and a table in several pieces along its first dimension (chunks.hpp).
//
// Const members may be called from any thread, several at a time. The checkpoint must outlive it;
// of a child after fork() it serves, too, by a mapping of its own. Rows are copied out of the
// mapping: a file that was truncated before the call is an error; one that another process
// truncates during it raises SIGBUS, as the views do (OpenOptions::protection).
class WEIGHTMAP_API RowReader {
 public:
  // Fails as whole_tensor() does; with unsupported for a table whose rows do not lie one after the
  // other, are not whole bytes or of the other byte order, or that is divided along another
  // dimension than the first; with invalid_argument for no table, one without a dimension, tables
  // of different numbers of rows, or a checkpoint that is writable, whose pages cannot be given
  // back. Advises the pages of the tables as Access::random.
  static Result<RowReader> of(const Checkpoint& checkpoint,
                              std::span<const std::string_view> tables,
                              const RowOptions& options = {});
  static Result<RowReader> of(const Checkpoint& checkpoint,
                              std::initializer_list<std::string_view> tables,
                              const RowOptions& options = {}) {
    return of(checkpoint, std::span(tables.begin(), tables.size()), options);
  }

  RowReader(RowReader&&) noexcept;
  RowReader& operator=(RowReader&&) noexcept;
  ~RowReader();

  std::size_t table_count() const noexcept;
  std::int64_t row_count() const noexcept;  // of each table
  // Precondition: table < table_count().
  std::uint64_t row_bytes(std::size_t table) const noexcept;

  // Copies the rows of these numbers, in this order, into `out`, of which each table has its own:
  // `ids.size()` rows of row_bytes(). An id may occur any number of times. Each page that is not in
  // the page cache is read once, all of them at once; no other page is read. Fails with
  // invalid_argument for an id that is no row, or an `out` that does not fit; with io, naming the
  // file, if it was truncated or written to since the open.
  Result<void> gather(std::span<const std::int64_t> ids,
                      std::span<const std::span<std::byte>> out) const;
  Result<void> gather(std::span<const std::int64_t> ids,
                      std::initializer_list<std::span<std::byte>> out) const {
    return gather(ids, std::span(out.begin(), out.size()));
  }

 private:
  struct WEIGHTMAP_LOCAL State;
  explicit RowReader(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace weightmap
