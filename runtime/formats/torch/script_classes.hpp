// The attributes of classes in the code of a TorchScript archive.
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
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/value/tree.hpp"
#include "runtime/base/zip/directory.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

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
