#!/usr/bin/env python3
"""OpenStack Swift with the API of S3, on 127.0.0.1, for one user: a store that checks signatures.

    swift_server.py FOLDER KEY_ID SECRET

Runs in an interpreter that has the package swift. KEY_ID is ACCOUNT:USER, and FOLDER on a file
system with extended attributes. Prints the port, and serves until the end of its input.
"""

import pathlib
import sys

from swift.common import utils

utils.monkey_patch()  # before anything else opens a socket

import eventlet  # noqa: E402
from eventlet import tpool, wsgi  # noqa: E402
from swift.common.http_protocol import SwiftHttpProtocol  # noqa: E402
from swift.common.ring import RingBuilder  # noqa: E402
from swift.common.wsgi import loadapp  # noqa: E402

STORES = ("account", "container", "object")
# The times are such that a slow machine fails no test.
DEFAULT = """[DEFAULT]
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
conn_timeout = 3600
node_timeout = 3600
client_timeout = 3600
log_address = {folder}/nowhere
"""
STORE = DEFAULT + """[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""
PROXY = DEFAULT + """[pipeline:main]
pipeline = catch_errors s3api tempauth slo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
recoverable_node_timeout = 3600
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:s3api]
use = egg:swift#s3api
[filter:tempauth]
use = egg:swift#tempauth
user_{account}_{user} = {secret} .admin
[filter:slo]
use = egg:swift#slo
"""


def write_ring(path, port):
    """Of one replica on one device."""
    builder = RingBuilder(part_power=1, replicas=1, min_part_hours=1)
    builder.add_dev({"region": 1, "zone": 1, "ip": "127.0.0.1", "port": port, "device": "disk",
                     "weight": 1, "replication_ip": "127.0.0.1", "replication_port": port,
                     "meta": ""})
    builder.rebalance()
    builder.get_ring().save(str(path))


def serve(name, text, folder, socket):
    path = folder / f"{name}.conf"
    path.write_text(text)
    # As swift.common.wsgi.run_server() does, of which a process can have one.
    eventlet.spawn(wsgi.server, socket, loadapp(str(path)), utils.NullLogger(),
                   protocol=SwiftHttpProtocol, capitalize_response_headers=False)


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    account, user = sys.argv[2].split(":")
    (folder / "devices" / "disk").mkdir(parents=True)
    (folder / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = test\n")
    utils.set_swift_dir(str(folder))
    sockets = {name: eventlet.listen(("127.0.0.1", 0)) for name in (*STORES, "proxy")}
    for name in STORES:
        write_ring(folder / f"{name}.ring.gz", sockets[name].getsockname()[1])
        serve(name, STORE.format(folder=folder, name=name), folder, sockets[name])
    serve("proxy", PROXY.format(folder=folder, account=account, user=user, secret=sys.argv[3]),
          folder, sockets["proxy"])
    print(sockets["proxy"].getsockname()[1], flush=True)
    tpool.execute(sys.stdin.read)


if __name__ == "__main__":
    main()
