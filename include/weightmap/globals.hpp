// What the pickles of a file name: classes and functions, which a program that loads the file by
// running it would import and call. Nothing here opens a tensor or runs anything, and files are
// looked at that Checkpoint::open() refuses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/error.hpp"
#include "weightmap/export.hpp"
#include "weightmap/format.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

enum class GlobalVerdict : std::uint8_t {
  torch_safe,   // in torch's own list: torch.load(weights_only=True) needs no permission for it
  allowed,      // in OpenOptions::safe_globals
  torchscript,  // in a TorchScript archive: a type of its own code, or a helper of torch.jit.load()
  unknown,      // anything else
  harmful,      // in docs/refused-names.md, or a name that the pickle makes up while it runs
};

// Whether torch.load(weights_only=True), with the names that are allowed, would refuse it.
constexpr bool is_unsafe(GlobalVerdict verdict) noexcept {
  return verdict >= GlobalVerdict::unknown;
}

// "torch_safe", "allowed", "torchscript", "unknown", "harmful"
WEIGHTMAP_API std::string_view to_string(GlobalVerdict verdict) noexcept;

struct NamedGlobal {
  // As Python 3 calls them: "builtins" and "set" where the pickle says "__builtin__" and "set".
  // Text from the file: escape it before it is printed. Both are empty where only running the
  // pickle would tell.
  std::string module;
  std::string name;
  std::uint64_t file_offset = 0;  // of the first opcode that names it
  std::uint64_t count = 0;        // of the opcodes that do
  GlobalVerdict verdict = GlobalVerdict::unknown;
};

// One pickle.
struct PickleGlobals {
  // "data.pkl"; "inner.pt/data.pkl" of an archive within; empty: it lies in the file itself.
  std::string record;
  std::uint64_t file_offset = 0;     // where it begins
  std::vector<NamedGlobal> globals;  // each once, in the order in which they come
  // Nothing that loads such a file reads this one: it stands behind the STOP of another, or in a
  // record that is none of the format's.
  bool is_hidden = false;
  std::uint64_t bytes_behind = 0;  // of the record, behind the last STOP
  // Why there may be more than `globals` says: the pickle is damaged, or larger than the limits.
  std::optional<Error> fault;
};

// A file, or an archive within one.
struct FileGlobals {
  Format format = Format::unknown;
  std::vector<PickleGlobals> pickles;
  // Records that hold programs: TorchScript's code, Python's, libraries of machine code. Whatever
  // loads such an archive runs them.
  std::vector<std::string> code;
};

// The globals of all pickles in a file. Of the options it takes the limits and safe_globals. Fails
// as ArchiveReader::open() does for a file that is neither an archive nor begins with a pickle.
WEIGHTMAP_API Result<FileGlobals> list_globals(const std::filesystem::path& path,
                                               const OpenOptions& options = {});

// What torch allows by default ("collections.OrderedDict"), sorted: the list of torch 2.13.
WEIGHTMAP_API std::span<const std::string_view> torch_safe_globals() noexcept;

}  // namespace weightmap
