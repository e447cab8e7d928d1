// The two pickles of a TorchScript archive, made into one program.
//
// torch.jit.save writes the module as data.pkl and what its code refers to as constants.pkl, each
// with its own memo and its own STOP. As one pickle of the dict {"data": ..., "constants": ...}
// they give one tree, whose nodes have one space of positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string_view>

#include "runtime/bytes/buffer.hpp"
#include "runtime/bytes/windows.hpp"
#include "runtime/value/tree.hpp"
#include "runtime/zip/directory.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

inline constexpr std::string_view constants_pickle = "constants.pkl";
inline constexpr std::string_view constants_folder = "constants/";

class ScriptPickle {
 public:
  // Reads both records. Fails with corrupt if one does not end with STOP, with limit_exceeded if
  // both together have more than `max_bytes`. `memory` must outlive the tree that is made of it.
  static Result<ScriptPickle> read(const zip::Directory& directory, bytes::Windows& windows,
                                   std::uint64_t max_bytes, std::pmr::memory_resource& memory);

  // The program; to be parsed as if it began at byte 0 of the file. Taken once.
  bytes::Buffer take_program() noexcept { return std::move(program_); }
  // Fails with corrupt if the tree of the program is not this dict: then one of the pickles did not
  // end where its record does.
  Result<void> check(const value::Tree& tree) const;
  // An error of whoever read the program, made one about the record and the offset in the file.
  Error about_record(Error error) const;

 private:
  struct Part {
    std::string_view record;
    std::uint64_t position;  // in the program
    std::uint64_t file_offset;
  };
  bytes::Buffer program_;
  Part data_{};
  Part constants_{};
};

}  // namespace weightmap::torch
