// The manifest of a snapshot: what its image consists of, and what must be the same for it to be
// restored.
//
// It is a JSON document beside the image. It may be damaged, but nobody else can have written it
// (snapshot_folder.hpp), so that it is a promise of this user to himself.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/snapshot/sockets.hpp"
#include "tools/snapshot/surroundings.hpp"
#include "tools/support/json_out.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

// A file of the image.
struct ImageFile {
  std::string name;  // without a folder
  std::uint64_t size = 0;
  std::uint64_t checksum = 0;  // XXH3, 64 bits

  friend bool operator==(const ImageFile&, const ImageFile&) = default;
};

// A file that the start used: code, configuration, weights. Its number is left out, and that of its
// device, since both differ between two mounts of one container image.
struct UsedFile {
  std::string path;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0, ctime_ns = 0;  // since 1970

  friend bool operator==(const UsedFile&, const UsedFile&) = default;
};

struct Manifest {
  std::string key;                   // of the command
  std::vector<std::string> command;  // as it was given
  std::string meeting_point;         // the folder by which they meet their supervisor
  std::string criu;                  // version, for users
  std::int64_t made_ns = 0;          // since 1970
  Machine machine;
  pid_t root = 0;                                  // the command's id in its own namespace
  bool is_made_here = false;                       // by weightmap.snapshot_here()
  std::array<std::uint64_t, 2> pipes{};            // inodes of standard output and standard error
  std::map<std::string, std::string> environment;  // a hash of the text of each variable, but for
  std::vector<std::string> new_variables;          // which each restored process has its own
  std::vector<ImageFile> image;
  std::vector<UsedFile> files;
  std::vector<NamedLink> links;
  std::vector<Address> listeners;         // addresses that must be free
  std::vector<std::string> socket_files;  // names of UNIX sockets, which must be free, too
  bool keeps_connections = false;         // those of TCP, since some are between the processes

  std::uint64_t image_bytes() const noexcept;
};

// A manifest of this size names more files than any start opens.
inline constexpr std::uint64_t max_manifest_bytes = std::uint64_t{64} << 20;

Json describe(const Manifest& manifest);
// Fails with corrupt for what is no manifest, with unsupported for another version, naming the
// field.
Result<Manifest> parse_manifest(std::string_view text);

}  // namespace weightmap::cli::snapshot
