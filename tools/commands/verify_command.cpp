#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/output/each_file.hpp"
#include "tools/output/terminal.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap::cli {
namespace {

namespace fs = std::filesystem;

struct VerifyOptions : CommonOptions {
  std::vector<std::string> files;  // `file` is the one that is examined
  bool crc = false;
  std::string sha256;
  std::string sums;  // a list of sha256sum
  bool seal = false;
};

struct Findings {
  std::uint64_t storages = 0;           // found by open, and proven by the chain
  bool headers = false;                 // local headers were compared
  std::string_view compared_with = {};  // what tells of the place of a storage, too
  std::uint64_t duplicate_keys = 0;
  std::size_t long_names = 0;  // tensors of a GGUF file that llama.cpp refuses
  std::uint64_t hole_bytes = 0;
  std::optional<CrcReport> crc;
  std::uint64_t bytes_with_crc = 0;
  std::uint64_t bytes_not_compared = 0;  // of storages
  std::uint64_t storages_not_compared = 0;
  std::optional<SumReport> sums;
  bool may_have_hub_sums = false;                        // which --crc would compare
  std::vector<std::pair<fs::path, std::string>> sealed;  // files, with their digests of fs-verity
  std::string not_opened;                                // why not: the file is of another kind
  std::vector<Error> faults;
};

// Adds a fault for each reserved storage that was never filled in.
void add_unwritten(const Checkpoint& checkpoint, Findings& findings) {
  const std::vector<std::size_t> unwritten = unwritten_storages(checkpoint);
  const std::optional<ReservedStorages>& reserved = checkpoint.info().reserved;
  if (!reserved) findings.hole_bytes = hole_bytes(checkpoint);
  for (const std::size_t index : unwritten) {
    const NamedStorage storage = Backing(checkpoint).storage(index);
    findings.faults.push_back(
        {ErrorCode::corrupt,
         (reserved ? "storage data/" : "storage ") + printable(storage.key) + " of " +
             count(storage.nbytes, "byte") +
             (reserved ? " is reserved, and nobody has written it"
                       : " was never written: it is a hole in the file, or ends in one (unless a "
                         "sparse copy left out zeros)"),
         storage.payload_offset,
         {}});
  }
  if (unwritten.empty() && reserved && !reserved->is_sealed)
    findings.faults.push_back({ErrorCode::corrupt,
                               "all reserved storages are written, but the file is not sealed: it "
                               "has no checksums of them",
                               Error::no_offset,
                               {}});
}

// Counts the bytes that no checksum was compared with: neither that of their storage nor that of
// their file.
void count_compared(const Checkpoint& checkpoint, Findings& findings) {
  for (std::size_t i = 0; i < Backing(checkpoint).storage_count(); ++i) {
    const NamedStorage storage = Backing(checkpoint).storage(i);
    const SourceInfo& source = checkpoint.source(storage.source);
    const bool has_crc = storage.crc32 != 0;
    if (has_crc) findings.bytes_with_crc += storage.nbytes;
    const bool is_summed =
        findings.sums &&
        std::ranges::find(findings.sums->compared, source.path) != findings.sums->compared.end();
    if (is_summed || (has_crc && findings.crc) || storage.nbytes == 0) continue;
    findings.bytes_not_compared += storage.nbytes;
    ++findings.storages_not_compared;
  }
}

// ggml keeps a name and a NUL in 64 bytes, unless it is built otherwise.
std::size_t count_long_names(const Checkpoint& checkpoint) {
  constexpr std::size_t longest = 63;
  if (checkpoint.info().format != Format::gguf) return 0;
  const auto tensors = checkpoint.tensors();
  return static_cast<std::size_t>(
      std::count_if(tensors.begin(), tensors.end(),
                    [](const NamedTensor& tensor) { return tensor.name.size() > longest; }));
}

// A stream, a pickle and files of several formats have no local headers.
std::string_view name_second_place(Format format) {
  if (is_header_and_elements(format)) return "the header of its file";
  const bool has_records =
      is_torch_archive(format) || format == Format::npz || format == Format::dcp;
  return has_records ? "its local header" : "what its file says";
}

void examine(const Checkpoint& checkpoint, const VerifyOptions& options, Findings& findings) {
  findings.storages = Backing(checkpoint).storage_count();
  findings.duplicate_keys = checkpoint.info().duplicate_keys;
  findings.long_names = count_long_names(checkpoint);
  findings.headers = true;
  findings.compared_with = name_second_place(checkpoint.info().format);
  if (Result<void> ok = verify_headers(checkpoint); !ok) findings.faults.push_back(ok.error());
  add_unwritten(checkpoint, findings);
  if (options.crc) {
    ProgressBar bar;
    findings.crc = verify_crc(checkpoint, bar.follow());
    findings.faults.insert(findings.faults.end(), findings.crc->faults.begin(),
                           findings.crc->faults.end());
  }
  count_compared(checkpoint, findings);
}

bool is_asked_for_sums(const VerifyOptions& options) noexcept {
  return !options.sha256.empty() || !options.sums.empty();
}

// The sums of `files` that the options give.
Result<std::vector<FileSum>> given_sums(const VerifyOptions& options,
                                        const std::vector<fs::path>& files) {
  std::vector<FileSum> sums;
  if (!options.sums.empty()) {
    TRY_ASSIGN(sums, read_sums(options.sums));
  }
  if (options.sha256.empty()) return sums;
  if (files.size() != 1)
    return tl::unexpected<Error>(about(
        options,
        {ErrorCode::invalid_argument,
         "has " + std::to_string(files.size()) +
             " files, and --sha256 is the checksum of one; give a list of sha256sum by --sums",
         Error::no_offset,
         {}}));
  sums.push_back(
      {fs::absolute(files.front()).lexically_normal(), normal_sha256(options.sha256), "--sha256"});
  return sums;
}

// Compares the files with what the options say, and with what the hub's cache says.
Result<void> compare_files(const VerifyOptions& options, Findings& findings) {
  if (is_asked_for_sums(options)) TRY(check_is_file(options));
  if (options.is_remote()) return {};
  Result<std::vector<fs::path>> files = weightmap::files_of(options.file);
  if (!options.crc && !is_asked_for_sums(options)) {
    findings.may_have_hub_sums = files && !hub_sums(*files).empty();
    return {};
  }
  // Of a file of any content, also one that is not opened.
  if (!files && files.error().code == ErrorCode::io) return tl::unexpected<Error>(files.error());
  if (!files) files = std::vector<fs::path>{options.file};
  TRY_ASSIGN(std::vector<FileSum> sums, given_sums(options, *files));
  for (const fs::path& file : *files) {
    const fs::path full = fs::absolute(file).lexically_normal();
    if (!options.sums.empty() && std::ranges::find(sums, full, &FileSum::file) == sums.end())
      findings.faults.push_back({ErrorCode::corrupt,
                                 printable(options.sums) + " has no line for " +
                                     printable(file.native()) + ", which was not compared",
                                 Error::no_offset,
                                 {}});
  }
  std::ranges::move(hub_sums(*files), std::back_inserter(sums));
  if (sums.empty()) return {};
  ProgressBar bar;
  findings.sums = compare_sums(*files, sums, bar.follow());
  std::ranges::copy(findings.sums->faults, std::back_inserter(findings.faults));
  return {};
}

// A file as it was before it was checked.
struct FileToSeal {
  fs::path file;
  Generation before;
};

std::vector<FileToSeal> files_to_seal(const VerifyOptions& options) {
  std::vector<FileToSeal> files;
  const Result<std::vector<fs::path>> named = weightmap::files_of(options.file);
  for (const fs::path& file : named ? *named : std::vector<fs::path>{options.file})
    if (const Result<Generation> before = generation_at(file)) files.push_back({file, *before});
  return files;
}

// Seals what was found right, unless it was written to since.
Result<void> seal(const FileToSeal& checked) {
  TRY_ASSIGN(const Generation now, generation_at(checked.file));
  if (now.same_content(checked.before)) return enable_fs_verity(checked.file);
  return tl::unexpected<Error>({ErrorCode::io,
                                "was written to while it was checked, and is not sealed",
                                Error::no_offset, printable(checked.file.native())});
}

// Notes what the kernel says of the file, which may have been sealed long ago.
void find_seal(const fs::path& file, Findings& findings) {
  const Result<std::string> digest = fs_verity_digest(file);
  if (digest && !digest->empty()) findings.sealed.emplace_back(file, *digest);
}

Json describe_findings(const std::string& file, const Findings& findings) {
  Json faults = Json::array();
  for (const Error& fault : findings.faults) faults.push_back(describe(fault));
  Json crc = nullptr;
  if (findings.crc)
    crc = {{"storages_checked", findings.crc->storages_checked},
           {"storages_without_crc", findings.crc->storages_without_crc},
           {"bytes", findings.bytes_with_crc}};
  Json sums = nullptr;
  if (findings.sums)
    sums = {{"files", findings.sums->compared.size()}, {"bytes", findings.sums->bytes}};
  Json sealed = Json::object();
  for (const auto& [path, digest] : findings.sealed) sealed[path.native()] = digest;
  return {{"file", file},
          {"ok", findings.faults.empty()},
          {"storages", findings.storages},
          {"headers_checked", findings.headers},
          {"duplicate_keys", findings.duplicate_keys},
          {"long_names", findings.long_names},
          {"hole_bytes", findings.hole_bytes},
          {"crc", crc},
          {"sha256", sums},
          {"fs_verity", sealed},
          {"bytes_not_compared", findings.bytes_not_compared},
          {"faults", faults}};
}

// Says what no checksum was compared with, and what would do so.
std::string not_compared_text(const Findings& findings) {
  if (findings.bytes_not_compared == 0) return {};
  const std::string bytes = human_bytes(findings.bytes_not_compared);
  if (!findings.crc && findings.bytes_with_crc > 0)
    return "; " + bytes + " not read (--crc reads them)";
  if (findings.may_have_hub_sums)
    return "; " + bytes +
           " not read (--crc compares the file with the SHA-256 that its blob in the cache is "
           "named "
           "after)";
  return "; " + bytes + " of " + count(findings.storages_not_compared, "storage") +
         " compared with nothing: they have no CRC (--sha256 or --sums compares whole files)";
}

std::string sums_text(const SumReport& sums) {
  return "SHA-256 of " + count(sums.compared.size(), "file") + ", " + human_bytes(sums.bytes);
}

std::string sealed_text(const Findings& findings) {
  const std::string text = count(findings.sealed.size(), "file") +
                           " sealed by fs-verity: the kernel compares each page that it reads";
  return findings.sealed.size() > 1 ? text : text + " with " + findings.sealed.front().second;
}

std::string checked_text(const Findings& findings) {
  if (!findings.not_opened.empty())
    return sums_text(*findings.sums) + "; nothing else was checked: it " + findings.not_opened;
  std::string text = count(findings.storages, "storage") + ", every offset against " +
                     std::string(findings.compared_with);
  if (findings.duplicate_keys > 0)
    text += "; " + count(findings.duplicate_keys, "key") +
            " left out, which a dict has again behind them";
  if (findings.crc && findings.bytes_with_crc > 0)
    text += "; CRC of " + count(findings.crc->storages_checked, "storage") + ", " +
            human_bytes(findings.bytes_with_crc);
  if (findings.hole_bytes > 0)
    text +=
        "; " + count(findings.hole_bytes, "byte") +
        " are holes in the file, which read as zeros: nobody has written them, or a sparse copy "
        "left them out";
  if (findings.sums) text += "; " + sums_text(*findings.sums);
  if (!findings.sealed.empty()) text += "; " + sealed_text(findings);
  if (findings.long_names > 0)
    text += "; " + count(findings.long_names, "name") +
            " of 64 bytes and more, which llama.cpp refuses (GGML_MAX_NAME) and "
            "stable-diffusion.cpp and gguf-py read";
  return text + not_compared_text(findings);
}

void print_findings(Output& out, const VerifyOptions& options, const Findings& findings) {
  for (const Error& fault : findings.faults)
    out.write("FAULT " + to_string(about(options, fault)) + "\n");
  if (options.files.size() > 1) out.write(printable(options.file) + ": ");
  if (findings.faults.empty())
    out.write("OK " + checked_text(findings) + "\n");
  else
    out.write("FAILED with " + count(findings.faults.size(), "fault") + "\n");
}

// Not faults of the file: what it is or has is not read here.
bool is_of_others(const Error& error) {
  return error.code == ErrorCode::not_a_checkpoint || error.code == ErrorCode::unsupported;
}

// Invalid content that prevents an open is a finding; a file that cannot be read, is no checkpoint
// or is a valid one that is not read is an error.
bool is_finding(const Error& error) {
  return error.code != ErrorCode::io && error.code != ErrorCode::invalid_argument &&
         !is_of_others(error);
}

Result<OfFile> verify_file(Output& out, const VerifyOptions& options) {
  Findings findings;
  const std::vector<FileToSeal> files = files_to_seal(options);
  TRY(compare_files(options, findings));
  if (Result<Checkpoint> checkpoint = open_checkpoint(options); checkpoint)
    examine(*checkpoint, options, findings);
  else if (is_finding(checkpoint.error()))
    findings.faults.push_back(checkpoint.error());
  else if (is_of_others(checkpoint.error()) && findings.sums)
    findings.not_opened =
        (checkpoint.error().code == ErrorCode::unsupported ? "is not opened: " : "") +
        checkpoint.error().message;
  else
    return tl::unexpected<Error>(checkpoint.error());
  for (const FileToSeal& checked : files) {
    if (options.seal && findings.faults.empty()) TRY(seal(checked));
    find_seal(checked.file, findings);
  }
  if (!options.json) print_findings(out, options, findings);
  return OfFile{findings.faults.empty() ? exit_good : exit_failed,
                describe_findings(options.file, findings)};
}

Result<int> run_verify(Output& out, const VerifyOptions& options) {
  VerifyOptions of_file = options;
  return examine_each(out, options.files, options.json, [&](const std::string& file) {
    of_file.file = file;
    return verify_file(out, of_file);
  });
}

}  // namespace

void add_verify(CLI::App& app, Run& run) {
  auto options = std::make_shared<VerifyOptions>();
  // Opening proves only the chain, whatever WEIGHTMAP_VERIFY is; this collects all other faults.
  options->open.verify = Verify::chain;
  CLI::App& command =
      *app.add_subcommand("verify", "Check the file: structure, offsets, with --crc every byte");
  add_common_options(command, *options);
  command.remove_option(command.get_option("FILE"));
  command.add_option("FILE", options->files, "The checkpoints")->required()->type_name("");
  command.add_flag("--crc", options->crc, "Read every storage and compare its CRC-32");
  command
      .add_option("--sha256", options->sha256,
                  "Read the file and compare it with this SHA-256, of any format")
      ->type_name("HEX")
      ->check([](const std::string& text) {
        return normal_sha256(text).empty() ? "must be 64 hexadecimal digits" : "";
      });
  command
      .add_option("--sums", options->sums,
                  "Read all files and compare them with this list of sha256sum")
      ->type_name("FILE");
  command.add_flag("--seal", options->seal,
                   "Seal files without a fault by fs-verity: nobody can write to them any more");
  command.footer(
      "Prints a line for each fault and ends with exit status 1 if there is any. Says how many\n"
      "bytes no checksum was compared with. With --crc a file of the hub's cache is compared with\n"
      "the SHA-256 that its blob is named after.\n"
      "Examples:\n"
      "  weightmap verify model.pt\n"
      "  weightmap verify --crc model.pt\n"
      "  weightmap verify --sums SHA256SUMS models/llama\n"
      "  weightmap verify --json *.pt | jq '.files[] | select(.ok | not)'");
  command.callback([options, &run] {
    if (options->files.size() > 1 && !options->sha256.empty())
      throw CLI::ValidationError("--sha256",
                                 "is the checksum of one FILE; --sums has those of all");
    run = [options](Output& out) { return run_verify(out, *options); };
  });
}

}  // namespace weightmap::cli
