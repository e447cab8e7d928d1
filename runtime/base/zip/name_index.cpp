#include "runtime/base/zip/name_index.hpp"

#include <algorithm>

namespace weightmap::zip {
namespace {

using Order = NameIndex::Order;

// A name in two parts, which a lookup need not join.
struct Wanted {
  std::string_view folder;
  std::string_view rest;
  std::size_t size() const noexcept { return folder.size() + rest.size(); }
};

int compare_bytes(std::string_view name, const Wanted& wanted) noexcept {
  const int folder = name.substr(0, wanted.folder.size()).compare(wanted.folder);
  if (folder != 0) return folder;
  return name.substr(wanted.folder.size()).compare(wanted.rest);
}

// Returns a negative, zero or positive number if `name` is before, equal to, or after `wanted`.
int compare(std::string_view name, const Wanted& wanted, Order order) noexcept {
  if (order == Order::by_length && name.size() != wanted.size())
    return name.size() < wanted.size() ? -1 : 1;
  return compare_bytes(name, wanted);
}

bool comes_before(const Record& a, const Record& b, Order order) noexcept {
  if (order == Order::by_length && a.name_length != b.name_length)
    return a.name_length < b.name_length;
  return a.full_name() < b.full_name();
}

std::span<const Record> longest_run(std::span<const Record> records, Order order) noexcept {
  std::span<const Record> longest;
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= records.size(); ++i) {
    if (i < records.size() && comes_before(records[i - 1], records[i], order)) continue;
    if (i - begin > longest.size()) longest = records.subspan(begin, i - begin);
    begin = i;
  }
  return longest;
}

}  // namespace

std::string in_lower_case(std::string_view name) {
  std::string text(name);
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

NameIndex::NameIndex(std::span<const Record> records) {
  std::span<const Record> run = longest_run(records, Order::by_length);
  if (run.size() < records.size() / 2) {
    const std::span<const Record> other = longest_run(records, Order::by_bytes);
    if (other.size() > run.size()) {
      run = other;
      run_order_ = Order::by_bytes;
    }
  }
  run_begin_ = static_cast<std::size_t>(run.data() - records.data());
  run_end_ = run_begin_ + run.size();
  others_.reserve(records.size() - run.size());
  for (std::size_t i = 0; i < records.size(); ++i)
    if (i < run_begin_ || i >= run_end_) others_.push_back(static_cast<std::uint32_t>(i));
  sort_others(records);
}

NameIndex::NameIndex(std::span<const Record> records, std::vector<std::uint32_t> some)
    : others_(std::move(some)) {
  sort_others(records);
}

void NameIndex::sort_others(std::span<const Record> records) {
  std::sort(others_.begin(), others_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return comes_before(records[a], records[b], Order::by_length);
  });
  find_duplicate(records);
}

void NameIndex::find_duplicate(std::span<const Record> records) {
  const auto same =
      std::adjacent_find(others_.begin(), others_.end(), [&](std::uint32_t a, std::uint32_t b) {
        return records[a].full_name() == records[b].full_name();
      });
  if (same != others_.end()) {
    duplicate_ = Pair(*same, *(same + 1));
    return;
  }
  // Names ascend strictly within the run, so only the others can repeat a name.
  std::vector<std::uint32_t> others;
  others.swap(others_);
  for (std::uint32_t i : others) {
    const Record* twin = find(records, records[i].full_name(), {});
    if (twin == nullptr) continue;
    duplicate_ = Pair(i, static_cast<std::uint32_t>(twin - records.data()));
    break;
  }
  others_.swap(others);
}

const Record* NameIndex::find(std::span<const Record> records, std::string_view folder,
                              std::string_view rest) const noexcept {
  const Wanted wanted{folder, rest};
  const auto run = records.subspan(run_begin_, run_end_ - run_begin_);
  const auto in_run =
      std::lower_bound(run.begin(), run.end(), wanted, [&](const Record& record, const Wanted& w) {
        return compare(record.full_name(), w, run_order_) < 0;
      });
  if (in_run != run.end() && compare_bytes(in_run->full_name(), wanted) == 0) return &*in_run;
  const auto other = std::lower_bound(
      others_.begin(), others_.end(), wanted, [&](std::uint32_t index, const Wanted& w) {
        return compare(records[index].full_name(), w, Order::by_length) < 0;
      });
  if (other == others_.end() || compare_bytes(records[*other].full_name(), wanted) != 0)
    return nullptr;
  return &records[*other];
}

}  // namespace weightmap::zip
