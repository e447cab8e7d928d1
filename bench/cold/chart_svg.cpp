#include "bench/cold/chart_svg.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "bench/cold/numbers.hpp"

namespace weightmap::cli::bench {
namespace {

// In units of the view box, which a browser scales to the width of the page.
constexpr double chart_width = 640;
constexpr double left = 26, right = chart_width - 26;
constexpr double figure_width = 90;  // of the figure on the right of a label
constexpr double row_height = 42, dots_at = 29;
constexpr double axis_height = 44;
constexpr double logarithmic_above = 20;

std::string number(double value) {
  std::array<char, 64> out{};
  std::snprintf(out.data(), out.size(), "%.6g", value);
  return out.data();
}

std::string place(double value) { return number(std::round(value * 10) / 10); }

// From the smallest to the largest tick.
struct Scale {
  bool logarithmic = false;
  double first = 0, last = 1;
  std::vector<double> ticks;

  // A logarithmic axis in seconds would begin with many zeros.
  bool in_seconds() const { return last >= 2000 && (!logarithmic || first >= 500); }
  double x(double value) const {
    const double part = logarithmic
                            ? std::log(std::max(value, first) / first) / std::log(last / first)
                            : (value - first) / (last - first);
    return left + std::clamp(part, 0.0, 1.0) * (right - left);
  }
};

// The smallest of 1, 2, 5, 10, 20, ... that is not below `value`.
double round_up(double value) {
  const double decade = std::pow(10, std::floor(std::log10(value)));
  for (double step : {1.0, 2.0, 5.0})
    if (step * decade >= value * (1 - 1e-9)) return step * decade;
  return 10 * decade;
}

Scale linear(double largest) {
  Scale scale;
  const double step = round_up(largest / 7);
  const double steps = std::max(1.0, std::ceil(largest / step * (1 - 1e-9)));
  for (double i = 0; i <= steps; ++i) scale.ticks.push_back(i * step);
  scale.last = scale.ticks.back();
  return scale;
}

// Ticks at 1, 2, 5 of each decade, or at 1 only where those would be too many.
Scale logarithmic(double smallest, double largest) {
  Scale scale{true, 0, 1, {}};
  const bool fine = largest / smallest < 1000;
  // One more at each end than needed: log10 and pow round.
  const double lowest = std::floor(std::log10(smallest)) - 1;
  const double highest = std::ceil(std::log10(largest)) + 1;
  for (double decade = lowest; decade <= highest; ++decade)
    for (double step : {1.0, 2.0, 5.0})
      if (fine || step == 1) scale.ticks.push_back(step * std::pow(10, decade));
  const auto begin = std::upper_bound(scale.ticks.begin(), scale.ticks.end(), smallest) - 1;
  const auto end = std::lower_bound(scale.ticks.begin(), scale.ticks.end(), largest);
  scale.ticks = std::vector<double>(begin, end + 1);
  scale.first = scale.ticks.front();
  scale.last = scale.ticks.back();
  return scale;
}

struct Extent {
  double smallest = std::numeric_limits<double>::infinity();  // above 0
  double largest = 0;

  void add(double value) {
    if (!std::isfinite(value)) return;
    if (value > 0) smallest = std::min(smallest, value);
    largest = std::max(largest, value);
  }
};

Scale scale_of(const std::vector<DotRow>& rows) {
  Extent all, medians;
  for (const DotRow& row : rows) {
    medians.add(row.median);
    for (double value : row.values) all.add(value);
  }
  if (all.largest == 0) return linear(1);
  if (medians.largest / medians.smallest > logarithmic_above)
    return logarithmic(all.smallest, all.largest);
  return linear(all.largest);
}

std::string line(const std::string& style, double x1, double y1, double x2, double y2) {
  return "<line class=\"" + style + "\" x1=\"" + place(x1) + "\" y1=\"" + place(y1) + "\" x2=\"" +
         place(x2) + "\" y2=\"" + place(y2) + "\"/>";
}

std::string text(const std::string& style, double x, double y, const std::string& anchor,
                 const std::string& content) {
  return "<text class=\"" + style + "\" x=\"" + place(x) + "\" y=\"" + place(y) +
         "\" text-anchor=\"" + anchor + "\">" + escaped(content) + "</text>";
}

std::string figure(const DotRow& row, const Scale& scale) {
  return scale.in_seconds() ? short_number(row.median / 1000) + " s"
                            : short_number(row.median) + " ms";
}

std::string describe(const DotChart& chart, const Scale& scale) {
  std::string out = "Medians:";
  for (const DotRow& row : chart.rows) out += " " + row.label + " " + figure(row, scale) + ";";
  return out;
}

std::string style_of(const DotRow& row) {
  if (row.style == DotRow::reference) return "reference";
  return row.style == DotRow::again ? "again" : "other";
}

// The inner <svg> cuts off a label before it meets the figure, however wide its letters are.
std::string draw(const DotRow& row, double top, const Scale& scale) {
  const double y = top + dots_at;
  std::string out = "<g class=\"" + style_of(row) + "\"><svg x=\"0\" y=\"" + place(top) +
                    "\" width=\"" + place(right - figure_width) + "\" height=\"20\">" +
                    text("label", left, 15, "start", row.label) + "</svg>" +
                    text("figure", right, top + 15, "end", figure(row, scale)) +
                    line("grid", left, y, right, y);
  if (!std::isfinite(row.median)) return out + "</g>\n";
  for (double value : row.values)
    out += "<circle class=\"dot\" cx=\"" + place(scale.x(value)) + "\" cy=\"" + place(y) +
           "\" r=\"4\"/>";
  const double x = scale.x(row.median);
  return out + line("median", x, y - 8, x, y + 8) + "</g>\n";
}

std::string draw_axis(const DotChart& chart, const Scale& scale, double y) {
  std::string out;
  for (double tick : scale.ticks)
    out += line("grid", scale.x(tick), 0, scale.x(tick), y) +
           text("axis", scale.x(tick), y + 15, "middle",
                number(scale.in_seconds() ? tick / 1000 : tick));
  const std::string unit = scale.in_seconds() ? "seconds " : "milliseconds ";
  return out + "\n" +
         text("axis", (left + right) / 2, y + 34, "middle",
              unit + chart.axis + (scale.logarithmic ? ", logarithmic scale" : "")) +
         "\n";
}

std::string draw_baseline(const DotChart& chart, const Scale& scale, double height) {
  for (const DotRow& row : chart.rows)
    if (row.style == DotRow::reference)
      return line("baseline", scale.x(row.median), 0, scale.x(row.median), height) + "\n";
  return "";
}

}  // namespace

std::string dot_chart(const DotChart& chart) {
  const Scale scale = scale_of(chart.rows);
  const double axis_at = row_height * static_cast<double>(chart.rows.size());
  std::string out = "<svg class=\"chart\" role=\"img\" viewBox=\"0 0 " + place(chart_width) + " " +
                    place(axis_at + axis_height) + "\">\n<title>" + escaped(chart.title) +
                    "</title>\n<desc>" + escaped(describe(chart, scale)) + "</desc>\n";
  out += draw_axis(chart, scale, axis_at) + draw_baseline(chart, scale, axis_at);
  double top = 0;
  for (const DotRow& row : chart.rows) {
    out += draw(row, top, scale);
    top += row_height;
  }
  return out + "</svg>\n";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

}  // namespace weightmap::cli::bench
