"""Takes one start of bench/serving_start.py, in this fresh process.

    STARTED_NS=$(date +%s%N) serving_start_once.py torch|transformers|vllm weightmap|theirs FOLDER
                                                   [--warm-up SMALL | --snapshot | --template]

Loads the model in FOLDER and has it say one token. Prints one JSON object; times are microseconds:
start_to_token_us until the token is there, start_to_call_us until the engine is imported and asked to
load, call_to_token_us the rest; processor_wait_us is how long the main thread could have run and did
not. What else there is is counted from the call on: page faults, bytes from the disk, anonymous memory.

With --snapshot a process that `weightmap run --snapshot` started is dumped behind its first token;
one that is restored says the token again, with times since its own start. With --template the same
of a fork of what `weightmap run --template` left there: one thread says the first token.

With --warm-up it is a worker whose memory somebody counts: it serves SMALL, says ready, waits for a
line, serves FOLDER, says served, and waits for a line again.
"""
import argparse
import functools
import json
import os
import sys
import time

from counters import Counters

PROMPT = [1, 5, 9, 13]
ENGINE_TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "engines")


class Times:
    """Times of events: microseconds since the process was started."""

    def __init__(self):
        self._started = int(os.environ["STARTED_NS"])
        self._at = {}

    def mark(self, name):
        self._at[name] = (time.time_ns() - self._started) / 1000

    def read(self):
        return {"start_to_token_us": self._at["token"], "start_to_call_us": self._at["call"],
                "call_to_token_us": self._at["token"] - self._at["call"],
                "processor_wait_us": waited_for_processor()}


def waited_for_processor():
    """Microseconds that the main thread could run and did not (Documentation/scheduler/sched-stats)."""
    with open("/proc/self/schedstat", encoding="ascii") as numbers:
        return int(numbers.read().split()[1]) / 1000


# ---- the engines: the first token, and the times until then

class Torch:
    """A plain script, whose token needs every weight once."""

    def __init__(self, contender):
        import torch
        self._load = functools.partial(torch.load, mmap=True)
        if contender == "weightmap":
            import weightmap.torch
            self._load = weightmap.torch.load

    def start(self, folder, times):
        times.mark("call")
        counters = Counters()
        state = self._load(os.path.join(folder, "pytorch_model.bin"))
        self.say = lambda: sum(tensor.max().item() for tensor in state.values())
        said = self.say()
        times.mark("token")
        return said, counters.read()


class Transformers:
    def __init__(self, contender):
        import torch
        import transformers
        self._prompt = torch.tensor([PROMPT])
        self._load = transformers.AutoModelForCausalLM.from_pretrained
        if contender == "weightmap":
            import weightmap.transformers
            self._load = weightmap.transformers.load

    def start(self, folder, times):
        times.mark("call")
        counters = Counters()
        model = self._load(folder)
        self.served = model  # whose memory is counted
        said = self.say()
        times.mark("token")
        return said, counters.read()

    def say(self):
        said = self.served.generate(self._prompt, max_new_tokens=1, do_sample=False)
        return said[0, -1].item()


class Vllm:
    def __init__(self, contender):
        sys.path.insert(0, ENGINE_TESTS)
        import vllm_session
        self._session = vllm_session
        self._format = "weightmap" if contender == "weightmap" else "auto"

    def start(self, folder, times):
        times.mark("call")
        counters = Counters()
        engine = self._session.LLM(
            model=folder, load_format=self._format, skip_tokenizer_init=True, enforce_eager=True,
            max_model_len=64)
        sampling = self._session.SamplingParams(temperature=0, max_tokens=1, detokenize=False,
                                                ignore_eos=True)
        said = engine.generate([{"prompt_token_ids": PROMPT}], sampling, use_tqdm=False)
        times.mark("token")
        return said[0].outputs[0].token_ids[0], counters.read()


ENGINES = {"torch": Torch, "transformers": Transformers, "vllm": Vllm}


def be_a_worker(engine, arguments, out):
    for word, folder in (("ready", arguments.warm_up), ("served", arguments.folder)):
        engine.start(folder, Times())
        print(word, file=out, flush=True)
        sys.stdin.readline()


def say_again(engine):
    """In a restored process, or in a fork, whose environment is that of its own start."""
    times = Times()
    times.mark("call")
    counters = Counters()
    said = engine.say()
    times.mark("token")
    return said, {**times.read(), **counters.read()}


def be_forkable():
    """No threads, which no fork has. Returns how many torch would use."""
    import torch
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # those of tqdm have a thread
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    return threads


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("contender", choices=("weightmap", "theirs"))
    parser.add_argument("folder")
    parser.add_argument("--warm-up")
    parser.add_argument("--snapshot", action="store_true")
    parser.add_argument("--template", action="store_true")
    arguments = parser.parse_args()
    if arguments.template:
        out, threads = sys.stdout, be_forkable()
    else:
        out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # engines print to standard output
    engine = ENGINES[arguments.engine](arguments.contender)
    if arguments.warm_up:
        be_a_worker(engine, arguments, out)
        return
    times = Times()
    token, counted = engine.start(arguments.folder, times)
    counted.update(times.read())
    if arguments.snapshot or arguments.template:
        import weightmap
        if weightmap.snapshot_here(new=["STARTED_NS"]):
            if arguments.template:
                sys.modules["torch"].set_num_threads(threads)
            token, counted = say_again(engine)
    print(json.dumps({"token": token, **counted}), file=out, flush=True)
    os._exit(0)  # the shutdown of an engine is not part of its start


if __name__ == "__main__":
    main()
