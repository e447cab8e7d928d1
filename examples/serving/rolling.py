"""Any server of a model, changed under load for another one of the model's next version.

    MODEL=/models/llama PORT=8080 python rolling.py vllm serve {model} --port {port} \\
        --served-model-name llama --gpu-memory-utilization 0.45
    MODEL=/models/llama PORT=8080 python rolling.py sglang serve --model-path {model} \\
        --port {port} --served-model-name llama --mem-fraction-static 0.45

For engines that read a model as they start. MODEL is what `weightmap fetch`, `hold` or `publish`
made: a link to the folder of the present version, which stands for {model}; {port} is a free one.
Each request that comes to PORT of HOST (127.0.0.1) goes to the engine of the moment. When the link
has moved, an engine of the new version is started beside it, and gets the requests from its first
200 to GET $HEALTH (/health) on; the old one ends with its last answer, or $LONGEST_ANSWER seconds
(600) later, and its memory is given back. One that ends before it is ready, or whose version is old
by then, changes nothing. So there are two at most, and the device has to have room for two. The
server ends with the engine of the moment, whose supervisor starts both again. No WebSockets.
"""

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys

import weightmap

LONGEST_HEAD = 1 << 20  # of a request, in bytes
GRACE = 30  # seconds from SIGTERM to SIGKILL, and for an answer about the health
# Of engines: below those that Linux gives to connections, one of which could have it by the time
# that the engine, which imports for half a minute, listens.
PORTS = range(10_000, 32_768)
# Seconds that an engine of an old version has for its last answers.
LONGEST_ANSWER = float(os.environ.get("LONGEST_ANSWER", "600"))
BROKEN = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def say(what):
    print(f"rolling.py: {what}", file=sys.stderr, flush=True)


def free_port():
    while True:
        port = random.choice(PORTS)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port


class Engine:
    """A process of the command, in a group of its own, for one version."""

    @classmethod
    async def start(cls, command, folder):
        engine = cls()
        engine.folder, engine.port = folder, free_port()
        engine.answers = 0  # under way
        words = [word.replace("{model}", folder).replace("{port}", str(engine.port))
                 for word in command]
        engine.process = await asyncio.create_subprocess_exec(*words, start_new_session=True)
        return engine

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port, limit=LONGEST_HEAD)

    async def is_ready(self, health):
        """Waits until it is; False if it has ended before."""
        while self.process.returncode is None:
            with contextlib.suppress(OSError, TimeoutError, asyncio.TimeoutError):
                if await asyncio.wait_for(self.status_of(health), GRACE) == b"200":
                    return True
            await asyncio.sleep(0.1)
        return False

    async def status_of(self, path):
        reader, writer = await self.connect()
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                         "Connection: close\r\n\r\n".encode())
            status = await reader.readline()
            await reader.read()  # an engine that is cut off would complain
        finally:
            writer.close()
        return b"".join(status.split()[1:2])

    async def end(self):
        """Ends all of its group, with SIGTERM at first."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for _ in range(10 * GRACE):
                self.reap()
                try:
                    os.killpg(self.process.pid, number)
                except ProcessLookupError:
                    return
                number = 0  # is one of them there?
                await asyncio.sleep(0.1)

    def reap(self):
        """What has ended of its group and is now a child of this process, as in a container whose
        first process this is. The engine itself is asyncio's."""
        if self.process.returncode is not None:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-self.process.pid, os.WNOHANG)[0]:
                    pass

    async def end_with_last_answer(self):
        for _ in range(int(10 * LONGEST_ANSWER)):
            if not self.answers:
                break
            await asyncio.sleep(0.1)
        await self.end()


def for_one_answer(head):
    """The head of a request, with which the engine closes the connection after its answer."""
    lines = [line for line in head.split(b"\r\n")[:-2]
             if not line.lower().startswith((b"connection:", b"keep-alive:"))]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])


async def pump(reader, writer):
    while content := await reader.read(1 << 16):
        writer.write(content)
        await writer.drain()


class Front:
    def __init__(self, command, health):
        self.command, self.health = command, health
        self.engine = None  # of the moment
        self.engines = set()  # that are to be ended
        self.answers = set()  # under way, which nobody else keeps

    def accept(self, reader, writer):
        answer = asyncio.ensure_future(self.answer(reader, writer))
        self.answers.add(answer)
        answer.add_done_callback(self.answers.discard)

    async def answer(self, reader, writer):
        # What goes wrong is a client that has gone, or speaks no HTTP.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b"\r\n\r\n")
            engine = self.engine
            engine.answers += 1
            try:
                await self.pass_on(engine, head, reader, writer)
            finally:
                engine.answers -= 1
        writer.close()

    async def pass_on(self, engine, head, reader, writer):
        try:
            answer, request = await engine.connect()
        except OSError:
            writer.write(BROKEN)
            return
        request.write(for_one_answer(head))
        pumps = [asyncio.ensure_future(pump(reader, request)),
                 asyncio.ensure_future(pump(answer, writer))]
        try:  # until the answer ends, or the client goes
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            request.close()

    async def start(self, folder):
        engine = await Engine.start(self.command, folder)
        self.engines.add(engine)
        return engine

    async def end(self, ending, engine):
        await ending
        self.engines.discard(engine)

    async def follow(self, watch):
        move = asyncio.ensure_future(next_version(watch))
        while True:
            folder = await move
            move = asyncio.ensure_future(next_version(watch))
            try:
                await self.change_to(folder, move)
            except OSError as error:  # of the start
                say(f"{folder}: {error}; {self.engine.folder} goes on")

    async def change_to(self, folder, move):
        """Until it is ready, or ends, or is old."""
        engine = await self.start(folder)
        ready = asyncio.ensure_future(engine.is_ready(self.health))
        try:
            await asyncio.wait([ready, move], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if ready.done() and ready.result():
            old, self.engine = self.engine, engine
            say(f"{folder}: answers from now on")
            await self.end(old.end_with_last_answer(), old)
            return
        if ready.done():
            say(f"{folder}: the engine ended with {engine.process.returncode} before it was ready; "
                f"{self.engine.folder} goes on")
        await self.end(engine.end(), engine)

    async def run(self, watch, host, port):
        self.engine = await self.start(watch.path)
        if not await self.engine.is_ready(self.health):
            return self.engine.process.returncode or 1
        server = await asyncio.start_server(self.accept, host, port, backlog=1024,
                                            limit=LONGEST_HEAD)
        print(f"http://{host}:{server.sockets[0].getsockname()[1]}", flush=True)
        following = asyncio.ensure_future(self.follow(watch))
        try:
            while self.engine.process.returncode is None:
                await asyncio.wait([following], timeout=0.1)
                if following.done():
                    following.result()  # raises
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        say(f"the engine of {self.engine.folder} has ended")
        return 1

    async def end_all(self):
        await asyncio.gather(*(engine.end() for engine in self.engines))


async def next_version(watch):
    while not await asyncio.to_thread(watch.wait, 0.5):
        pass
    return watch.path


async def main(command):
    front = Front(command, os.environ.get("HEALTH", "/health"))
    watch = weightmap.watch(os.environ["MODEL"], interval=0.2)
    running = asyncio.ensure_future(front.run(watch, os.environ.get("HOST", "127.0.0.1"),
                                              int(os.environ.get("PORT", "8080"))))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return 0
    finally:  # a second signal changes nothing
        await front.end_all()


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    sys.exit(asyncio.run(main(sys.argv[1:])))
