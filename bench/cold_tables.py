"""Makes Markdown tables of what `weightmap bench --json` measured.

    cold_tables.py REPORT... [--write FILE] [--write-figure FILE]

Prints the cold times of the first report in both orders, and a table for each scenario and order of
each report; --write puts them between the markers in FILE (docs/performance.md), --write-figure one
of the figures (README.md).
"""
import argparse
import json

from samples import figure, has_between, ratio_text, table, write_between

BEGIN, END = "<!-- measured cold: begin -->", "<!-- measured cold: end -->"
SCENARIOS = {"cold": "Cold", "warm": "Cached in huge pages", "poisoned": "Cached in pages of 4 KiB"}
HEAD = ["", "all bytes", "GB/s", "first byte", "first tensor", "x `populate`, all bytes", "of the disk's",
        "read / size", "minor + major faults", "system calls", "own memory"]


def milliseconds(value):
    return f"{value:.2f} ms" if value < 10 else f"{value:,.0f} ms"


def row(series, titles, size, disk_ms):
    summaries = series["summaries"]

    def median(field):
        return summaries[field]["median"]

    name = series["engine"]
    time = median("all_ms")
    own = median("anonymous_bytes") / 2**20
    return [f"`{name}`: {titles.get(name, 'the same again, to see what chance does')}",
            f"**{milliseconds(time)}** ({milliseconds(summaries['all_ms']['min'])})",
            f"{size / time / 1e6:.2f}", milliseconds(median("first_byte_ms")),
            milliseconds(median("first_tensor_ms")), ratio_text(series["ratios"]["all_ms"]),
            f"{100 * disk_ms / time:.0f} %" if disk_ms else "",
            f"{median('disk_bytes') / size:.2f}",
            f"{median('minor_faults'):,.0f} + {median('major_faults'):,.0f}",
            f"{series['system_calls']:,}" if series["system_calls"] is not None else "",
            f"{own:,.1f} MiB"]


def section(report, file, scenario, order):
    titles = {engine["name"]: engine["title"] for engine in report["engines"]}
    all_series = [series for series in file["series"]
                  if (series["scenario"], series["order"]) == (scenario, order)]
    measured = sorted((series for series in all_series if series["samples"]),
                      key=lambda series: series["summaries"]["all_ms"]["median"])
    disk = [series["summaries"]["all_ms"]["median"] for series in measured
            if series["engine"] == "disk"]
    ahead = (report["machine"]["read_ahead_bytes"] or 0) >> 10
    yield from ["", f"{SCENARIOS[scenario]}, {order} order, read-ahead {ahead:,} KiB:", ""]
    yield from table(HEAD, [row(series, titles, file["tensor_bytes"], disk[0] if disk else None)
                            for series in measured])
    missing = [f"`{series['engine']}`: {series['why_not']}" for series in all_series
               if not series["samples"]]
    if missing:
        yield from ["", "Not measured: " + "; ".join(missing) + "."]


def sections(report):
    machine = report["machine"]
    for file in report["files"]:
        yield (f"Measured on {machine['date']}: {machine['processor']}, {machine['cores']} cores, Linux "
               f"{machine['kernel'].split('-')[0]}, {machine['file_system']}; {file['tensors']} tensors of "
               f"{file['tensor_bytes'] / 1e9:.2f} GB, the first of {file['named_tensor_bytes'] / 1e6:.1f} MB; "
               f"medians of {report['settings']['rounds']} interleaved rounds, in brackets the best.")
        groups = dict.fromkeys((series["scenario"], series["order"]) for series in file["series"])
        for scenario, order in groups:
            yield from section(report, file, scenario, order)
        warnings = report["warnings"]
        if warnings:
            yield from ["", "Warnings: " + " ".join(warnings)]
        yield ""


def summary(report):
    """How long each engine takes for a cold file, in both orders."""
    file = report["files"][0]
    cold = {(series["engine"], series["order"]): series for series in file["series"]
            if series["scenario"] == "cold" and series["samples"]}
    rows = []
    for engine in report["engines"]:
        mine = [cold.get((engine["name"], order)) for order in ("file", "random")]
        if None in mine:
            continue
        cells = [f"{milliseconds(series['summaries']['all_ms']['median'])}"
                 f" ({ratio_text(series['ratios']['all_ms']) or 'reference'})" for series in mine]
        rows.append([engine["title"], *cells,
                     milliseconds(mine[0]["summaries"]["first_tensor_ms"]["median"]),
                     f"{mine[0]['summaries']['anonymous_bytes']['median'] / 2**20:,.1f} MiB"])
    yield (f"{file['tensor_bytes'] / 1e9:.2f} GB, cold, until every byte was read; in brackets, times as "
           "long as the second line, with its interval of confidence:")
    yield ""
    yield from table(["", "file order", "random order", "first tensor", "own memory"], rows)
    yield ""


def cold_figure(report):
    file = report["files"][0]
    times = {series["engine"]: series["summaries"]["all_ms"]["median"] for series in file["series"]
             if (series["scenario"], series["order"]) == ("cold", "file") and series["samples"]}
    return figure(f"**Reading every byte** of a cold file of {file['tensor_bytes'] / 1e9:.2f} GB takes "
                  f"**{milliseconds(times['populate'])}** with a `Warmer`, "
                  f"{milliseconds(times['torch-mmap'])} with `torch.load(mmap=True)`; the disk alone "
                  f"needs {milliseconds(times['disk'])}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("reports", nargs="+")
    parser.add_argument("--write")
    parser.add_argument("--write-figure")
    arguments = parser.parse_args()
    for target in (arguments.write, arguments.write_figure):
        if target and not has_between(target, BEGIN, END):
            parser.error(f"{target} lacks the markers {BEGIN} and {END}")
    reports = []
    for path in arguments.reports:
        with open(path, encoding="utf-8") as file:
            reports.append(json.load(file))
    lines = [*summary(reports[0]), *(line for report in reports for line in sections(report))]
    print("\n".join(lines))
    if arguments.write:
        write_between(arguments.write, BEGIN, END, lines)
    if arguments.write_figure:
        write_between(arguments.write_figure, BEGIN, END, cold_figure(reports[0]))


if __name__ == "__main__":
    main()
