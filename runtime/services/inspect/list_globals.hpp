// Lists the classes and functions (globals) that a file's pickles name, and that a program would
// import and call if it loaded the file by running it. Nothing here opens a tensor or runs
// anything, and files that Checkpoint::open() refuses are listed, too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/formats/torch/global_verdict.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

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
  // "data.pkl"; "inner.pt//data.pkl" for an archive within; "model_weights.ckpt//data.pkl" for one
  // in a tar, which FILE//model_weights.ckpt opens; empty if the pickle is the file itself.
  std::string record;
  std::uint64_t file_offset = 0;     // of its beginning
  std::vector<NamedGlobal> globals;  // each once, in the order of first occurrence
  // No loader of such a file reads this pickle: it lies behind the STOP of another, or in a record
  // that is not part of the format.
  bool is_hidden = false;
  std::uint64_t bytes_behind = 0;  // bytes of the record behind the last STOP
  // The reason why `globals` may be incomplete: the pickle is damaged, or larger than the limits.
  // Also of an archive within that is damaged, or was not looked into: then there are no globals.
  std::optional<Error> fault;
};

// A file, with all archives within it.
struct FileGlobals {
  Format format = Format::unknown;
  std::vector<PickleGlobals> pickles;
  // Records that contain programs: TorchScript's code, Python's, libraries of machine code. A
  // program that loads such an archive runs them.
  std::vector<std::string> code;
  // What is wrong with the file as a whole: it has fewer bytes than its own metadata says, or the
  // metadata of a safetensors or GGUF file is refused.
  std::optional<Error> fault;
  std::uint64_t hole_bytes = 0;  // of tensors, see hole_bytes()
};

// Returns the globals of all pickles in a file, or in a member of an archive (FILE//MEMBER), also
// of those in archives (zip, tar, gzip, zlib) within archives, seven deep, behind other pickles and
// arrays, and in a file of another format that is a pickle, too. Limits::pickle_bytes bounds what
// is read and inflated for that in all. Of the options, only the limits and safe_globals apply.
// Fails as ArchiveReader::open() does unless the file is an archive or begins with a pickle.
WEIGHTMAP_API Result<FileGlobals> list_globals(const std::filesystem::path& path,
                                               const OpenOptions& options = {});

}  // namespace weightmap
