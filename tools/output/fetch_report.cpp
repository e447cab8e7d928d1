#include "tools/output/fetch_report.hpp"

#include <chrono>

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

// One answer is of one version.
bool is_unproven(const FetchReport& report) {
  return !report.in_one_request && report.version.tag.empty() && report.version.id.empty();
}

Json sum_from(const FetchReport& report) {
  if (report.has_composite_sum) return "composite, not compared";
  if (report.sum_from == SumFrom::nobody) return nullptr;
  if (report.sum_from == SumFrom::beside) return "SHA256SUMS";
  return report.sum_from == SumFrom::store ? "store" : "given";
}

const char* who_said(SumFrom from) {
  if (from == SumFrom::beside) return ", as SHA256SUMS beside it says it";
  return from == SumFrom::store ? ", as its store says it" : "";
}

}  // namespace

std::string fetch_words(const FetchReport& report) {
  const RangeCounts& counts = report.counts;
  std::string text = count(counts.requests, "request");
  if (report.in_one_request)
    text += counts.requests == 1 ? " for all of it" : ", the last one for all of it";
  const auto add = [&text](std::uint64_t number, const std::string& what) {
    if (number > 0) text += what;
  };
  add(counts.retries, ", " + std::to_string(counts.retries) + " repeated");
  add(counts.hedges, ", " + std::to_string(counts.hedges) + " doubled because they were slow");
  add(counts.bytes_twice, ", " + human_bytes(counts.bytes_twice) + " received twice");
  add(report.resumed_bytes, ", " + human_bytes(report.resumed_bytes) + " were there already");
  add(report.verified_bytes, ", " + human_bytes(report.verified_bytes) + " compared with CRC-32s");
  add(report.summed_bytes, std::string(", its SHA-256 compared") + who_said(report.sum_from));
  add(report.has_composite_sum,
      ", the store's SHA-256 not compared: it is composite, of the parts of an upload");
  if (report.verified_bytes == 0 && report.summed_bytes == 0 && !report.has_composite_sum)
    text += ", not compared: there are no checksums, and no --sha256 was given";
  if (is_unproven(report)) text += ", unproven: the server names no version by an ETag";
  return text;
}

Json describe(const FetchReport& report) {
  const RangeCounts& counts = report.counts;
  return {{"tag", report.version.tag},
          {"version", report.version.id},
          {"bytes", report.file_bytes},
          {"resumed_bytes", report.resumed_bytes},
          {"verified_bytes", report.verified_bytes},
          {"sha256_compared", report.summed_bytes != 0},
          {"sum_from", sum_from(report)},
          {"unproven", is_unproven(report)},
          {"in_one_request", report.in_one_request},
          {"requests", counts.requests},
          {"retries", counts.retries},
          {"hedges", counts.hedges},
          {"received_bytes", counts.bytes},
          {"received_twice_bytes", counts.bytes_twice},
          {"seconds", std::chrono::duration<double>(report.time).count()}};
}

}  // namespace weightmap::cli
