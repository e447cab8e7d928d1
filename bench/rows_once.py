"""Reads rows of a table by numpy's index in this fresh process, as bench/rows_once.cpp reads them,
and prints the same figures.

    rows_once.py TABLE IDS --rows N

IDS is what `rows_once --write-ids` writes. The file is evicted first.
"""
import argparse
import json
import os
import statistics
import time

import numpy

import weightmap


def disk_bytes():
    with open("/proc/self/io", encoding="ascii") as counters:
        return next(int(line.split()[1]) for line in counters if line.startswith("read_bytes:"))


def checksum(rows):
    """As rows_once has it: the bytes one after the other, in powers of 31 modulo 2^64."""
    values = numpy.concatenate(rows).reshape(-1).view(numpy.uint8).astype(numpy.uint64)
    powers = numpy.full(values.size, 31, numpy.uint64)
    powers[0] = 1
    return int(numpy.sum(values[::-1] * numpy.cumprod(powers))) % 1000003


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("ids")
    parser.add_argument("--rows", type=int, required=True)
    arguments = parser.parse_args()
    weightmap.evict(arguments.table)
    array = weightmap.open(arguments.table)["tensor.0"].numpy()
    batches = numpy.fromfile(arguments.ids, numpy.int64).reshape(-1, arguments.rows)
    times, taken, before = [], [], disk_bytes()
    for ids in batches:
        began = time.perf_counter()
        rows = array[ids]
        times.append(time.perf_counter() - began)
        taken.append(rows)
    read = disk_bytes() - before
    with open("/proc/self/status", encoding="ascii") as status:
        resident = next(int(line.split()[1]) for line in status if line.startswith("RssFile:"))
    print(json.dumps({"batch_us": statistics.median(times) * 1e6,
                      "disk_kib": read // 1024 // len(batches), "rss_file_kib": resident,
                      "sum": checksum(taken)}))


if __name__ == "__main__":
    main()
