"""Makes Markdown tables of what `weightmap bench --json` measured.

    cold_tables.py REPORT... [--write FILE] [--write-figure FILE]

Prints a table for each report, with a column for each scenario and order; --write puts them between
the markers in FILE (docs/performance.md), --write-figure one of the figures (README.md).
"""
import argparse
import json

from samples import check_between, figure, publish, ratio_text, table, write_between

BEGIN, END = "<!-- measured cold: begin -->", "<!-- measured cold: end -->"
SCENARIOS = {"cold": "cold", "warm": "cached in huge pages", "poisoned": "cached in pages of 4 KiB"}


def milliseconds(value):
    return f"{value:.2f} ms" if value < 10 else f"{value:,.0f} ms"


def engine_row(name, title, groups, series):
    """Returns the times of one engine in each group, and its other figures in the first."""
    mine = [series.get((name, *group)) for group in groups]
    cells = [time_cell(each) if each else "" for each in mine]
    first = mine[0]["summaries"] if mine[0] else None
    return [title, *cells,
            milliseconds(first["first_tensor_ms"]["median"]) if first else "",
            f"{first['anonymous_bytes']['median'] / 2**20:,.1f} MiB" if first else ""]


def time_cell(series):
    return (f"{milliseconds(series['summaries']['all_ms']['median'])} "
            f"({ratio_text(series['ratios']['all_ms']) or 'reference'})")


def section(report, file):
    machine = report["machine"]
    ahead = (machine["read_ahead_bytes"] or 0) >> 10
    yield (f"Measured on {machine['date']}: {machine['processor']}, {machine['cores']} cores, Linux "
           f"{machine['kernel'].split('-')[0]}, {machine['file_system']}; {file['tensors']} tensors of "
           f"{file['tensor_bytes'] / 1e9:.2f} GB, the first of {file['named_tensor_bytes'] / 1e6:.1f} MB; "
           f"medians of {report['settings']['rounds']} interleaved rounds, read-ahead {ahead:,} KiB; in "
           "brackets, times as long as `populate`, with its interval of confidence.")
    series = {(each["engine"], each["scenario"], each["order"]): each
              for each in file["series"] if each["samples"]}
    groups = list(dict.fromkeys((each["scenario"], each["order"]) for each in file["series"]))
    titles = {engine["name"]: engine["title"] for engine in report["engines"]}
    names = sorted(dict.fromkeys(name for name, *_ in series),
                   key=lambda name: series[name, *groups[0]]["summaries"]["all_ms"]["median"]
                   if (name, *groups[0]) in series else float("inf"))
    head = ["", *(f"{SCENARIOS[scenario]}, {order} order" for scenario, order in groups),
            "first tensor", "own memory"]
    rows = [engine_row(name, titles.get(name, "the same again, to see what chance does"), groups,
                       series) for name in names]
    yield from ["", *table(head, rows), ""]
    missing = {each["engine"]: each["why_not"] for each in file["series"] if not each["samples"]}
    if missing:
        yield from ["Not measured: " + "; ".join(f"`{name}`: {why}" for name, why in missing.items())
                    + ".", ""]
    if report["warnings"]:
        yield from ["Warnings: " + " ".join(report["warnings"]), ""]


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
        check_between(parser, target, BEGIN, END)
    reports = []
    for path in arguments.reports:
        with open(path, encoding="utf-8") as file:
            reports.append(json.load(file))
    lines = [line for report in reports for file in report["files"]
             for line in section(report, file)][:-1]
    publish(lines, arguments.write, BEGIN, END)
    if arguments.write_figure:
        write_between(arguments.write_figure, BEGIN, END, cold_figure(reports[0]))


if __name__ == "__main__":
    main()
