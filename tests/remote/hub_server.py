"""A hub that lists models and leads to their files, as huggingface.co does.

    hub = Hub()
    hub.add("org/name", commit, {"config.json": b"{}", "model.safetensors": content})
    ... hub.url ...        # HF_ENDPOINT
    hub.asked              # the paths of all requests for it
    hub.store_headers      # what the store got, to which large files are redirected

Files of safetensors, GGUF and torch are large: their ETag is the SHA-256 of the content, and a
redirect leads to the store at another port. The others are served here, under git's hash and as a
whole.
"""

import hashlib
import http.server
import json
import pathlib
import re
import threading
import urllib.parse

LARGE = (".safetensors", ".gguf", ".bin", ".onnx")


def large(name):
    return name.endswith(LARGE)


def hash_of(name, content):
    if large(name):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_range(self, content, tag):
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if self.headers.get("If-Match", tag) != tag:
            return self.answer(412)
        if not wanted or not content:
            return self.answer(200, content, ETag=tag)
        first, last = wanted.groups()
        if first:
            begin, end = int(first), min(int(last or len(content) - 1), len(content) - 1)
        else:
            begin, end = max(0, len(content) - int(last)), len(content) - 1
        return self.answer(206, content[begin:end + 1], ETag=tag,
                           Content_Range=f"bytes {begin}-{end}/{len(content)}")


class HubHandler(Handler):
    def do_GET(self):
        hub = self.server.hub
        with hub.lock:
            hub.asked.append(self.path)
            self.reply(hub)

    def reply(self, hub):
        path, _, query = self.path.partition("?")
        if hub.busy:
            hub.busy -= 1
            return self.answer(503)
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", path):
            return self.list(hub, found[1], urllib.parse.unquote(found[2]), query)
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self.resolve(hub, found[1], found[2], urllib.parse.unquote(found[3]))
        return self.answer(404)

    def may_see(self, model):
        return model.token is None or self.headers.get("Authorization") == f"Bearer {model.token}"

    def list(self, hub, name, revision, query):
        model = hub.models.get((name, revision))
        if model is None:
            return self.answer(404)
        if not self.may_see(model):
            return self.answer(401)
        files = []
        for file, content in model.files.items():
            size = len(content)
            files.append({"rfilename": file})
            if query == "blobs=true":
                files[-1].update(size=size, blobId=hashlib.sha1(content).hexdigest()
                                 if large(file) else hash_of(file, content))
                if large(file):
                    files[-1]["lfs"] = {"sha256": hash_of(file, content), "size": size,
                                        "pointerSize": 135}
        body = {"id": name, "sha": model.commit, "siblings": files, "private": False}
        return self.answer(200, json.dumps(body).encode(), Content_Type="application/json")

    def resolve(self, hub, name, revision, file):
        model = hub.models.get((name, revision))
        if model is None or file not in model.files:
            return self.answer(404)
        if not self.may_see(model):
            return self.answer(401)
        content = model.files[file]
        if not large(file):
            return self.answer(200, content, ETag=f'"{hash_of(file, content)}"')
        return self.answer(302, Location=f"{hub.store_url}/{hash_of(file, content)}?signed=yes",
                           X_Linked_ETag=f'"{hash_of(file, content)}"',
                           X_Linked_Size=str(len(content)), X_Repo_Commit=model.commit)


class StoreHandler(Handler):
    def do_GET(self):
        hub = self.server.hub
        with hub.lock:
            hub.store_headers.append(dict(self.headers))
            content = hub.blobs.get(pathlib.PurePosixPath(self.path.partition("?")[0]).name)
            if content is None:
                return self.answer(404)
            return self.answer_range(content, f'"store-{len(content)}"')


class Model:
    def __init__(self, commit, files, token):
        self.commit, self.files, self.token = commit, files, token


class Hub:
    def __init__(self):
        self.lock = threading.Lock()
        self.models = {}
        self.blobs = {}
        self.asked = []
        self.store_headers = []
        self.busy = 0  # requests that get 503
        self.servers = []
        self.url, self.store_url = self.serve(HubHandler), self.serve(StoreHandler)

    def serve(self, handler):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        server.hub = self
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    def add(self, name, commit, files, revision="main", token=None):
        model = Model(commit, files, token)
        self.models[name, revision] = self.models[name, commit] = model
        self.blobs.update({hash_of(file, content): content for file, content in files.items()})

    def close(self):
        for server, thread in self.servers:
            server.shutdown()
            thread.join()
            server.server_close()
