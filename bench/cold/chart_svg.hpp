// A chart of repeated measurements as SVG: every sample a dot, every median a bar.
#pragma once

#include <string>
#include <vector>

namespace weightmap::cli::bench {

struct DotRow {
  std::string label;  // cut off where it meets the figure on the right
  std::vector<double> values;
  double median = 0;
  enum Style { other, reference, again } style = other;
};

// One row below the other on a common axis.
struct DotChart {
  std::string title;         // for those who do not see it, who also hear the medians
  std::string axis;          // "until all bytes were read"; the unit is added
  std::vector<DotRow> rows;  // milliseconds
};

// An element to put into an HTML page, which gives the colours:
//   .dot .median .label .figure .axis .grid, within g.other, g.reference and g.again; line.baseline
//   through the reference's median.
// The axis begins at 0, or is logarithmic where one median is more than 20 times another. The
// medians stand on the right of the labels in the unit of the axis, which is seconds or
// milliseconds. Texts are escaped here.
std::string dot_chart(const DotChart& chart);

// `text` with &, <, >, " and ' as character references, for HTML and SVG.
std::string escaped(const std::string& text);

}  // namespace weightmap::cli::bench
