"""A folder in headless Chromium: a page of a test looks at other pages, and posts what it found."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")


class Server(ThreadingHTTPServer):
    """found: what the page posted, once `is_ready` is set."""

    found: Any = None

    def __init__(self, folder: Path) -> None:
        self.is_ready = threading.Event()
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))


class _Handler(SimpleHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.server.found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.is_ready.set()

    def log_message(self, format: str, *args: Any) -> None:
        """No log: the test reports what the browser found."""


def run_page(folder: Path, page: str, profile: Path, *, seconds: float = 240) -> tuple[Any, str]:
    """Serve a folder, and load `page`, the text of a page, into Chromium until it posts JSON to any address. Returns
    this, and the log of the browser. Skips the test without Chromium.

    profile: an empty folder outside of the served one."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (apt install chromium)")
    (folder / "harness.html").write_text(page, encoding="utf-8")
    server = Server(folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    log = Path(profile, "log.txt")
    with log.open("w") as stream:
        browser = subprocess.Popen(
            [
                CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-extensions", "--no-first-run",
                "--enable-logging=stderr", f"--user-data-dir={profile}", "--remote-debugging-port=0",
                f"http://127.0.0.1:{server.server_port}/harness.html",
            ],
            stdout=stream, stderr=stream,
        )  # fmt: skip
        is_ready = server.is_ready.wait(seconds)
        browser.terminate()
        browser.wait(30)
    server.shutdown()
    server.server_close()
    assert is_ready, log.read_text(errors="replace")[-2000:]
    return server.found, log.read_text(errors="replace")
