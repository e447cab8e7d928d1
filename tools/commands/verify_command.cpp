#include <memory>
#include <optional>
#include <vector>

#include "tools/command.hpp"
#include "tools/output/progress_bar.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/fill.hpp"

namespace weightmap::cli {
namespace {

struct VerifyOptions : CommonOptions {
  bool crc = false;
};

struct Findings {
  std::uint64_t storages = 0;   // found by open, and proven by the chain
  bool headers = false;         // local headers were compared
  bool has_one_header = false;  // one header for all tensors
  std::uint64_t duplicate_keys = 0;
  std::optional<CrcReport> crc;
  std::vector<Error> faults;
};

// Adds a fault for each reserved storage that was never filled in.
void add_unwritten(const Checkpoint& checkpoint, Findings& findings) {
  const std::vector<std::size_t> unwritten = unwritten_storages(checkpoint);
  for (const std::size_t index : unwritten) {
    const NamedStorage storage = checkpoint.storage(index);
    findings.faults.push_back({ErrorCode::corrupt,
                               "storage data/" + printable(storage.key) + " of " +
                                   count(storage.nbytes, "byte") +
                                   " is reserved, and nobody has written it",
                               storage.payload_offset,
                               {}});
  }
  const std::optional<ReservedStorages>& reserved = checkpoint.info().reserved;
  if (unwritten.empty() && reserved && !reserved->is_sealed)
    findings.faults.push_back({ErrorCode::corrupt,
                               "all reserved storages are written, but the file is not sealed: it "
                               "has no checksums of them",
                               Error::no_offset,
                               {}});
}

Findings examine(const Checkpoint& checkpoint, const VerifyOptions& options) {
  Findings findings;
  findings.storages = checkpoint.storage_count();
  findings.duplicate_keys = checkpoint.info().duplicate_keys;
  findings.headers = true;
  findings.has_one_header = is_header_and_elements(checkpoint.info().format);
  if (Result<void> ok = checkpoint.verify_headers(); !ok) findings.faults.push_back(ok.error());
  add_unwritten(checkpoint, findings);
  if (!options.crc) return findings;
  ProgressBar bar;
  findings.crc = checkpoint.verify_crc(bar.follow());
  findings.faults.insert(findings.faults.end(), findings.crc->faults.begin(),
                         findings.crc->faults.end());
  return findings;
}

Json describe_findings(const std::string& file, const Findings& findings) {
  Json faults = Json::array();
  for (const Error& fault : findings.faults) faults.push_back(describe(fault));
  Json crc = nullptr;
  if (findings.crc)
    crc = {{"storages_checked", findings.crc->storages_checked},
           {"storages_without_crc", findings.crc->storages_without_crc},
           {"bytes", findings.crc->bytes}};
  return {{"file", file},
          {"ok", findings.faults.empty()},
          {"storages", findings.storages},
          {"headers_checked", findings.headers},
          {"duplicate_keys", findings.duplicate_keys},
          {"crc", crc},
          {"faults", faults}};
}

std::string checked_text(const Findings& findings) {
  std::string text = count(findings.storages, "storage") + ", every offset against " +
                     (findings.has_one_header ? "the header of its file" : "its local header");
  if (findings.duplicate_keys > 0)
    text += "; " + count(findings.duplicate_keys, "key") +
            " left out, which a dict has again behind them";
  if (!findings.crc) return text + "; bytes not read (--crc reads them)";
  text += "; CRC of " + count(findings.crc->storages_checked, "storage") + ", " +
          human_bytes(findings.crc->bytes);
  if (findings.crc->storages_without_crc > 0)
    text += "; " + count(findings.crc->storages_without_crc, "storage") + " had no CRC";
  return text;
}

void print_findings(Output& out, const VerifyOptions& options, const Findings& findings) {
  for (const Error& fault : findings.faults)
    out.write("FAULT " + to_string(about(options, fault)) + "\n");
  if (findings.faults.empty())
    out.write("OK " + checked_text(findings) + "\n");
  else
    out.write("FAILED with " + count(findings.faults.size(), "fault") + "\n");
}

// Invalid content that prevents an open is a finding; an unreadable file is an error.
bool is_finding(const Error& error) {
  return error.code != ErrorCode::io && error.code != ErrorCode::invalid_argument;
}

Result<int> run_verify(Output& out, const VerifyOptions& options) {
  Findings findings;
  if (Result<Checkpoint> checkpoint = open_checkpoint(options); checkpoint)
    findings = examine(*checkpoint, options);
  else if (is_finding(checkpoint.error()))
    findings.faults.push_back(checkpoint.error());
  else
    return tl::unexpected<Error>(checkpoint.error());
  const int code = findings.faults.empty() ? exit_good : exit_failed;
  if (options.json)
    out.write(to_text(describe_findings(options.file, findings)) + "\n");
  else
    print_findings(out, options, findings);
  return code;
}

}  // namespace

void add_verify(CLI::App& app, Run& run) {
  auto options = std::make_shared<VerifyOptions>();
  // Opening proves only the chain, whatever WEIGHTMAP_VERIFY is; this collects all other faults.
  options->open.verify = Verify::chain;
  CLI::App& command =
      *app.add_subcommand("verify", "Check the file: structure, offsets, with --crc every byte");
  add_common_options(command, *options);
  command.add_flag("--crc", options->crc, "Read every storage and compare its CRC-32");
  command.footer(
      "Prints a line for each fault and ends with exit status 1 if there is any.\n"
      "Examples:\n"
      "  weightmap verify model.pt\n"
      "  weightmap verify --crc model.pt");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_verify(out, *options); }; });
}

}  // namespace weightmap::cli
