"""A hub that lists models and leads to their files, as huggingface.co does.

    hub = Hub(RangeServer(folder))
    hub.add("org/name", commit, {"config.json": b"{}", "model.safetensors": content})
    ... hub.url ...        # HF_ENDPOINT
    hub.asked              # the paths of all requests for it
    hub.store              # that server, to which large files are redirected

Files of safetensors, GGUF and torch are large: their ETag is the SHA-256 of the content, and a
redirect leads to the store at another port. The others are served here, under git's hash and as a
whole.
"""

import hashlib
import http.server
import json
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


class HubHandler(http.server.BaseHTTPRequestHandler):
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
        return self.answer(302, Location=hub.store.url(hash_of(file, content)) + "?signed=yes",
                           X_Linked_ETag=f'"{hash_of(file, content)}"',
                           X_Linked_Size=str(len(content)), X_Repo_Commit=model.commit)


class Model:
    def __init__(self, commit, files, token):
        self.commit, self.files, self.token = commit, files, token


class Hub:
    def __init__(self, store):
        self.lock = threading.Lock()
        self.models = {}
        self.asked = []
        self.busy = 0  # requests that get 503
        self.store = store
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), HubHandler)
        self.server.daemon_threads = True
        self.server.hub = self
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def add(self, name, commit, files, revision="main", token=None):
        for file, content in files.items():  # first, and none is written while it is read
            path = self.store.folder / hash_of(file, content)
            if not path.exists():
                path.write_bytes(content)
        model = Model(commit, files, token)
        with self.lock:
            self.models[name, revision] = self.models[name, commit] = model

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
