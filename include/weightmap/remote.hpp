// Remote files: by URL, which is the library libweightmap_remote, and stands on libcurl; or by a
// RangeSource of your own, over any client of a store.
//
//   auto source = weightmap::open_url("https://host/model.pt");
//   if (!source) return tl::unexpected(source.error());
//   auto staged = weightmap::stage(*std::move(source));  // fetch.hpp
//   if (!staged) return tl::unexpected(staged.error());
//   auto checkpoint = weightmap::Checkpoint::open_descriptor(staged->descriptor());
//
// Credentials come from the URL itself (presigned), from RemoteOptions::signer or headers, or, for
// s3://bucket/key, from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and
// AWS_ENDPOINT_URL. No message and no log has a query string, a password or a header's value.
// Proxies are those of libcurl's environment variables. TLS trusts the authorities in the file of
// CURL_CA_BUNDLE or SSL_CERT_FILE, else those of the system.
//
// All functions may be called from any thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

// A remote file that is read by ranges: the interface between the core, which has no network, and
// the one who has: open_url(), or your own class over any client of a store.
//
// A source serves one version of its file. It is found out by identify(), and all later reads are
// of this version (HTTP: If-Match, or S3's versionId), or fail.
//
// One thread at a time may call a source; it may be another one each time.

// One version of a remote file, as its server tells it.
struct RemoteVersion {
  std::uint64_t size = 0;  // in bytes
  std::string tag = {};    // HTTP's ETag as it was sent, with its quotes; empty: there is none
  std::string id = {};     // S3's versionId; empty: there is none

  friend bool operator==(const RemoteVersion&, const RemoteVersion&) = default;
};

// What a store says of a file's SHA-256.
struct StoreSum {
  std::optional<std::array<std::byte, 32>> sha256 = {};  // of the whole file
  bool is_composite = false;  // it has only that of the SHA-256s of the parts it was uploaded in
};

struct RangeRequest {
  std::uint64_t offset = 0;
  std::span<std::byte> into = {};  // its size is the length of the range
};

// What RangeSource::read() asks for ranges, and tells of their arrival. All calls come from the
// thread that called read().
class WEIGHTMAP_API RangeReader {
 public:
  virtual ~RangeReader() = default;
  // Returns the range to begin next, whose memory stays valid until it has arrived or read() has
  // returned; nullopt once no range is left. Called as late as possible, so that the order may
  // still change.
  virtual std::optional<RangeRequest> next() = 0;
  // All bytes of a range have arrived, and are from the version of identify(). Each range arrives
  // once, in any order. An error ends read(), which returns it.
  virtual Result<void> arrived(const RangeRequest& request) = 0;
  // The first `bytes` of a range that is on its way have arrived likewise, and are not written to
  // any more. A source that tells it, now and then, lets them be kept though it may fail later.
  virtual void began(const RangeRequest& /*request*/, std::size_t /*bytes*/) {}
  // Called at least ten times a second. false: read() stops and fails with cancelled. `received` is
  // the number of body bytes that have come in this read(), including those of unfinished ranges.
  virtual bool goes_on(std::uint64_t received) = 0;
};

// Counted since the source was made.
struct RangeCounts {
  std::uint64_t requests = 0;     // of all kinds, including those that failed
  std::uint64_t retries = 0;      // requests for the rest of a range whose first request failed
  std::uint64_t hedges = 0;       // second requests for a range that was slow
  std::uint64_t bytes = 0;        // of bodies
  std::uint64_t bytes_twice = 0;  // of these, bytes that had been received before
};

// A file of a folder, as its store lists it.
struct ListedFile {
  std::string name;  // without a slash
  std::uint64_t size = 0;
  std::string tag = {};  // as RemoteVersion::tag; empty: the listing has none
};
using Listing = std::vector<ListedFile>;

class WEIGHTMAP_API RangeSource {
 public:
  virtual ~RangeSource() = default;
  // For messages: "https://host/folder/model.pt", without query, user and password.
  virtual const std::string& name() const noexcept = 0;
  // What tells this file from all others, whatever their versions are called: the URL with what
  // name() leaves out, but for credentials that expire. Only digests of it are kept.
  virtual std::string identity() const { return name(); }
  // Finds out the version, and fills the first bytes of the file into `head` and its last into
  // `tail`, as many as there are, in one round trip where the protocol can: a file of N bytes fills
  // the first min(N, head.size()) bytes of `head`, and the last min(N, tail.size()) bytes of
  // `tail`, whose end is the file's. Either may be empty. Called once, before read().
  virtual Result<RemoteVersion> identify(std::span<std::byte> head, std::span<std::byte> tail) = 0;
  // Reads ranges until next() has none left and all have arrived. Fails with io if the store cannot
  // be read, cannot be read any more, or serves another version by now; the message then begins
  // with "changed". Several ranges are on their way at a time.
  virtual Result<void> read(RangeReader& reader) = 0;
  // Opens another file, by its name relative to the folder of this one: "model-00002-of-3.pt",
  // "sub/data". Fails with unsupported if the source knows no folder.
  virtual Result<std::unique_ptr<RangeSource>> sibling(const std::string& relative) const = 0;
  virtual RangeCounts counts() const noexcept = 0;
  // True if read() calls RangeReader::began() now and then. Of others shorter ranges are asked for
  // while little arrives, so that not much of them is lost if a fetch is killed.
  virtual bool tells_began() const noexcept { return false; }
  // What the store says of the SHA-256 of the version that was identified; may be a request of its
  // own. Empty if it says nothing. Fails as read() does.
  virtual Result<StoreSum> store_sum() { return StoreSum{}; }
  // The files of this one's folder, without those of folders below; may be called before
  // identify(). nullopt if the store has no listing, or refuses it. Fails as read() does.
  virtual Result<std::optional<Listing>> list() { return std::nullopt; }
};

// Of a web server's JSON, as nginx writes it (`autoindex_format json`):
//
// [{"name": "config.json", "type": "file", "mtime": "Sun, 29 Nov 2026 09:00:00 GMT", "size": 9}]
//
// nullopt for anything else. Other types than "file", and names that are none of a file in a
// folder, are left out. Names no tags: a time in whole seconds proves nothing.
WEIGHTMAP_API std::optional<Listing> read_autoindex(std::string_view json);

// What WholeSource::read_whole() hands the file to. An error ends it, and is returned.
class WEIGHTMAP_API WholeReader {
 public:
  virtual ~WholeReader() = default;
  // Before the first byte. Called once more if the answer broke off: then all of it comes again.
  virtual Result<void> begins(const RemoteVersion& version) = 0;
  // The bytes that come next.
  virtual Result<void> take(std::span<const std::byte> bytes) = 0;
};

// A remote file that can be read by one request for all of it: of a server that knows no ranges. A
// RangeSource may be one, too; fetch() looks for it by dynamic_cast.
class WEIGHTMAP_API WholeSource {
 public:
  virtual ~WholeSource() = default;
  // True once identify() has failed since the server answers with the whole file.
  virtual bool has_no_ranges() const noexcept = 0;
  // Asks for all of the file. Fails with not_found if the server has none to give, with unsupported
  // if what it sends is a web page, compressed, or of unknown length, else as RangeSource::read().
  virtual Result<void> read_whole(WholeReader& reader) = 0;
};

// Models of the Hugging Face Hub: "hf://org/name", "hf://org/name@revision", and with a file of it
// "hf://org/name@revision/model-q4.gguf", where a slash in the revision is written %2F.
//
// A name without a file means the model's checkpoint, by the rules for folders (checkpoint.hpp).
// Where it leads is asked for once; from then on all is of one commit.

// How the hub is asked; libweightmap_remote has one. One thread at a time may call it. Paths begin
// with a slash, follow the hub's address, and are percent-encoded.
class WEIGHTMAP_API HubClient {
 public:
  virtual ~HubClient() = default;
  // The body of an answer: "/api/models/org/name/revision/main?blobs=true". Fails with not_found
  // if there is none. At most 64 MiB.
  virtual Result<std::string> get(const std::string& path) = 0;
  // A file: "/org/name/resolve/COMMIT/model.safetensors".
  virtual Result<std::unique_ptr<RangeSource>> open(const std::string& path) = 0;
};

// What the environment says of the hub: HF_ENDPOINT, and HF_TOKEN or the file HF_TOKEN_PATH,
// $HF_HOME/token or ~/.cache/huggingface/token.
struct HubAccess {
  std::string endpoint = "https://huggingface.co";  // without a slash at its end
  std::string token = {};                           // a secret; empty: none
  std::string token_from = {};                      // for messages: "HF_TOKEN", or the file's path
};
WEIGHTMAP_API HubAccess hub_access();

// A source that finds out by identify() which file it is. Fails with invalid_argument for what is
// no such name.
WEIGHTMAP_API Result<std::unique_ptr<RangeSource>> open_hub_model(std::shared_ptr<HubClient> client,
                                                                  const std::string& name);

struct RemoteOptions {
  // Requests on their way at a time. 0: begins with 16, and doubles up to 64 while the rate grows.
  unsigned connections = 0;
  // Requests that may fail for one range, one after the other.
  unsigned retries = 6;
  // For all that one read() does; 0: none.
  std::chrono::milliseconds deadline{0};
  // For all that the source and its siblings do, in all; unset: none.
  std::chrono::steady_clock::time_point until{};
  // Without a byte for so long, a request counts as failed.
  std::chrono::milliseconds stall{10'000};
  // Returns the URL to request in place of `url`, which is as it was given: a presigned one. Called
  // once per file, and again (`again`) after the store refused the last one.
  std::function<Result<std::string>(const std::string& url, bool again)> signer = {};
  // "Name: value". They are sent to the host of the URL, and to no other one after a redirect.
  std::vector<std::string> headers = {};
  // Takes files of a server that names no version: neither an ETag nor a date. Bytes of two
  // versions may then come as one file. Without this identify() fails with unsupported.
  bool unproven = false;
  // Called at least ten times a second by the thread that waits for the store, also in identify().
  // false: the call fails with cancelled.
  std::function<bool()> goes_on = {};
};

// True for what open_url() takes: http://, https://, s3://, file://, and hf:// (HubClient).
WEIGHTMAP_API bool is_url(const std::string& text) noexcept;

// Checks the URL, and asks nothing of the network yet. Fails with invalid_argument for a URL that
// cannot be used.
WEIGHTMAP_API Result<std::unique_ptr<RangeSource>> open_url(const std::string& url,
                                                            const RemoteOptions& options = {});

// The hub of hub_access(): https://huggingface.co unless HF_ENDPOINT says otherwise. The token is
// sent to this host only. Of the options all but the signer apply. Fails with invalid_argument for
// an endpoint or options that cannot be used.
WEIGHTMAP_API Result<std::shared_ptr<HubClient>> hub_client(const RemoteOptions& options = {});

// The name of a version of a file: "model.pt@TAG". The tag is without its quotes, and each
// byte of it but letters, digits, "-" and "." is "_" and two hexadecimal digits. Empty without a
// tag.
WEIGHTMAP_API std::string version_file_name(const std::string& file, const RemoteVersion& version);

// Opens a remote checkpoint, and reads only its metadata: names, shapes, offsets, the value tree.
//
//   auto checkpoint = weightmap::open_metadata(std::move(remote));  // of open_url()
//   if (!checkpoint) return tl::unexpected(checkpoint.error());
//   for (const weightmap::NamedTensor tensor : checkpoint->tensors()) list(tensor.name);
//
// tensors(), find(), root() and info() are
// those of Checkpoint::open() of the same file. A few requests get it, except where some of it is
// beside each tensor: in a legacy stream, npz and torch.distributed.checkpoint; these requests are
// made together. Files of a set are found beside the first one by RangeSource::sibling().
//
// Paths (Backing, source()) and errors are RangeSource::name(). state() is always `current`,
// since all reads are of one version, or fail. gather() and Backing::copy_bytes() fetch the bytes
// that they need, each time, and only in the process that opened it: after fork() they fail with
// unsupported. The memory of views and of mapping() is not there: reading it raises SIGSEGV. What
// would pass it on or read it fails with unsupported: Backing::lend() and copy_on_write(),
// writable_bytes(), demand(), verify_crc(), Warmer, cuda::Uploader, residency(), check_unchanged();
// and reopen() does.
//
// The checkpoint owns the source. Fails as Checkpoint::open() does; with io as `source` does; with
// unsupported for options that read more than metadata (`writable`, `populate`, `locked`, `verify`
// crc), or if storages are compressed. The environment's wishes for those, and `protection`, are
// without effect.
WEIGHTMAP_API Result<Checkpoint> open_metadata(std::unique_ptr<RangeSource> source,
                                               const OpenOptions& options = {});

}  // namespace weightmap
