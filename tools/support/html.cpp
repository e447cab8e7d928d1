#include "tools/support/html.hpp"

#include <string_view>

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

constexpr std::string_view style_sheet = R"(
:root { color-scheme: light dark; --page: #fff; --text: #1b1f24; --soft: #59636e; --line: #d5dae0;
  --reference: #c24e00; --alarm: #fdecd9; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --text: #e3e8ee; --soft: #9ca7b3;
  --line: #363e48; --reference: #f0a030; --alarm: #47300f; } }
body { margin: 0 auto; padding: 1.5rem 1rem; max-width: 76rem; background: var(--page);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { border-top: 2px solid var(--line); padding-top: 1rem; }
h1, h2, td, li, p { overflow-wrap: anywhere; }
p, ul, .alarm { max-width: 50rem; }
.soft, small { color: var(--soft); }
.alarm { background: var(--alarm); border-left: 4px solid var(--reference); padding: .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .55rem; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--line); }
td { white-space: nowrap; } td.why { white-space: normal; }
tbody th, td.why { text-align: left; min-width: 9rem; }
small { display: block; font-weight: 400; }
tr.reference th { color: var(--reference); }
pre { overflow-x: auto; }
@media print { @page { size: landscape; margin: 12mm; } table { font-size: 6.5pt; } }
)";

}  // namespace

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

std::string html(const std::string& text) { return escaped(printable(text)); }

std::string element(const std::string& name, const std::string& content) {
  return "<" + name + ">" + content + "</" + name.substr(0, name.find(' ')) + ">\n";
}

std::string html_page(const std::string& title, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
         element("title", escaped(title)) + element("style", std::string(style_sheet)) +
         "</head>\n<body>\n" + body + "</body>\n</html>\n";
}

}  // namespace weightmap::cli
