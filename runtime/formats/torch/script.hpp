// What a TorchScript archive has beside the records of torch.save: its two pickles, and the classes
// of its code.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/bytes/buffer.hpp"
#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/pickle/parse.hpp"
#include "runtime/base/value/tree.hpp"
#include "runtime/base/zip/directory.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

// The two pickles, laid out as one block of memory.
//
// torch.jit.save writes the module as data.pkl and the constants of its code as constants.pkl, each
// with its own memo and its own STOP. Run one after the other they give one tree, the dict {"data":
// ..., "constants": ...}, whose nodes share one range of positions.

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

// The attributes of the classes in the code.
//
// Each class that torch.jit.save prints begins with the names of its parameters and buffers (torch,
// csrc/jit/serialization/python_print.cpp):
//
//   class Linear(Module):
//     __parameters__ = ["weight", "bias", ]
//     __buffers__ = []
//
// The class "C" of module "__torch__.a.b" is in the record code/__torch__/a/b.py. Other code is
// ignored.
class ScriptClasses {
 public:
  enum class Role : std::uint8_t { attribute, parameter, buffer };

  ScriptClasses() = default;
  // Reads the code records of the classes that `tree` names and ignores missing ones. Fails with
  // limit_exceeded if the records together exceed Limits::record_bytes.
  static Result<ScriptClasses> read(const zip::Directory& directory, const value::Tree& tree,
                                    bytes::ReadCache& cache, const Limits& limits);

  // Adds the classes that the text of a module declares.
  void add_code(std::string_view module, std::string_view text);

  Role role_of(std::string_view module, std::string_view name, std::string_view attribute) const;

 private:
  struct Class {
    std::set<std::string, std::less<>> parameters;
    std::set<std::string, std::less<>> buffers;
  };
  std::map<std::string, Class, std::less<>> classes_;  // by "module.name"
};

}  // namespace weightmap::torch
