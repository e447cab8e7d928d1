// Remote checkpoints (remote.hpp): staged in shared memory, fetched into files. To look at one
// only: open_metadata().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"
#include "weightmap/version.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap {

// SHA-256s as people have them, by the names of the files.
using Sha256Sums = std::map<std::string, std::array<std::byte, 32>>;

// Of 64 hexadecimal digits of either case; nullopt for other texts.
WEIGHTMAP_API std::optional<std::array<std::byte, 32>> sha256_of_hex(std::string_view hex) noexcept;

// As read_sums() of checkpoint_info.hpp reads it, by the names in it, which lose "./" before them:
// of a list of sha256sum, or of a signature of OpenSSF Model Signing ("model.sig"), of which the
// digests alone are read and the signature is not verified. Fails as that does; with corrupt for a
// list of no file, or of two sums for one.
WEIGHTMAP_API Result<Sha256Sums> read_sha256_sums(const std::filesystem::path& file);

struct FetchOptions {
  // Bytes of a range that is requested; rounded up to a multiple of 2 MiB.
  std::uint64_t chunk_bytes = 16u << 20;
  // Names of tensors, or patterns (match_tensors()), in the order in which they are needed first;
  // the rest follows in file order. A name that matches nothing is ignored.
  std::vector<std::string> order = {};
  // Compares the CRC-32 of each storage of a zip archive once it has arrived. One that differs is
  // fetched once more, and is corrupt if it still does.
  bool verify = true;
  // SHA-256s of the files, by their names beside the first one: "model.safetensors"; "" is the only
  // file. Unless empty, each file that is fetched must be among them, and is compared before it
  // gets its name: another digest is corrupt, and nothing is kept of it. Where this is empty, the
  // files of a model are compared with the list SHA256SUMS that lies beside them in the store, if
  // it has them, and others with what their store says (RangeSource::store_sum()), if it does.
  Sha256Sums sha256 = {};
  // Fails with invalid_argument, before a file is fetched, if none of them has its SHA-256.
  bool require_digest = false;
  // Called by fetch_model() with the folder that has all files of a new version, compared and on
  // the disk, before the link leads to it. Its error is that of the fetch: the link stays as it
  // was, and the next fetch goes on with what has come, and calls it again.
  std::function<Result<void>(const std::filesystem::path& folder)> accept = {};
  // Called by the calling thread; by the one that fetches, for start_staging().
  Progress progress = {};
};

// Who said which SHA-256 a file must have. `beside`: SHA256SUMS in the store, which is worth as
// much as the store is: whoever can replace the file there can replace the list.
enum class SumFrom : std::uint8_t { nobody, caller, store, beside };

struct FetchReport {
  std::filesystem::path path;  // of the file that was fetched; empty in memory
  RemoteVersion version;
  RangeCounts counts;
  std::uint64_t file_bytes = 0;
  std::uint64_t resumed_bytes = 0;   // that an earlier, killed fetch had left
  std::uint64_t verified_bytes = 0;  // of storages whose CRC-32 was compared
  // Of the file, if its SHA-256 was compared, by this fetch or, if the file was there, the last
  // one.
  std::uint64_t summed_bytes = 0;
  SumFrom sum_from = SumFrom::nobody;
  bool has_composite_sum = false;  // the store's is of parts of the file, and was not compared
  bool in_one_request = false;     // without ranges: if it is cut off, all of it comes anew
  std::chrono::nanoseconds time{};
};

struct RemoteStageOptions {
  FetchOptions fetch = {};
  std::string name = {};           // as StageOptions::name
  std::uint64_t budget_bytes = 0;  // as StageOptions::budget_bytes
};

// A staged copy on its way. Movable. const members may be called from any thread.
class WEIGHTMAP_API Staging {
 public:
  Staging(Staging&&) noexcept;
  Staging& operator=(Staging&&) noexcept;
  ~Staging();  // cancels what has not arrived

  // The metadata, at once. Its views point into the memory of the copy, and their bytes are there
  // after wait(). Valid as long as this object.
  const Checkpoint& checkpoint() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  // Blocks until the bytes of this tensor have arrived and, where there is a checksum, have been
  // compared; they go before all others. gather() and copy_bytes() of checkpoint() do so, too.
  // Fails with not_found for a name that is none, with the error of the fetch if that failed before
  // they arrived.
  Result<TensorView> wait(std::string_view tensor) const& WEIGHTMAP_LIFETIMEBOUND;
  // Blocks until everything has arrived, seals the copy or gives it its name. Views of checkpoint()
  // stay valid until this object ends.
  Result<StagedFile> finish();
  void cancel() const noexcept;
  // cancel(), and returns once nothing reads the source any more.
  void stop() noexcept;
  FetchReport report() const;  // of now

  struct WEIGHTMAP_LOCAL State;  // for other parts of the library

 private:
  friend WEIGHTMAP_API Result<Staging> start_staging(std::unique_ptr<RangeSource>,
                                                     const RemoteStageOptions&);
  friend WEIGHTMAP_API Result<Staging> start_staging_again(std::unique_ptr<RangeSource>,
                                                           const RemoteStageOptions&, Staging&);
  explicit Staging(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

// Reads the metadata, checks that the copy fits, and begins to fetch, in a thread of its own.
// Single files only. Storages that are compressed are fetched and inflated before this returns.
// Fails as Checkpoint::open() of the same file and stage() of a path do.
WEIGHTMAP_API Result<Staging> start_staging(std::unique_ptr<RangeSource> source,
                                            const RemoteStageOptions& options = {});
// The same after a staging whose finish() has failed: what that got of the same version is taken
// over, if the version has a name. `failed` is of no more use once the metadata was read.
WEIGHTMAP_API Result<Staging> start_staging_again(std::unique_ptr<RangeSource> source,
                                                  const RemoteStageOptions& options,
                                                  Staging& failed);
// The same as start_staging(), finished.
WEIGHTMAP_API Result<StagedFile> stage(std::unique_ptr<RangeSource> source,
                                       const RemoteStageOptions& options = {});

// Fetches a checkpoint of one file into a file. Until that is whole, on the disk and compared it is
// `path`.part, beside which `path`.part.journal has the version and what is there of it, so that a
// fetch that failed, was cancelled or was killed goes on where it was, if the store still has this
// version. Of a server that knows no ranges all of it is asked for at once (WholeSource), and again
// after a failure. Where the file system keeps extended attributes, user.weightmap.version of the
// file says which version of which source it is. One fetch at a time.
//
// Fails as Checkpoint::open() of the same file does, with the name of the source; with unsupported
// for one of several files; with invalid_argument if `path` exists, unless it is to be replaced;
// with io, about `path`, if the disk has too little room, the system refuses, or another fetch of
// it goes on; as the source does; with corrupt if a storage arrives with a wrong checksum twice.
WEIGHTMAP_API Result<FetchReport> fetch(RangeSource& source, const std::filesystem::path& path,
                                        const FetchOptions& options = {}, bool replaces = false);
// Fetches a checkpoint of one or several files, as open_metadata() finds them, into a folder, which
// is made if it is missing, under their own names. All are of versions that the source had at one
// moment; otherwise it fails with io, and the message says "changed". Files that fetch() or this
// has brought from this source, that are of the same version and were not written to since, stay,
// if the file system keeps extended attributes. Others are fetched beside the old ones, as
// NAME.part, and get their names once all are there and compared: until then the old set stays, so
// there is room for both. While they get their names the folder has the file .weightmap-update,
// with which no checkpoint of several files is opened there: a fetch that is killed at this moment
// is to be run again. Beside what leads to a model, such as NAME.index.json and model.safetensors,
// come the files that servers read, config.json and those of the tokenizer, as model_files() finds
// them; if they come anew, all files are asked once more whether they are of the same moment. So do
// SHA256SUMS, with which they are compared, and model.sig, which need no digest themselves.
// Returns a report for each file, of the one that leads to the others last. Fails as fetch() does;
// with invalid_argument before any file gets its name if a folder or a pipe has that; with
// unsupported for a set with files of the names that this needs itself (config.json, *.part).
WEIGHTMAP_API Result<std::vector<FetchReport>> fetch_into(std::unique_ptr<RangeSource> source,
                                                          const std::filesystem::path& folder,
                                                          const FetchOptions& options = {});

// The name of what is or leads to the checkpoint of a folder with these files, by the rules for
// folders (checkpoint.hpp). Fails as Checkpoint::open() of the folder; with unsupported for several
// files without an index, of which a remote source reads only one.
WEIGHTMAP_API Result<std::string> lead_of(const Listing& listing);
// What of these files belongs beside the checkpoint that `lead` is or leads to: see model_files().
// nullopt if the listing does not tell: it is empty, or has more than 256 of them, so that the
// folder is not one model's.
WEIGHTMAP_API std::optional<std::vector<std::string>> names_beside(std::string_view lead,
                                                                   const Listing& listing);

// A file of a model: of its weights and their index, or of what servers read beside them.
struct ModelFile {
  std::string name;            // relative to the model's folder: "tokenizer.json"
  RemoteVersion version = {};  // whose tag is empty if nothing tells it
  StoreSum sum = {};
  bool is_weights = false;
};

// Resolves what leads to a model into the files that fetch_into() fetches: those beside the weights
// first, the one that leads to the others last. Of a store with a listing (RangeSource::list())
// these are, beside an index, model.safetensors, pytorch_model.bin, and such of an adapter or of
// diffusers, all that a server may read: names that end with .json, .txt, .model, .jinja, .py,
// .tiktoken, .yaml or .spm, but for hidden ones, other indexes, and files beyond 64 MiB; weights of
// an adapter; and the files in the folders that modules.json of sentence-transformers names. Of
// other stores they are the well-known ones, config.json, tokenizer.json and so on, which are asked
// for one by one. Fails as open_metadata() does; with corrupt for a module outside of the folder.
WEIGHTMAP_API Result<std::vector<ModelFile>> model_files(std::unique_ptr<RangeSource> source);

struct ModelReport {
  std::filesystem::path folder;    // that the link leads to now, absolute
  std::filesystem::path previous;  // that it led to before; empty: to none
  bool is_new = false;             // else the present version is that of the store
  // Of the versions that the store names of all files: 16 hexadecimal digits.
  std::string version;
  std::vector<FetchReport> files = {};  // as fetch_into() returns them
};

// Fetches a model, as fetch_into() does, into a folder beside `link`, "NAME@VERSION", and then
// leads `link`, which is a symbolic link or is made, to it: at one moment, with all of it on the
// disk and compared. Killed at any other moment the old version stays, and the next fetch goes on
// with what has come ("NAME@incoming"). Files of the present version that the store still has are
// not fetched again: both versions share them, by hard links. A new version has the older ones
// removed but for the one before it: processes that have their files open or mapped keep these.
// Fails as fetch_into() does; with invalid_argument if something else than a symbolic link has the
// name, or one for which is_model_link() is false; with io if another fetch of the link goes on.
WEIGHTMAP_API Result<ModelReport> fetch_model(std::unique_ptr<RangeSource> source,
                                              const std::filesystem::path& link,
                                              const FetchOptions& options = {});
// True for what fetch_model() takes: a name that is free, and a link that leads to nothing, or to a
// folder that fetch_model() or publish() has led it to. Another link is somebody's name for a
// folder.
WEIGHTMAP_API bool is_model_link(const std::filesystem::path& path);
// Removes the versions of fetch_model() beside the link but the current one. Fails with io if the
// system refuses.
WEIGHTMAP_API Result<void> remove_old_versions(const std::filesystem::path& link);

}  // namespace weightmap
