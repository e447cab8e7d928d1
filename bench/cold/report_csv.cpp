#include "bench/cold/report_csv.hpp"

#include <charconv>

#include "bench/cold/fields.hpp"

namespace weightmap::cli::bench {
namespace {

std::string quoted_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

// The shortest that reads back as the same number.
template <typename Number>
std::string text_of(Number value) {
  std::array<char, 32> out{};
  const auto end = std::to_chars(out.data(), out.data() + out.size(), value).ptr;
  return {out.data(), end};
}
std::string text_of(std::optional<double> value) { return value ? text_of(*value) : ""; }

std::string heading() {
  std::string out = "file,scenario,order,engine,round";
  for (const Field& field : fields) out += "," + std::string(field.name);
  return out + ",checksum\r\n";
}

std::string row(const std::string& path, const Series& series, std::size_t round) {
  const Sample& sample = series.samples[round];
  std::string out = quoted_cell(path);
  for (std::string_view text : {to_string(series.scenario), to_string(series.order)})
    out += "," + std::string(text);
  out += "," + quoted_cell(series.engine) + "," + text_of(round + 1);
  for (const Field& field : fields)
    out += "," + std::visit([&](auto member) { return text_of(sample.*member); }, field.member);
  return out + "," + checksum_text(sample) + "\r\n";
}

}  // namespace

std::string csv_report(const Results& results) {
  std::string out = heading();
  for (const FileResults& file : results.files)
    for (const Series& series : file.series)
      for (std::size_t round = 0; round < series.samples.size(); ++round)
        out += row(file.path, series, round);
  return out;
}

}  // namespace weightmap::cli::bench
