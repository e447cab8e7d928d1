// The ways to save a checkpoint, and a folder to do it in.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/services/write/flat_tensor.hpp"
#include "tests/services/write/watched_calls.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap::test {

// How a file comes into being.
struct Way {
  std::string name;
  bool replaces;       // an old one is there
  bool unnamed_files;  // the file system knows O_TMPFILE
  bool reserves;       // a storage is left to be filled in
  bool is_large;       // the disk is asked to begin before the end

  // Whether this is the call that such a file system does not know.
  bool refuses(const SystemCall& call) const {
    return !unnamed_files && call.number == SYS_openat &&
           (call.arguments[2] & O_TMPFILE) == O_TMPFILE;
  }
};
inline const std::vector<Way> ways{{"in the place of another", true, true, false, true},
                                   {"under a name that is free", false, true, false, false},
                                   {"by a temporary name", true, false, false, false},
                                   {"with a reserved storage", true, true, true, false}};

inline Result<WritePlan> save(const std::filesystem::path& path, const Way& way,
                              const NewFileOptions& file = {}) {
  static const std::vector<std::byte> large(300'000, std::byte{7});
  static const std::vector<std::byte> small(16, std::byte{9});
  CheckpointWriter writer({.archive_name = "model", .file = file});
  std::vector<Value> tensors;
  const auto add = [&](RecordContent content) {
    tensors.push_back(flat_tensor(writer, std::move(content), DType::uint8));
  };
  add(RecordContent::bytes(small));
  add(RecordContent::bytes({}));
  add(way.reserves ? RecordContent::reserved(5000)
                   : RecordContent::zeros(way.is_large ? std::uint64_t{8} << 20 : 5000));
  add(RecordContent::bytes(large));
  add(RecordContent::bytes(small));
  const Value root = writer.values().list(tensors);
  return std::move(writer).write(root, path);
}

struct Folder {
  TemporaryFolder folder;
  std::filesystem::path path = folder.path() / "model.pt";

  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      all.insert(entry.path().filename());
    return all;
  }
  // What is at the target.
  std::optional<std::string> content() const {
    return std::filesystem::exists(path) ? std::optional(read_file(path)) : std::nullopt;
  }
  void begin_with(const std::optional<std::string>& old) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      std::filesystem::remove(entry.path());
    if (old) folder.write("model.pt", *old);
  }
};

}  // namespace weightmap::test
