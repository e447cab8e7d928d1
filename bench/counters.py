"""Time, and the kernel's counters of this process: page faults, reads, private memory."""
import resource
import time


class Stopwatch:
    """Microseconds since the construction."""

    def __init__(self):
        self._start = time.perf_counter_ns()

    def read(self):
        return (time.perf_counter_ns() - self._start) / 1000


class Counters:
    """The counters of this process since the construction."""

    def __init__(self):
        self._before = self._now()

    @staticmethod
    def _now():
        usage = resource.getrusage(resource.RUSAGE_SELF)
        with open("/proc/self/io", encoding="ascii") as lines:
            io = dict(line.split(": ") for line in lines)
        with open("/proc/self/status", encoding="ascii") as lines:
            status = dict(line.split(":", 1) for line in lines)
        return {"faults": usage.ru_minflt + usage.ru_majflt, "major_faults": usage.ru_majflt,
                "disk_bytes": int(io["read_bytes"]), "read_bytes": int(io["rchar"]),
                "anonymous_bytes": int(status["RssAnon"].split()[0]) * 1024}

    def read(self):
        return {key: max(0, now - self._before[key]) for key, now in self._now().items()}
