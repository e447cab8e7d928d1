"""A server of a model of transformers that changes to each new version under load.

    MODEL=/models/llama PORT=8080 python following.py
    MODEL=/models/llama DELTAS=/mnt/deltas PLACE=/dev/shm PORT=8080 python following.py

MODEL is what `weightmap fetch`, `hold` or `publish` made: a link to the folder of the present
version. With DELTAS it is the first version, the next ones are made from what trainer.py publishes
there, once for all of these processes, in PLACE. A request is answered by the version that was current as it came; the next one is loaded
beside it, meanwhile, and exchanged for it by one assignment. Several of these processes may listen
on one port; they share the memory of each version.
"""

import http.server
import json
import os
import socket
import threading
import time
import urllib.parse

import torch
import weightmap


class Served:
    """One version. Whoever answers with it keeps it until the answer is made."""

    def __init__(self, folder):
        self.version = os.path.basename(folder)
        self.model = weightmap.transformers.load(folder)

    def next_token(self, ids):
        with torch.inference_mode():
            return int(self.model(torch.tensor([ids])).logits[0, -1].argmax())


class Handler(http.server.BaseHTTPRequestHandler):
    served = None

    def do_GET(self):
        served = Handler.served  # once: the answer is of one version
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        token = served.next_token([int(word) for word in query["ids"][0].split(",")])
        body = json.dumps({"token": token, "version": served.version, "pid": os.getpid()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True

    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()


def follow(versions, folder):
    while True:
        try:
            versions.wait()
            Handler.served = Served(folder())  # the old one goes with its last request
        except Exception as error:  # it stays, and the next version may be better
            print(error, flush=True)
            time.sleep(1)


def main():
    if "DELTAS" in os.environ:
        versions = weightmap.follow(os.environ["MODEL"], os.environ["DELTAS"],
                                    place=os.environ.get("PLACE"))
        folder = lambda: versions.last.folder
    else:
        versions = weightmap.watch(os.environ["MODEL"], interval=0.2)
        folder = lambda: versions.path
    Handler.served = Served(folder())
    threading.Thread(target=follow, args=(versions, folder), daemon=True).start()
    with Server(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Handler) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
