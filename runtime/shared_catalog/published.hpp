// A catalog as one process passes it on to others: a block of bytes that says what it is, and that
// is believed only as far as it was checked.
//
//   Preamble | format version | path of the source | list of the other files
//   | u64 group sums[groups] | u64 sums[chunks] | zeros up to a page | block
//
// The sums are the XXH3 of each 4 KiB of the catalog's block, and the group sums those of 64 sums
// each, the last of them of the zeros, too. Whoever takes over a block checks the preamble and the
// group sums, which are a thirty-thousandth of it, and each group, each chunk and each entry when
// it is first used.
//
// Numbers are in the order of the machine: a block never leaves the machine it was made on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/catalog/catalog.hpp"
#include "runtime/shared_catalog/file_list.hpp"
#include "weightmap/generation.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/stats.hpp"

namespace weightmap::catalog {

// What an open finds out in addition to the catalog, and under which options it did.
struct Description {
  Generation generation;           // of the first file
  std::vector<ListedFile> others;  // by base, which is behind the file before
  Limits limits;
  std::string_view format = "torch_zip";  // one of has_code_for_format()
  std::uint64_t version = 0;
  std::uint64_t storage_alignment = 0;
  std::uint64_t pickle_bytes = 0;
  std::uint64_t tensors_not_indexed = 0;
  std::uint64_t storages_calculated = 0;
  std::uint64_t storages_by_directory = 0;
  std::uint64_t storages_by_header = 0;
  OffsetStrategy strategy = OffsetStrategy::none;
  bool big_endian = false;
  bool byte_order_assumed = false;
  bool names_torch_safe_only = false;
  bool has_index = false;  // the first file is an index of the others
  std::optional<std::string> format_version;
  std::string source;  // path of the first file when this was made; empty: not known
};

// Whether a description can be of this CheckpointInfo::format.
bool has_code_for_format(std::string_view format) noexcept;

// All that comes before the catalog's block. Precondition: check_file_list() takes the files.
std::vector<std::byte> make_preamble(const Description& description, const Catalog& catalog);

struct Summary {
  Description description;
  std::uint64_t tensors = 0;
};
// What the preamble says; of what is behind it only the size is checked. Fails with corrupt.
Result<Summary> summarize(std::span<const std::byte> bytes);

// A bit for each of many things that was checked. Setting one twice does no harm, so no order is
// needed between threads.
class CheckedBits {
 public:
  static constexpr std::size_t words_for(std::size_t count) noexcept { return count / 64 + 1; }

  // Borrows so many words, which are 0, and leaves the rest of `words`.
  CheckedBits(std::span<std::uint64_t>& words, std::size_t count) noexcept
      : words_(words.first(words_for(count))) {
    words = words.subspan(words_.size());
  }
  bool test(std::size_t index) const noexcept {
    const std::atomic_ref word(words_[index / 64]);
    return (word.load(std::memory_order_acquire) >> index % 64 & 1) != 0;
  }
  void set(std::size_t index) noexcept {
    const std::atomic_ref word(words_[index / 64]);
    word.fetch_or(std::uint64_t{1} << index % 64, std::memory_order_release);
  }

 private:
  std::span<std::uint64_t> words_;
};

// Const members, and those that check, may be called from any thread.
class Published {
 public:
  // Bytes that a sum is taken of.
  static constexpr std::size_t chunk_bytes = 4096;
  // Sums of chunks that a group sum is taken of.
  static constexpr std::size_t group_chunks = 64;
  // Entries of which one bit says that they were checked: those of one KiB, so that the bits of
  // many tensors are few. Where one of them is not sound, none of them has it.
  static constexpr std::size_t noted_entries = 16;

  // Borrows `bytes`, which begin at the start of a page. Checks the preamble and the header of the
  // catalog. Fails with corrupt, saying which of them is wrong. What is checked later lies within
  // the files of the description: whether they are those of the checkpoint is for the caller to
  // see.
  static Result<Published> read(std::span<const std::byte> bytes);

  const Description& description() const noexcept { return description_; }
  // Unchecked, but for the number of tensors and storages.
  const Catalog& catalog() const noexcept { return catalog_; }

  // Whether all that an entry or a storage says is as it was written, and lies within the block and
  // the checkpoint. Afterwards catalog() may be asked for it. False also beyond the last one.
  bool check_entry(std::size_t index) noexcept {
    return index < catalog_.size() &&
           (checked_entries_.test(index / noted_entries) || check_new_entry(index));
  }
  bool check_storage(std::size_t index) noexcept;
  // Catalog::find(), of checked slots. Of the entry that it finds only the name, the view and the
  // flags are checked: that is all that most who ask for a name want, and the rest lies elsewhere.
  // nullopt: something on the way is damaged.
  std::optional<std::uint32_t> find(std::string_view name) noexcept;
  // Everything. Afterwards all of catalog() may be used.
  bool check_all() noexcept;

 private:
  static std::vector<std::uint64_t> bits_for(const Header& header,
                                             std::span<const std::byte> block);
  Published(Description description, const Header& header, std::span<const std::byte> block,
            std::span<const std::uint64_t> group_sums, std::span<const std::uint64_t> sums);

  bool check_group(std::size_t index) noexcept;
  bool check_chunk(std::size_t index) noexcept;
  // Precondition: the range lies within the block.
  bool check_range(std::uint64_t offset, std::uint64_t length) noexcept;
  // Element `index` of a section of `count`, and `length` elements from there.
  template <class T>
  bool check_items(std::uint64_t section, std::uint64_t count, std::uint64_t index,
                   std::uint64_t length) noexcept;
  template <class T>
  const T* items(std::uint64_t section) const noexcept {
    return reinterpret_cast<const T*>(block_.data() + section);
  }
  bool check_text(const Text& text) noexcept;
  bool check_view(std::size_t index) noexcept {
    return index < catalog_.size() &&
           (checked_views_.test(index / noted_entries) || check_new_view(index));
  }
  template <class IsSound>
  bool check_new(std::size_t index, CheckedBits& checked, const IsSound& is_sound) noexcept;
  bool check_new_view(std::size_t index) noexcept;
  bool check_new_entry(std::size_t index) noexcept;
  bool is_view_sound(std::size_t index) noexcept;
  bool is_entry_sound(std::size_t index) noexcept;
  bool check_dims(const Entry& entry) noexcept;
  bool check_place(const Entry& entry) noexcept;
  // Whether the range lies in one of the files.
  bool lies_in_a_file(std::uint64_t position, std::uint64_t length) const noexcept;
  bool lies_in_its_file(const StorageEntry& storage) const noexcept;
  bool check_path(const Entry& entry) noexcept;

  Description description_;
  Header header_;
  Sections at_;
  std::span<const std::byte> block_;
  std::span<const std::uint64_t> group_sums_;
  std::span<const std::uint64_t> sums_;  // and the zeros behind them
  Catalog catalog_;
  // Taken at once, so that a lookup allocates nothing.
  std::vector<std::uint64_t> bits_;
  std::span<std::uint64_t> free_bits_;
  CheckedBits checked_groups_;
  CheckedBits checked_chunks_;
  CheckedBits checked_views_;
  CheckedBits checked_entries_;
};

}  // namespace weightmap::catalog
