"""Runs the vectors that all client libraries pass: clients/vectors."""

from __future__ import annotations

import base64
import dataclasses
import importlib
import json
import re
import typing
import unittest
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import kickstand
from kickstand import Fleet, Helpdesk, Record, attachment, testing, webhooks
from kickstand._values import parse_time
from kickstand.helpdesk.events import UnknownEvent

from .operations import OPERATIONS

VECTORS = Path(__file__).parents[2] / "vectors"
CLIENTS: dict[str, Any] = {"helpdesk": Helpdesk, "fleet": Fleet}
TIME = re.compile(r"\d{4}-\d\d-\d\dT")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def load(name: str) -> Any:
    return json.loads((VECTORS / name).read_text("utf-8"))


def api_key(key: Any) -> str:
    return str(key["text"]) if isinstance(key, dict) else f"sk_{key}_" + "k" * 32


class Server:
    """A transport that checks requests and returns the answers of a vector."""

    def __init__(self, case: unittest.TestCase, vector: dict[str, Any]) -> None:
        self.case = case
        self.vector = vector
        self.requests: list[kickstand.Request] = []

    def close(self) -> None:
        pass

    def send(self, request: kickstand.Request) -> kickstand.Response:
        self.case.assertLess(
            len(self.requests), len(self.vector["exchanges"]), "a request too many"
        )
        exchange = self.vector["exchanges"][len(self.requests)]
        self.check(request, exchange["request"])
        self.requests.append(request)
        failure, answer = exchange.get("failure"), exchange.get("response", {})
        if failure == "timeout":
            raise kickstand.APITimeoutError("timed out")
        if failure in ("connect", "reset"):
            raise kickstand.APIConnectionError(failure)
        if "base64" in answer:
            text = base64.b64decode(answer["base64"])
        else:
            text = answer.get("text", "").encode()
        if "body" in answer:
            text = json.dumps(answer["body"]).encode()
        headers = {name.lower(): value for name, value in answer.get("headers", {}).items()}
        return kickstand.Response(answer["status"], "", headers, self.pieces(text, failure))

    def pieces(self, text: bytes, failure: str | None) -> Iterator[bytes]:
        for start in range(0, len(text), 50):
            yield text[start : start + 50]
        if failure == "cut":
            raise kickstand.APIConnectionError("cut")

    def check(self, request: kickstand.Request, want: dict[str, Any]) -> None:
        case, url = self.case, urlsplit(request.url)
        headers = {name.lower(): value for name, value in request.headers.items()}
        case.assertEqual(
            (request.method, url.scheme, url.netloc, url.path),
            (want["method"], "https", "kickstand.example", want["path"]),
        )
        query: dict[str, Any] = {}
        for name, value in parse_qsl(url.query, keep_blank_values=True):
            if name.endswith("[]"):
                query.setdefault(name, []).append(value)
            else:
                case.assertNotIn(name, query)
                query[name] = value
        case.assertEqual(query, want.get("query", {}))
        case.assertEqual(headers["authorization"], "Bearer " + api_key(self.vector["key"]))
        case.assertRegex(headers["user-agent"], "^kickstand-python/")
        for name, value in want.get("headers", {}).items():
            case.assertEqual(headers.get(name), value, name)
        for name in want.get("present", []):
            case.assertIn(name, headers)
        for name in want.get("absent", []):
            case.assertNotIn(name, headers)
        self.check_keys(request, headers, want)
        body = request.body
        if "lines" in want:
            assert body is not None
            case.assertEqual([json.loads(line) for line in body.splitlines()], want["lines"])
        elif "body" in want:
            assert body is not None
            case.assertEqual(json.loads(body), want["body"])
        else:
            case.assertIsNone(body)

    def check_keys(
        self, request: kickstand.Request, headers: dict[str, str], want: dict[str, Any]
    ) -> None:
        earlier = [{n.lower(): v for n, v in r.headers.items()} for r in self.requests]
        for name in want.get("same", []):
            if earlier:
                self.case.assertEqual(headers[name], earlier[0][name])
        for name in want.get("differs", []):
            self.case.assertNotIn(headers[name], [e.get(name) for e in earlier])
        key = headers.get("idempotency-key")
        chosen = self.vector["call"].get("options", {}).get("idempotency_key")
        if request.method == "GET":
            self.case.assertIsNone(key)
        elif chosen is None:
            self.case.assertRegex(key or "", UUID)
        else:
            self.case.assertEqual(key, chosen)


def argument(value: Any) -> Any:
    """Return the value of an argument of a vector."""
    if isinstance(value, list):
        return [argument(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$time" in value:
        return datetime.fromisoformat(value["$time"].replace("Z", "+00:00"))
    if "$attachment" in value:
        file = value["$attachment"]
        return attachment(base64.b64decode(file["base64"]), file["name"], file["content_type"])
    return {name: argument(item) for name, item in value.items()}


class Runner:
    """Runs the call of one vector."""

    def __init__(self, case: unittest.TestCase, vector: dict[str, Any]) -> None:
        self.case, self.vector = case, vector
        self.server = Server(case, vector)
        self.waits: list[float] = []
        self.yielded: list[Any] = []
        self.observed: kickstand.ResponseInfo | None = None

    def observe(self, info: kickstand.ResponseInfo) -> None:
        self.observed = info

    def run(self) -> Any:
        vector, call = self.vector, self.vector["call"]
        client = CLIENTS[vector["client"]](
            api_key(vector["key"]),
            base_url="https://kickstand.example",
            transport=self.server,
            sleep=self.waits.append,
            random=lambda: vector.get("random", 0.5),
            now=lambda: vector["now"],
            **vector.get("options", {}),
        )
        group, method, bulk = OPERATIONS[vector["client"]][call["operation"]]
        mode = call["mode"]
        if mode.startswith(("export", "import")):
            method = bulk + "_csv" * (mode == "export_csv")
        if mode == "modify":
            method = "modify"
        options = dict(call.get("options", {}))
        options["on_response"] = self.observe
        arguments = {**call.get("path", {}), **call.get("query", {}), **call.get("body", {})}
        for name in ("idempotency_key", "if_match", "if_none_match", "subaccount"):
            if name in options:
                arguments[name] = options.pop(name)
        if mode == "import":
            arguments["records"] = call["records"]
        if mode == "modify":
            added = call["append"]["tags"]
            arguments["change"] = lambda record: {"tags": [*record.tags, added]}
        else:
            arguments = argument(arguments)
        names = {"from": "from_"}
        arguments = {names.get(name, name): value for name, value in arguments.items()}
        answer = getattr(getattr(client, group), method)(**arguments, options=options)
        return self.result(mode, answer)

    def result(self, mode: str, answer: Any) -> Any:
        if mode in ("iterate", "export"):
            for record in answer:
                self.yielded.append(record.to_dict())
            return self.yielded
        if mode == "pages":
            while answer is not None:
                self.yielded.append([record.to_dict() for record in answer.data])
                answer = answer.next_page()
            return self.yielded
        if mode == "import":
            for line in answer:
                self.yielded.append(line.to_dict())
            return {"lines": self.yielded, "summary": answer.summary.to_dict()}
        if mode == "export_csv":
            return answer.read().decode()
        if mode == "file":
            return {"base64": base64.b64encode(answer.read()).decode()}
        if isinstance(answer, kickstand.Page):
            return {
                "data": [record.to_dict() for record in answer.data],
                "has_more": answer.has_more,
                "next_cursor": answer.next_cursor,
            }
        return answer.to_dict() if isinstance(answer, Record) else answer


class VectorTest(unittest.TestCase):
    def assert_within(self, want: Any, got: Any, path: str = "result") -> None:
        """Fail unless got has everything of want."""
        if isinstance(want, dict):
            self.assertIsInstance(got, dict, path)
            for name, value in want.items():
                self.assertIn(name, got, path)
                self.assert_within(value, got[name], f"{path}.{name}")
        elif isinstance(want, list):
            self.assertIsInstance(got, list, path)
            self.assertEqual(len(want), len(got), path)
            for i, value in enumerate(want):
                self.assert_within(value, got[i], f"{path}[{i}]")
        else:
            self.assertEqual(want, got, path)

    def check_error(self, want: dict[str, Any], error: Exception) -> None:
        kinds: dict[str, Any] = {
            "problem": kickstand.ProblemError,
            "connection": kickstand.APIConnectionError,
            "timeout": kickstand.APITimeoutError,
            "argument": (ValueError, TypeError),
            "answer": kickstand.KickstandError,
        }
        self.assertIsInstance(error, kinds[want["kind"]])
        if want["kind"] == "answer":
            self.assertIs(type(error), kickstand.KickstandError)
        if want["kind"] == "connection":
            self.assertNotIsInstance(error, kickstand.APITimeoutError)
        if not isinstance(error, kickstand.ProblemError):
            return
        for name in set(want) & {"status", "code", "title", "detail", "type", "request_id"}:
            self.assertEqual(getattr(error, name), want[name], name)
        self.assertEqual(error.retry_after, want["retry_after"])
        self.assertEqual(str(error), want["message"])
        self.assert_within(want.get("members", {}), error.raw)
        got = [dataclasses.asdict(e) for e in error.errors]
        self.assert_within(want["errors"], got)

    def test_exchanges(self) -> None:
        for vector in load("exchanges.json"):
            with self.subTest(vector["name"]):
                runner = Runner(self, vector)
                wanted = vector.get("error")
                try:
                    result = runner.run()
                except (kickstand.KickstandError, ValueError, TypeError) as error:
                    if wanted is None:
                        raise
                    self.check_error(wanted, error)
                else:
                    self.assertIsNone(wanted, "no error")
                    self.assert_within(vector["result"], result)
                    if "raw" in vector:
                        self.assert_within(vector["raw"], result)
                self.assertEqual(len(runner.server.requests), len(vector["exchanges"]))
                self.assertEqual(len(runner.waits), len(vector.get("waits", [])))
                for want, got in zip(vector.get("waits", []), runner.waits):
                    self.assertAlmostEqual(want, got, delta=0.001)
                if "yielded" in vector:
                    self.assert_within(vector["yielded"], runner.yielded)
                if "observed" in vector:
                    assert runner.observed is not None
                    self.assert_within(vector["observed"], dataclasses.asdict(runner.observed))

    def test_configurations(self) -> None:
        for vector in load("configurations.json"):
            with self.subTest(vector["name"]):
                found = {}
                for name, client in CLIENTS.items():
                    arguments = {
                        "key": api_key(vector["key"]),
                        "base_url": vector["base_url"],
                        **vector.get("options", {}),
                    }
                    if "error" in vector:
                        with self.assertRaises(ValueError) as caught:
                            client(**arguments)
                        if arguments["key"].strip():
                            self.assertNotIn(arguments["key"], str(caught.exception))
                    else:
                        found[name] = repr(client(**arguments)).split("'")[1]
                if "result" in vector:
                    self.assertEqual(found, vector["result"])

    def test_signatures(self) -> None:
        for vector in load("signatures.json"):
            with self.subTest(vector["name"]):
                secrets = [
                    "whsec_" + base64.b64encode(s["whsec_base64_of"].encode()).decode()
                    if "whsec_base64_of" in s
                    else s["text"]
                    for s in vector["secrets"]
                ]
                body, headers = vector["body"].encode(), vector["headers"]
                try:
                    if vector.get("form"):
                        event = webhooks.verify_body(body, headers, secrets, vector["form"])
                    else:
                        event = webhooks.verify(
                            body,
                            headers,
                            secrets,
                            tolerance=vector.get("tolerance", 300),
                            now=vector["now"],
                        )
                except kickstand.SignatureError as error:
                    self.assertEqual(error.reason, vector.get("error"))
                else:
                    self.assertNotIn("error", vector)
                    self.assert_within(vector["result"], event.to_dict())

    def test_events(self) -> None:
        """Every event has the class of its source, with all members."""
        secret = "a secret of sixteen or more"
        for vector in load("events.json"):
            with self.subTest(vector["name"]):
                source, record = vector["source"], vector["record"]
                body = json.dumps(vector["body"]).encode()
                headers = testing.sign(body, secret)
                events = importlib.import_module(f"kickstand.{source}.events")
                for event in (
                    webhooks.verify(body, headers, secret, source=source),
                    webhooks.verify_body(body, headers, secret, "b", source=source),
                ):
                    self.assertEqual(event.to_dict(), vector["body"])
                    if record == "":
                        self.assertIsInstance(event, UnknownEvent)
                        continue
                    self.assertIs(type(event), events.EVENTS[vector["body"]["event"]])
                    self.assertEqual(type(event.data).__name__, pascal(record))
                    self.assert_within(known(vector["body"]), typed(event))


class ShapeTest(unittest.TestCase):
    """The operations, records and enums of the last release are still there."""

    def test_shapes(self) -> None:
        for name, shape in load("shapes.json").items():
            names = vars(importlib.import_module(f"kickstand.{name}"))
            names = {**vars(importlib.import_module(f"kickstand.{name}.events")), **names}
            for operation in shape["operations"]:
                group, method, _ = OPERATIONS[name][operation]
                resource = typing.get_type_hints(
                    getattr(CLIENTS[name], group).func,
                    vars(importlib.import_module(f"kickstand.{name}.client")),
                )["return"]
                self.assertTrue(callable(getattr(resource, method)), operation)
            for record, members in shape["records"].items():
                got = wire_names(names[pascal(record)])
                self.assertLessEqual(set(members), got, record)
            for enum, values in shape["enums"].items():
                got = set(typing.get_args(names[pascal(enum)]))
                self.assertLessEqual(set(values), got, enum)


def pascal(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def known(value: Any) -> Any:
    """Return a value with its times, without the members that no version knows."""
    if isinstance(value, dict):
        return {k: known(v) for k, v in value.items() if k != "added_later"}
    if isinstance(value, list):
        return [known(v) for v in value]
    return parse_time(value) if isinstance(value, str) and TIME.match(value) else value


def typed(value: Any) -> Any:
    """Return a value with the attributes of records, rather than with what the server sent."""
    if isinstance(value, Record):
        fields = dataclasses.fields(cast(Any, value))
        return {f.metadata.get("name", f.name): typed(getattr(value, f.name)) for f in fields}
    if isinstance(value, dict):
        return {k: typed(v) for k, v in value.items()}
    return [typed(v) for v in value] if isinstance(value, list) else value


def wire_names(of: Any) -> set[str]:
    if dataclasses.is_dataclass(of):
        return {f.metadata.get("name", f.name) for f in dataclasses.fields(of)}
    return set(of.__annotations__)


if __name__ == "__main__":
    unittest.main()
