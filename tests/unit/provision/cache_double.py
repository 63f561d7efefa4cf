"""A cache near the machine, plain HTTP, that can be wrong in each of the ways in which a cache is."""

from __future__ import annotations

import http.server
import threading
import time
from typing import Any

from tests.unit.provision.deploy_double import Provisioner


class NearBy:
    """Serves what ``provisioner`` has; ``fault`` says what is wrong with it."""

    def __init__(self, provisioner: Provisioner) -> None:
        self.fault = ""
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._provisioner = provisioner
        self._end = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        provisioner.images = [
            f"http://127.0.0.1:{self._server.server_address[1]}/images", f"{provisioner.address}/images",
        ]  # fmt: skip

    def close(self) -> None:
        """No connection is taken any more."""
        self._end.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                outer.asked.append((self.path, dict(self.headers)))
                outer.answer(self, outer._provisioner.image)

        return Handler

    def answer(self, handler: Any, image: bytes) -> None:
        """Answer as ``fault`` says."""
        if self.fault == "silent":
            self._end.wait(30)
            return
        if self.fault == "not-http":
            handler.wfile.write(b"garbage\r\n\r\n")
            return
        status = {"missing": 404, "redirect": 302}.get(self.fault, 200)
        handler.send_response(status)
        if status == 302:
            handler.send_header("Location", f"{self._provisioner.address}/images")
        handler.send_header("Content-Length", str(len(image) - (self.fault == "shorter")))
        handler.end_headers()
        if self.fault == "garbage":
            image = bytes(len(image))
        elif self.fault == "altered":
            image = image[:-1] + bytes([image[-1] ^ 1])
        elif self.fault == "half":
            image = image[: len(image) // 2]
        elif self.fault == "hangs":
            handler.wfile.write(image[:10])
            self._end.wait(30)
            return
        elif self.fault == "trickles":
            for letter in image:
                handler.wfile.write(bytes([letter]))
                time.sleep(0.05)
            return
        handler.wfile.write(image)
