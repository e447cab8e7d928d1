// --sort: the order of a listing.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace weightmap::cli {

enum class SortBy : std::uint8_t { file, name, size };

void add_sort_option(CLI::App& command, SortBy& by);

// Digits compare as numbers: layers.2 comes before layers.10.
bool name_precedes(std::string_view a, std::string_view b) noexcept;

// Sorts by name, or by size with the largest first; stable. `name` and `size` map an element.
template <class T, class Name, class Size>
void sort(std::vector<T>& elements, SortBy by, const Name& name, const Size& size) {
  if (by == SortBy::name)
    std::stable_sort(elements.begin(), elements.end(),
                     [&](const T& a, const T& b) { return name_precedes(name(a), name(b)); });
  if (by == SortBy::size)
    std::stable_sort(elements.begin(), elements.end(),
                     [&](const T& a, const T& b) { return size(a) > size(b); });
}

}  // namespace weightmap::cli
