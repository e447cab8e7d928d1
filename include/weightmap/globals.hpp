// Lists the classes and functions (globals) that a file's pickles name, and that a program would
// import and call if it loaded the file by running it. Nothing here opens a tensor or runs
// anything, and files that Checkpoint::open() refuses are listed, too.
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
  harmful,      // in docs/refused-names.md, or a name that the pickle computes while it runs
};

// True if torch.load(weights_only=True), with the allowed names, would refuse it.
constexpr bool is_unsafe(GlobalVerdict verdict) noexcept {
  return verdict >= GlobalVerdict::unknown;
}

// "torch_safe", "allowed", "torchscript", "unknown", "harmful"
WEIGHTMAP_API std::string_view to_string(GlobalVerdict verdict) noexcept;

struct NamedGlobal {
  // Python 3's names: "builtins" and "set" for the pickle's "__builtin__" and "set". Text from the
  // file: escape it before printing. Both are empty if only running the pickle could tell.
  std::string module;
  std::string name;
  std::uint64_t file_offset = 0;  // of the first opcode with this name
  std::uint64_t count = 0;        // of opcodes with this name
  GlobalVerdict verdict = GlobalVerdict::unknown;
};

// One pickle.
struct PickleGlobals {
  // "data.pkl"; "inner.pt/data.pkl" for an archive within; empty if the pickle is the file itself.
  std::string record;
  std::uint64_t file_offset = 0;     // of its beginning
  std::vector<NamedGlobal> globals;  // each once, in the order of first occurrence
  // No loader of such a file reads this pickle: it lies behind the STOP of another, or in a record
  // that is not part of the format.
  bool is_hidden = false;
  std::uint64_t bytes_behind = 0;  // bytes of the record behind the last STOP
  // The reason why `globals` may be incomplete: the pickle is damaged, or larger than the limits.
  std::optional<Error> fault;
};

// A file, or an archive within one.
struct FileGlobals {
  Format format = Format::unknown;
  std::vector<PickleGlobals> pickles;
  // Records that contain programs: TorchScript's code, Python's, libraries of machine code. A
  // program that loads such an archive runs them.
  std::vector<std::string> code;
};

// Returns the globals of all pickles in a file. Of the options, only the limits and safe_globals
// apply. Fails as ArchiveReader::open() does unless the file is an archive or begins with a pickle.
WEIGHTMAP_API Result<FileGlobals> list_globals(const std::filesystem::path& path,
                                               const OpenOptions& options = {});

// Returns torch 2.13's default allow-list ("collections.OrderedDict"), sorted.
WEIGHTMAP_API std::span<const std::string_view> torch_safe_globals() noexcept;

}  // namespace weightmap
