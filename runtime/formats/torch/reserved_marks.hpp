// The record that tells which storages of a checkpoint were reserved and which have been filled in
// since. torch ignores it.
//
// It has one status byte for each storage, indexed by the storage's number, and a last one for the
// whole file, which is written last. A process that fills a storage changes its status byte in
// place. So the record's CRC-32 is that of the sealed content, or not computed.
#pragma once

#include <cstdint>
#include <string_view>

namespace weightmap::torch {

inline constexpr std::string_view marks_record = ".data/weightmap_reserved";

namespace mark {
inline constexpr char saved = '-';     // written when the file was made
inline constexpr char reserved = 'r';  // not written yet
inline constexpr char written = 'w';
inline constexpr char open = 'o';    // the last byte: checksums are not computed
inline constexpr char sealed = 's';  // the last byte: checksums are computed
}  // namespace mark

}  // namespace weightmap::torch
