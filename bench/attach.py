#!/usr/bin/env python3
"""What a shared catalog saves a fresh process: attach against open, interleaved.

    bench/attach.py [--build build/release] [--tensors 100000] [--rounds 7] [FILE TENSOR]

Without FILE a checkpoint of so many small tensors is made. Each sample is a process of its own that
opens the file and finds one tensor; each round takes one of each kind. Prints the medians with the
range, and the ratio with its interval of confidence.
"""
import argparse
import os
import subprocess
import tempfile
import time

from samples import duration, interleave, machine, ratio_text, run_json, table


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("file", nargs="?")
    parser.add_argument("tensor", nargs="?")
    return parser.parse_args()


def make(build, folder, tensors):
    path = os.path.join(folder, "many.pt")
    maker = os.path.join(build, "bench", "make_checkpoint")
    command = [maker, path, "--count", str(tensors), "--shape", "4x4"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    tool = os.path.join(build, "tools", "weightmap")
    last = run_json([tool, "ls", "--json", path])["tensors"][-1]["name"]
    time.sleep(0.1)  # a file that has just been written is not published
    return path, last


def measure(build, path, tensor, rounds):
    program = os.path.join(build, "bench", "attach_once")
    run_json([program, path, tensor, "attach"])  # publishes
    contenders = {how: [program, path, tensor, how] for how in ("open", "attach")}
    samples = interleave(build, contenders, rounds, "--recycle", "0")
    for how, expected in (("open", "parsed"), ("attach", "attached")):
        catalogs = {run["catalog"] for run in samples[how].runs}
        if catalogs != {expected}:
            raise SystemExit(f"{how}: the catalog was {catalogs}, {expected} was expected")
    return samples


def report(samples, rounds):
    rows = []
    for how, taken in samples.items():
        spread = f"{duration(taken.low('total_us'))} to {duration(taken.high('total_us'))}"
        rows.append([
            how,
            duration(taken.median("total_us")),
            spread,
            duration(taken.median("open_us")),
            duration(taken.median("find_us")),
            f"{taken.median('minor_faults'):.0f}",
            f"{taken.median('anonymous_kib'):.0f} KiB",
        ])
    head = ["", "open + find", "range", "open", "find", "page faults", "anonymous memory"]
    ratio = samples["open"].ratio_to("attach", "total_us")
    tensors = samples["open"].runs[0]["tensors"]
    print(f"{tensors} tensors, {rounds} rounds of fresh processes. {machine()}\n")
    print("\n".join(table(head, rows)))
    print(f"\nattach is {ratio_text(ratio, 0)} times as fast")


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WEIGHTMAP_RUNTIME_DIR"] = tempfile.mkdtemp(dir="/dev/shm")
        try:
            path, tensor = options.file, options.tensor
            if path is None:
                path, tensor = make(options.build, folder, options.tensors)
            report(measure(options.build, path, tensor, options.rounds), options.rounds)
        finally:
            for name in os.listdir(os.environ["WEIGHTMAP_RUNTIME_DIR"]):
                os.unlink(os.path.join(os.environ["WEIGHTMAP_RUNTIME_DIR"], name))
            os.rmdir(os.environ["WEIGHTMAP_RUNTIME_DIR"])


if __name__ == "__main__":
    main()
