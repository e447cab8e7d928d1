// The record that says which storages of a checkpoint were reserved, and which of them have been
// filled in since. torch does not look at it.
//
// One letter for each storage, at the place of its number, then one for the whole file. It is
// changed in place, letter by letter, by whoever fills a storage; so its CRC-32 is that of what it
// will be when the file is sealed, or not computed. The last letter is what is written last.
#pragma once

#include <cstdint>
#include <string_view>

namespace weightmap::torch {

inline constexpr std::string_view marks_record = ".data/weightmap_reserved";

namespace mark {
inline constexpr char saved = '-';     // written when the file was made
inline constexpr char reserved = 'r';  // nobody has written it yet
inline constexpr char written = 'w';
inline constexpr char open = 'o';    // the last letter: checksums are not computed
inline constexpr char sealed = 's';  // they are
}  // namespace mark

}  // namespace weightmap::torch
