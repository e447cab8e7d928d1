"""A server of a model of transformers that changes to each new version under load.

    MODEL=/models/llama PORT=8080 python following.py
    MODEL=/models/llama DELTAS=/mnt/deltas PLACE=/dev/shm PORT=8080 python following.py

MODEL is what `weightmap fetch`, `hold` or `publish` made: a link to the folder of the present
version. With DELTAS it is the first version, the next ones are made from what trainer.py publishes
there, once for all of these processes, in PLACE. With ADAPTER and ADAPTER_DELTAS a LoRA adapter is
followed in the same way; it changes between two requests, and the model stays.

A request is answered by the version that was current as it came; the next one is loaded beside it,
meanwhile, and exchanged for it by one assignment. Several of these processes may listen on one
port; they share the memory of each version.
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

    def __init__(self, folder, adapter):
        self.version = os.path.basename(folder)
        self.model = weightmap.transformers.load(folder)
        self.adapter = None
        self.lock = threading.Lock()  # between answers and a change of the adapter
        if adapter:
            self.change_adapter(adapter)

    def change_adapter(self, folder):
        import peft

        name = os.path.basename(folder).replace(".", "_")
        with self.lock:
            if self.adapter is None:
                self.model = peft.PeftModel.from_pretrained(self.model, folder, adapter_name=name)
            else:
                self.model.load_adapter(folder, adapter_name=name)
                self.model.set_adapter(name)
                self.model.delete_adapter(self.adapter)
            self.adapter = name

    def answer(self, ids):
        with self.lock, torch.inference_mode():
            token = int(self.model(torch.tensor([ids])).logits[0, -1].argmax())
            return {"token": token, "version": self.version, "adapter": self.adapter}


class Handler(http.server.BaseHTTPRequestHandler):
    served = None

    def do_GET(self):
        served = Handler.served  # once: the answer is of one version
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        answer = served.answer([int(word) for word in query["ids"][0].split(",")])
        body = json.dumps({**answer, "pid": os.getpid()}).encode()
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


def followed(model, deltas):
    """What tells of the next versions of a model, or of an adapter; None without one."""
    if deltas in os.environ:
        return weightmap.follow(os.environ[model], os.environ[deltas],
                                place=os.environ.get("PLACE"))
    return weightmap.watch(os.environ[model]) if model in os.environ else None


def folder_of(versions):
    return versions and (versions.last.folder if hasattr(versions, "last") else versions.path)


def follow(models, adapters):
    while True:
        try:
            if models.changed():  # the old one goes with its last request
                Handler.served = Served(folder_of(models), folder_of(adapters))
            elif adapters and adapters.changed():
                Handler.served.change_adapter(folder_of(adapters))
            else:
                time.sleep(0.2)
        except Exception as error:  # it stays, and the next version may be better
            print(error, flush=True)
            time.sleep(1)


def main():
    models, adapters = followed("MODEL", "DELTAS"), followed("ADAPTER", "ADAPTER_DELTAS")
    Handler.served = Served(folder_of(models), folder_of(adapters))
    threading.Thread(target=follow, args=(models, adapters), daemon=True).start()
    with Server(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Handler) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
