"""An HTTP metadata service of Mooncake's kind: GET, PUT and DELETE of /metadata?key=..., in memory.

Usage: metadata_server.py

Says its URL on standard output, and ends with standard input. As Mooncake's own, it refuses another
value for a key of rpc_meta that is there.
"""

import http.server
import sys
import threading
import urllib.parse

STORE = {}


class Handler(http.server.BaseHTTPRequestHandler):
    def key(self):
        url = urllib.parse.urlsplit(self.path)
        return urllib.parse.parse_qs(url.query).get("key", [""])[0] if url.path == "/metadata" else ""

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        # Without a key: what is there, for tests.
        if urllib.parse.urlsplit(self.path).path == "/keys":
            self.answer(200, "\n".join(sorted(STORE)).encode())
        elif self.key() in STORE:
            self.answer(200, STORE[self.key()])
        else:
            self.answer(404, b"metadata not found")

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key = self.key()
        if not key:
            self.answer(400, b"metadata key is required")
        elif "rpc_meta" in key and STORE.get(key, body) != body:
            self.answer(400, b"Duplicate rpc_meta key not allowed")
        else:
            STORE[key] = body
            self.answer(200, b"metadata updated")

    def do_DELETE(self):
        found = STORE.pop(self.key(), None) is not None
        self.answer(200 if found else 404)

    def log_message(self, *_):
        pass


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}/metadata", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
