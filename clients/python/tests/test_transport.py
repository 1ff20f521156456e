"""Tests of HTTPTransport with servers that misbehave."""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import kickstand
from kickstand import Helpdesk

from .servers import KEY, Connection, answer, serve

MEMBERS = {"data": [{"id": "1"}], "has_more": False, "next_cursor": None}
NDJSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n"


def chunk(text: bytes) -> bytes:
    return f"{len(text):x}\r\n".encode() + text + b"\r\n"


class Clock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


class TransportTest(unittest.TestCase):
    def client(self, handle: Callable[[Connection], None], **options: Any) -> Helpdesk:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        origin = stack.enter_context(serve(handle))
        options.setdefault("max_retries", 0)
        return stack.enter_context(Helpdesk(KEY, base_url=origin, **options))

    def test_reuses_connections(self) -> None:
        connections = []

        def handle(c: Connection) -> None:
            connections.append(c)
            while (request := c.read()) is not None:
                self.assertEqual(request[1]["accept-encoding"], "identity")
                c.send(answer(MEMBERS))

        client = self.client(handle)
        for _ in range(5):
            client.members.list()
        self.assertEqual(len(connections), 1)
        client.close()
        client.members.list()
        self.assertEqual(len(connections), 2)

    def test_replaces_closed_connections_without_a_retry(self) -> None:
        closed = threading.Event()

        def handle(c: Connection) -> None:
            c.read()
            c.send(answer(MEMBERS))
            c.sock.shutdown(2)
            closed.set()

        client = self.client(handle)
        for _ in range(3):
            client.members.list()
            self.assertTrue(closed.wait(5))
            closed.clear()

    def test_closes_connections_on_request(self) -> None:
        def handle(c: Connection) -> None:
            c.read()
            c.send(answer(MEMBERS, headers="Connection: close\r\n"))

        client = self.client(handle)
        for _ in range(3):
            client.members.list()

    def test_times_out_without_an_answer(self) -> None:
        client = self.client(lambda c: (c.read(), c.read(), None)[2], timeout=0.1)
        with self.assertRaisesRegex(kickstand.APITimeoutError, "No answer within 0.1 seconds."):
            client.members.list()

    def test_times_out_within_a_slow_answer(self) -> None:
        # Each byte arrives within the timeout, but not all of them.
        for head in (b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"):
            clock = Clock()

            def handle(c: Connection, head: bytes = head, clock: Clock = clock) -> None:
                c.read()
                c.send(head)
                while True:
                    clock.time += 10
                    c.send(b" ")

            with self.subTest(head), mock.patch("kickstand._http.monotonic", clock):
                with self.assertRaises(kickstand.APITimeoutError):
                    self.client(handle, timeout=30).members.list()

    def test_a_slow_export_may_last_longer_than_the_timeout(self) -> None:
        clock = Clock()
        proceed = threading.Semaphore(1)

        def handle(c: Connection) -> None:
            c.read()
            c.send(NDJSON + b"Transfer-Encoding: chunked\r\n\r\n")
            for i in range(10):
                proceed.acquire()
                clock.time += 20
                c.send(chunk(b'{"id":"%d"}\n' % i))
            c.send(chunk(b""))

        with mock.patch("kickstand._http.monotonic", clock):
            for _ in self.client(handle, timeout=30).members.export():
                proceed.release()
        self.assertEqual(clock.time, 200)

    def test_skips_interim_answers(self) -> None:
        def handle(c: Connection) -> None:
            for name in ("first", "second"):
                c.read()
                c.send(
                    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
                )
                c.send(answer({"id": name}))

        client = self.client(handle)
        names = [client.tickets.get("t").id for _ in range(2)]
        self.assertEqual(names, ["first", "second"])

    def test_raises_for_answers_that_are_cut_short(self) -> None:
        for text in (
            b"",
            b"HTTP/1.1 200",
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n{}",
            b"no HTTP\r\n\r\n",
        ):

            def handle(c: Connection, text: bytes = text) -> None:
                c.read()
                c.send(text)

            with self.subTest(text):
                client = self.client(handle)
                with self.assertRaises(kickstand.APIConnectionError):
                    client.members.list()

    def test_raises_for_exports_that_are_cut_short(self) -> None:
        for rest in (
            b'Transfer-Encoding: chunked\r\n\r\n9\r\n{"id":1}\n\r\n',
            b'Content-Length: 99\r\n\r\n{"id":1}\n',
            b'Connection: close\r\n\r\n{"id":1}\n',
        ):

            def handle(c: Connection, rest: bytes = rest) -> None:
                c.read()
                c.send(NDJSON + rest)

            with self.subTest(rest):
                export = self.client(handle).members.export()
                next(export)
                with self.assertRaises(kickstand.APIConnectionError):
                    next(export)

    def test_refuses_huge_answers(self) -> None:
        def handle(c: Connection) -> None:
            c.read()
            c.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                c.send(chunk(b" " * 1000))

        client = self.client(handle)
        with mock.patch("kickstand._core.MAX_JSON", 5000):
            with self.assertRaisesRegex(kickstand.KickstandError, "larger than 64 MiB"):
                client.members.list()

    def test_reads_an_answer_that_came_before_the_whole_body(self) -> None:
        def handle(c: Connection) -> None:
            c.file.readline()
            c.send(answer({"code": "body_too_large"}, status=413, headers="Connection: close\r\n"))
            c.sock.shutdown(1)
            while c.sock.recv(1 << 16):
                pass

        client = self.client(handle)
        with self.assertRaises(kickstand.ProblemError) as caught:
            client.tickets.create(subject="x", text="x" * (8 << 20))
        self.assertEqual(caught.exception.status, 413)

    def test_raises_without_a_server(self) -> None:
        with serve(lambda c: None) as origin:
            pass
        client = Helpdesk(KEY, base_url=origin, max_retries=1, sleep=lambda _: None)
        with self.assertRaises(kickstand.APIConnectionError):
            client.members.list()

    def test_does_not_retry_for_an_invalid_certificate(self) -> None:
        invalid = ssl.SSLCertVerificationError(1, "certificate verify failed")
        invalid.verify_message = "self-signed certificate"
        client = Helpdesk(KEY, base_url="https://kickstand.example", sleep=self.fail)
        with mock.patch("http.client.HTTPSConnection.connect", side_effect=invalid):
            with self.assertRaisesRegex(
                kickstand.APIConnectionError, "certificate is not valid: self-signed certificate."
            ):
                client.members.list()

    def test_does_not_use_proxies_of_the_environment(self) -> None:
        def handle(c: Connection) -> None:
            c.read()
            c.send(answer(MEMBERS))

        dead = "http://127.0.0.1:1"
        names = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY")
        with mock.patch.dict(os.environ, {name: dead for name in names}):
            self.client(handle).members.list()

    def test_serves_fifty_threads(self) -> None:
        def handle(c: Connection) -> None:
            while (request := c.read()) is not None:
                q = request[0].split("q=")[1].split()[0]
                c.send(answer({"data": [{"id": q}], "has_more": False}))

        client = self.client(handle)
        with ThreadPoolExecutor(50) as pool:
            found = pool.map(lambda i: client.tickets.list(q=str(i)).data[0].id, range(1000))
            self.assertEqual(list(found), [str(i) for i in range(1000)])

    def test_calls_within_an_export_use_another_connection(self) -> None:
        def handle(c: Connection) -> None:
            while (request := c.read()) is not None:
                if request[1]["accept"] == "application/x-ndjson":
                    c.send(NDJSON + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b'{"id":"1"}\n'))
                    c.send(chunk(b'{"id":"2"}\n') + chunk(b""))
                else:
                    c.send(answer(MEMBERS))

        client = self.client(handle)
        with client.members.export() as export:
            ids = [(m.id, client.members.list().data[0].id) for m in export]
        self.assertEqual(ids, [("1", "1"), ("2", "1")])
        with client.members.export() as export:
            next(export)  # the rest is not read
        self.assertEqual(len(client.members.list().data), 1)

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_a_fork_does_not_share_connections(self) -> None:
        def handle(c: Connection) -> None:
            count = 0
            while c.read() is not None:
                count += 1
                c.send(answer({"data": [{"id": str(count)}], "has_more": False}))

        client = self.client(handle)
        self.assertEqual(client.members.list().data[0].id, "1")
        child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(Exception):
                status = 0 if client.members.list().data[0].id == "1" else 2
            os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(client.members.list().data[0].id, "2")


if __name__ == "__main__":
    unittest.main()
