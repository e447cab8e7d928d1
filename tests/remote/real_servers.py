"""nginx, and Swift with the API of S3, on ports of 127.0.0.1; and a gate in front of either."""

import datetime
import hashlib
import hmac
import os
import pathlib
import socket
import subprocess
import sys
import threading
import urllib.parse
import urllib.request

REGION = "us-east-1"


def listener():
    return socket.create_server(("127.0.0.1", 0))


class Nginx:
    """Serves by a configuration in which FOLDER stands for the server's own, and each PORT for one
    of the kernel's. The sockets are bound and listen before it starts, so that no other process can
    have taken a port, and nobody waits for the server."""

    def __init__(self, folder, text):
        self.folder = pathlib.Path(folder)
        sockets = [listener() for _ in range(text.count("PORT"))]
        self.ports = [each.getsockname()[1] for each in sockets]
        for port in self.ports:
            text = text.replace("PORT", str(port), 1)
        configuration = self.folder / "nginx.conf"
        configuration.write_text(text.replace("FOLDER", str(folder)))
        files = [each.fileno() for each in sockets]
        # As a new nginx gets them from the one whose place it takes.
        inherited = {**os.environ, "NGINX": "".join(f"{file};" for file in files)}
        options = "daemon off; " + ("user root; " if os.geteuid() == 0 else "")
        self._process = subprocess.Popen(
            ["nginx", "-p", folder, "-c", configuration, "-g", options], env=inherited,
            pass_fds=files)
        for each in sockets:
            each.close()

    @property
    def port(self):
        return self.ports[0]

    def close(self):
        self._process.terminate()
        self._process.wait()


class Swift:
    """A store in the folder, with a bucket. `sys.executable` has the package swift."""

    KEY_ID, SECRET, BUCKET = "test:tester", "testing-SECRET", "bucket"

    def __init__(self, folder):
        program = pathlib.Path(__file__).with_name("swift_server.py")
        self._process = subprocess.Popen([sys.executable, program, folder, self.KEY_ID, self.SECRET],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._process.stdout.readline())
        self.ask("PUT", "")

    def close(self):
        self._process.kill()
        self._process.communicate()

    def environment(self, port=None, **others):
        return {"AWS_ACCESS_KEY_ID": self.KEY_ID, "AWS_SECRET_ACCESS_KEY": self.SECRET,
                "AWS_REGION": REGION, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
                **others}

    def presigned(self, method, key, port=None, **query):
        """A URL that allows this method for an hour, by AWS's Signature Version 4."""
        host = f"127.0.0.1:{port or self.port}"
        path = urllib.parse.quote(f"/{self.BUCKET}/{key}" if key else f"/{self.BUCKET}")
        now = datetime.datetime.now(datetime.timezone.utc)
        time, scope = now.strftime("%Y%m%dT%H%M%SZ"), f"{now:%Y%m%d}/{REGION}/s3/aws4_request"
        query |= {"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Date": time, "X-Amz-Expires": "3600",
                  "X-Amz-Credential": f"{self.KEY_ID}/{scope}", "X-Amz-SignedHeaders": "host"}
        asked = "&".join(f"{urllib.parse.quote(name, safe='')}={urllib.parse.quote(text, safe='')}"
                         for name, text in sorted(query.items()))
        request = f"{method}\n{path}\n{asked}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
        signed = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = f"AWS4{self.SECRET}".encode()
        for part in (*scope.split("/"), signed):
            key = hmac.digest(key, part.encode(), "sha256")
        return f"http://{host}{path}?{asked}&X-Amz-Signature={key.hex()}"

    def ask(self, method, key, body=None, **query):
        """The headers and the body of the answer, which must be a good one."""
        request = urllib.request.Request(self.presigned(method, key, **query), method=method,
                                         data=body)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request) as answer:
            return answer.headers, answer.read()


class Gate:
    """Hands on what is sent to it, and of the answers as many bytes as `limit`; the rest once it
    is opened."""

    def __init__(self, port, limit):
        self._target = ("127.0.0.1", port)
        self._left = limit
        self._lock = threading.Lock()
        self._is_open = threading.Event()
        self.is_reached = threading.Event()
        self._listener = listener()
        self.port = self._listener.getsockname()[1]
        self._sockets = []
        self._threads = []
        self._run(self._accept)

    def open(self):
        self._is_open.set()

    def close(self):
        self.open()
        with self._lock:
            for each in (self._listener, *self._sockets):
                shut(each)
        while self._threads:
            self._threads.pop().join()
        for each in (self._listener, *self._sockets):
            each.close()

    def _run(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            with self._lock:
                self._sockets += client, server
            self._run(self._hand_on, client, server, lambda _: None)
            self._run(self._hand_on, server, client, self._admit)

    def _admit(self, count):
        with self._lock:
            self._left -= count
            if self._left >= 0:
                return
        self.is_reached.set()
        self._is_open.wait()

    def _hand_on(self, source, target, admit):
        try:
            while piece := source.recv(1 << 16):
                admit(len(piece))
                target.sendall(piece)
        except OSError:
            pass
        shut(source)
        shut(target)


def shut(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # the other side has done so
        pass
