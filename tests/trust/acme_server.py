"""A key service over HTTP, as a cloud's is from afar: it keeps keys, and wraps and unwraps for whoever may ask."""

from __future__ import annotations

import base64
import json
import os
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, HTTPServer

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_keys: defaultdict[str, AESGCM] = defaultdict(lambda: AESGCM(os.urandom(32)))


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        name, _, action = self.path.rpartition(":")
        asked = json.loads(self.rfile.read(min(int(self.headers["Content-Length"]), 10_000)))
        data, context = base64.b64decode(asked["data"]), base64.b64decode(asked["context"])
        try:
            if action == "wrap":
                nonce = os.urandom(12)
                answer = nonce + _keys[name].encrypt(nonce, data, context)
            else:
                answer = _keys[name].decrypt(data[:12], data[12:], context)
        except (InvalidTag, ValueError):
            self.send_error(403)
            return
        body = json.dumps({"data": base64.b64encode(answer).decode()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
