// The two pickles of a TorchScript archive, laid out as one block of memory.
//
// torch.jit.save writes the module as data.pkl and the constants of its code as constants.pkl, each
// with its own memo and its own STOP. Run one after the other they give one tree, the dict {"data":
// ..., "constants": ...}, whose nodes share one range of positions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string_view>

#include "runtime/base/bytes/buffer.hpp"
#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/pickle/parse.hpp"
#include "runtime/base/zip/directory.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

inline constexpr std::string_view constants_pickle = "constants.pkl";
inline constexpr std::string_view constants_folder = "constants/";

class ScriptPickle {
 public:
  // Reads both records. Fails with corrupt if one does not end with STOP, with limit_exceeded if
  // both together exceed `max_bytes`. `memory` must outlive the tree that is made of them.
  static Result<ScriptPickle> read(const zip::Directory& directory, bytes::ReadCache& cache,
                                   std::uint64_t max_bytes, std::pmr::memory_resource& memory);

  // Hands over the memory, once. It is parsed as if it began at byte 0 of the file.
  bytes::Buffer take_program() noexcept { return std::move(program_); }
  // The two pickles in the memory.
  std::span<const pickle::NamedPickle> parts() const noexcept { return parts_; }
  // Translates an error about the program into one about the record and the offset in the file.
  Error about_record(Error error) const;

 private:
  bytes::Buffer program_;
  std::array<pickle::NamedPickle, 2> parts_{};   // data.pkl and constants.pkl
  std::array<std::uint64_t, 2> file_offsets_{};  // of them
};

}  // namespace weightmap::torch
