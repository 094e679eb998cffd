"""One proxy with its backends and clients, and the verdict on a batch of messages at a time.

The messages of a batch are under way together, each on a connection of its own, so that they share backend connections. The
batch is over when each client has what its bytes ask for, or the end of its connection; then the bystanders ask. Nothing
waits for time to pass: `PATIENCE` only bounds a wait that should not occur.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from harness.process import free_port

from . import backends, messages_http2, mutate, requests_http1, responses_http1, strict_http1, strict_http2
from .backends import Recording, echo_body
from .clients import Bystander, CleanHttp2, Http1, RawHttp2
from .compare import ECHO, disagreement, echo, is_own, request_problem, response_problem
from .message import Request, Response, short

DIRECTIONS = ("http1-requests", "http2-requests", "http1-responses", "http2-responses")
BATCH = 32
PATIENCE = 10.0
# Streams of the probes behind mutated HTTP/2 requests, which use lower ones.
_PROBE_STREAM = 1001
_ROUND_TRIP = b"/round-trip"
_TAG = re.compile(rb"[mp]/?([0-9]+)")
# Echoes are shorter than this, so that a window of it lets three of them pass.
_ROOMY = 1_000
_METHODS = (b"GET", b"GET", b"GET", b"POST", b"HEAD")


@dataclass
class Finding:
    """One violated property, with the bytes that show it."""

    kind: str
    direction: str
    index: int | None
    text: str
    evidence: list[tuple[str, bytes]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.direction}, message {self.index}: {self.text}"]
        return "\n".join(lines + [f"    {what}: {short(data)}" for what, data in self.evidence])


@dataclass
class Tally:
    """What came of the messages, so that a run in which nothing passes the proxy does not look like a success."""

    messages: int = 0
    passed: int = 0
    """Mutated messages of which the other side received at least one."""
    counts: Counter = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        self.messages += other.messages
        self.passed += other.passed
        self.counts += other.counts


@dataclass
class Batch:
    """What is under way."""

    direction: str
    indices: list[int]
    server: backends.Server
    sent: list[tuple[int | None, Request]] = field(default_factory=list)
    """Every request that some client's bytes contain, in whole or in part."""
    findings: list[Finding] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    raw: dict[int, bytes] = field(default_factory=dict)
    """The bytes of the mutated requests."""

    def find(self, kind: str, index: int | None, text: str, *evidence: tuple[str, bytes]) -> None:
        self.findings.append(Finding(kind, self.direction, index, text, list(evidence)))


def variant(direction: str, index: int) -> tuple[str, str]:
    """Which protocols the client and the backend of a message speak."""
    number = index // BATCH % 4
    if direction == "http1-requests":
        return "http1", "http1"
    if direction == "http2-requests":
        return "http2", "http2" if number == 3 else "http1"
    if direction == "http1-responses":
        return "http2" if number == 3 else "http1", "http1"
    return "http2" if number % 2 else "http1", "http2"


def _get(path: bytes, *fields: tuple[bytes, bytes], method: bytes = b"GET", body: bytes = b"") -> Request:
    length = [(b"content-length", b"%d" % len(body))] if body else []
    return Request(method, path, b"site.example", [*fields, *length], body, complete=True)


def _raw(request: Request) -> bytes:
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in request.fields)
    return request.method + b" " + request.target + b" HTTP/1.1\r\nhost: " + request.host + b"\r\n" + lines + b"\r\n" + request.body


class Lane:
    """`start` starts the proxy: from the addresses of the HTTP/1 and the HTTP/2 backend to the port for each."""

    def __init__(self, seed: int, start: Callable[[str, str], Awaitable[tuple[int, int]]], patience: float = PATIENCE):
        self.seed = seed
        self.patience = patience
        self.requests: dict[str, Callable[[random.Random, bytes], bytes]] = {
            "http1-requests": requests_http1.requests,
            "http2-requests": messages_http2.requests,
        }
        self.http1_response = responses_http1.response
        self.http2_response = messages_http2.response
        self._start = start
        self._asked = 0
        self._bystanders: dict[int, list[Bystander]] = {}
        self._round_trips: dict[str, Bystander] = {}
        # Probes that were reported as unanswered, and may reach a backend yet.
        self._late: list[Request] = []

    async def open(self) -> None:
        self.servers = {
            "http1": backends.Server(backends.Http1, lambda: self._round_trip("http2")),
            "http2": backends.Server(backends.Http2, lambda: self._round_trip("http1")),
        }
        for server in self.servers.values():
            await server.listen(free_port())
        ports = await self._start(self.servers["http1"].address, self.servers["http2"].address)
        self.ports = dict(zip(("http1", "http2"), ports, strict=True))

    def close(self) -> None:
        for bystander in [*(one for some in self._bystanders.values() for one in some), *self._round_trips.values()]:
            bystander.transport.abort()
        for server in self.servers.values():
            server.stop()

    async def run(self, direction: str, indices: list[int]) -> tuple[list[Finding], Tally]:
        """A batch: consecutive indices of one variant."""
        client, backend = variant(direction, indices[0])
        server = self.servers[backend]
        server.answers = backends.Answers()
        batch = Batch(direction, indices, server)
        batch.tally.messages = len(indices)
        if direction.endswith("requests"):
            await (self._http1_requests if client == "http1" else self._http2_requests)(batch, self.ports[backend])
            await self._bystanders_ask(batch, self.ports[backend])
        else:
            server.answers.http1 = lambda tag: self.http1_response(self._rng(direction, tag), tag)
            server.answers.http2 = lambda tag, stream: self.http2_response(self._rng(direction, tag), tag, stream)
            clients = await (self._http1_clients if client == "http1" else self._http2_clients)(batch, self.ports[backend])
            await self._bystanders_ask(batch, self.ports[backend])
            for check in clients:
                check()
        if direction.endswith("requests"):
            self._check_recordings(batch)
        return batch.findings, batch.tally

    def _rng(self, direction: str, tag: bytes) -> random.Random:
        return mutate.stream_of(self.seed, direction, int(tag[1:]))

    async def _finish(self, batch: Batch, clients: list) -> list:
        """Waits until each client is done; returns those that are not."""
        waiting = [client.over for client in clients]
        if waiting:
            await asyncio.wait(waiting, timeout=self.patience)
        late = [client for client in clients if not client.over.done()]
        for client in late:
            client.transport.abort()
        return late

    # Requests.

    async def _http1_requests(self, batch: Batch, port: int) -> None:
        loop = asyncio.get_running_loop()
        clients = []
        for index in batch.indices:
            rng = mutate.stream_of(self.seed, batch.direction, index)
            probe = _get(b"/p/%d" % index, (b"x-id", b"p%d" % index))
            data = self.requests[batch.direction](rng, b"m%d" % index) + _raw(probe)
            batch.raw[index] = data
            reading = strict_http1.read_requests(data)
            batch.sent += [(index, request) for request in reading.messages]
            batch.sent += [(index, reading.partial)] if reading.partial else []
            client = Http1(mutate.pieces(rng, data), [request.method for request in reading.messages])
            clients.append((index, reading, client))
            await loop.create_connection(lambda client=client: client, "127.0.0.1", port)
        late = await self._finish(batch, [client for _, _, client in clients])
        for index, reading, client in clients:
            if client in late:
                received = ("client received", bytes(client.data))
                batch.find("unanswered", index, "neither answered nor closed", ("sent", batch.raw[index]), received)
            self._check_answers(batch, index, reading.messages, client)

    def _check_answers(self, batch: Batch, index: int, requests: list[Request], client: Http1) -> None:
        """Each response on an HTTP/1 connection is the one to the request in its place."""
        evidence = [("sent", batch.raw[index]), ("client received", bytes(client.data))]
        answers = client.reading()
        differs = disagreement(answers, client.second_reading(), "response")
        if differs:
            batch.find("ambiguous", index, f"to the client: {differs}", *evidence)
        if answers.fault:
            batch.find("split", index, f"the client got what is no response: {answers.fault}", *evidence)
        for number, answer in enumerate([*answers.messages, *([answers.partial] if answers.partial else [])]):
            request = requests[number] if number < len(requests) else None
            self._check_echo(batch, index, request, answer, evidence)
        if answers.rest and not answers.partial and len(answers.messages) > len(requests):
            batch.find("split", index, "bytes behind the last response", *evidence)

    def _check_echo(self, batch: Batch, index: int, request: Request | None, answer: Response, evidence: list) -> None:
        got = answer.get(ECHO)
        if got is None:
            if not is_own(answer):
                batch.find("split", index, f"a response of nobody: {answer}", *evidence)
            batch.tally.counts[f"own {answer.status}"] += 1
        elif request is None:
            batch.find("split", index, f"a response to no request: {answer}", *evidence)
        elif got not in {echo(request), echo(request, request.body[: request.length])}:
            batch.find("crossed", index, f"{request.method!r} {request.target!r} got the answer to another request", *evidence)
        elif answer.complete and answer.body != (b"" if request.method == b"HEAD" else b"answer to " + got):
            batch.find("split", index, f"another body: {answer.body[:80]!r}", *evidence)

    async def _http2_requests(self, batch: Batch, port: int) -> None:
        loop = asyncio.get_running_loop()
        clients = []
        for index in batch.indices:
            rng = mutate.stream_of(self.seed, batch.direction, index)
            probe = messages_http2.probe(_PROBE_STREAM, b"/p/%d" % index, b"p%d" % index)
            data = self.requests[batch.direction](rng, b"m%d" % index) + probe
            batch.raw[index] = data
            reader = strict_http2.Reader()
            reader.feed(data)
            sent = {number: stream for number, stream in reader.streams.items() if stream.message is not None}
            batch.sent += [(index, stream.message) for stream in sent.values()]
            methods = {number: stream.message.method if stream.message else None for number, stream in reader.streams.items()}
            expected = {number for number, stream in sent.items() if stream.message.complete and not stream.reset}
            client = RawHttp2(mutate.pieces(rng, data), methods, expected, reader.window < _ROOMY)
            clients.append((index, sent, client))
            await loop.create_connection(lambda client=client: client, "127.0.0.1", port)
        late = await self._finish(batch, [client for _, _, client in clients])
        for index, sent, client in clients:
            evidence = [("sent", batch.raw[index]), ("client received", bytes(client.data))]
            if client in late:
                batch.find("unanswered", index, f"streams {client.expected} are not over", *evidence)
            if client.reader.fault:
                batch.find("split", index, f"the client got what is no response: {client.reader.fault}", *evidence)
            for number, stream in client.reader.streams.items():
                if stream.malformed:
                    batch.find("split", index, f"malformed response: {stream.malformed}", *evidence)
                if stream.message is not None:
                    self._check_echo(batch, index, sent[number].message if number in sent else None, stream.message, evidence)

    def _check_recordings(self, batch: Batch) -> None:
        """Every request that a backend got is one that a client sent, and each only once."""
        sent: dict[tuple[bytes, bytes], list[tuple[int | None, Request]]] = {}
        for index, request in batch.sent:
            sent.setdefault((request.method, request.target), []).append((index, request))
        passed = set()
        for recording in batch.server.take():
            self._check_parsers(batch, recording)
            reading = recording.reading
            for seen in [*reading.messages, *([reading.partial] if reading.partial else [])]:
                if seen.target == _ROUND_TRIP and not seen.body:
                    continue
                candidates = sent.get((seen.method, seen.target), [])
                problems = [(request_problem(request, seen), number) for number, (_, request) in enumerate(candidates)]
                match = next((number for problem, number in problems if problem is None), None)
                if match is not None:
                    passed.add(candidates.pop(match)[0])
                    continue
                why = problems[0][0] if problems else "no client's bytes contain it, or not so often"
                index = self._index_of(batch, [seen.target, seen.body, *(value for _, value in seen.fields)])
                evidence = [("sent", batch.raw[index])] if index in batch.raw else []
                whole = "" if seen.complete else "the beginning of "
                text = f"the backend got {whole}{seen.method!r} {seen.target[:100]!r}: {why}"
                batch.find("smuggled", index, text, *evidence, ("backend received", recording.raw))
        batch.tally.passed += len([index for index in passed if index is not None])

    def _check_parsers(self, batch: Batch, recording: Recording) -> None:
        problem = recording.disagreement or recording.reading.fault
        if problem:
            index = self._index_of(batch, [recording.raw])
            evidence = [("sent", batch.raw[index])] if index in batch.raw else []
            batch.find("ambiguous", index, f"to the backend: {problem}", *evidence, ("backend received", recording.raw))

    def _index_of(self, batch: Batch, texts: list[bytes]) -> int | None:
        found = next((match for text in texts if (match := _TAG.search(text))), None)
        return int(found[1]) if found and int(found[1]) in batch.indices else None

    # Responses.

    def _clean_requests(self, batch: Batch, index: int) -> list[Request]:
        """The request that gets the mutated response, and the probe behind it."""
        method = _METHODS[index % len(_METHODS)]
        tag = b"m%d" % index
        body = tag * 3 if method == b"POST" else b""
        return [_get(b"/f/" + tag, (b"x-id", tag), method=method, body=body), _get(b"/p/%d" % index)]

    async def _http1_clients(self, batch: Batch, port: int) -> list[Callable[[], None]]:
        loop = asyncio.get_running_loop()
        clients = []
        for index in batch.indices:
            requests = self._clean_requests(batch, index)
            client = Http1([b"".join(map(_raw, requests))], [request.method for request in requests])
            clients.append((index, requests, client))
            await loop.create_connection(lambda client=client: client, "127.0.0.1", port)
        late = await self._finish(batch, [client for _, _, client in clients])
        return [
            lambda index=index, requests=requests, client=client: self._check_http1_client(
                batch, index, requests, client, client in late
            )
            for index, requests, client in clients
        ]

    def _check_http1_client(self, batch: Batch, index: int, requests: list[Request], client: Http1, late: bool) -> None:
        answers = client.reading()
        evidence = self._evidence(batch, index, bytes(client.data))
        if late:
            batch.find("unanswered", index, "neither answered nor closed", *evidence)
        differs = disagreement(answers, client.second_reading(), "response")
        if differs:
            batch.find("ambiguous", index, f"to the client: {differs}", *evidence)
        if answers.fault:
            batch.find("split", index, f"the client got what is no response: {answers.fault}", *evidence)
        got = [*answers.messages, *([answers.partial] if answers.partial else [])]
        if len(got) > 2 and not is_own(got[2]):
            batch.find("split", index, f"a response to no request: {got[2]}", *evidence)
        if got:
            self._check_mutated(batch, index, requests[0].method, got[0], evidence)
        if len(got) > 1:
            self._check_probe(batch, index, requests[1], got[1], evidence)

    async def _http2_clients(self, batch: Batch, port: int) -> list[Callable[[], None]]:
        indices = {}
        requests = []
        for index in batch.indices:
            pair = self._clean_requests(batch, index)
            indices |= {2 * len(requests) + 1: (index, 0), 2 * len(requests) + 3: (index, 1)}
            requests += pair
        client = CleanHttp2(requests)
        await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port)
        late = bool(await self._finish(batch, [client]))

        def check() -> None:
            everything = ("client received", bytes(client.data))
            if client.reader.fault or client.theirs.fault:
                text = f"to the client: {client.reader.fault!r} or {client.theirs.fault!r}"
                batch.find("ambiguous", None, text, everything)
            for number, (index, place) in indices.items():
                stream = client.reader.streams.get(number)
                evidence = self._evidence(batch, index, bytes(client.data))
                is_over = number in client.reader.resets or (stream is not None and stream.ended)
                if late and not is_over:
                    batch.find("unanswered", index, f"stream {number} is not over", *evidence)
                if stream is None:
                    continue
                if stream.malformed:
                    batch.find("split", index, f"malformed response: {stream.malformed}", *evidence)
                if stream.message is None:
                    continue
                theirs = client.theirs.messages.get(number)
                differs = "missing" if theirs is None else disagreement(*map(_reading, (stream.message, theirs)), "response")
                if differs:
                    batch.find("ambiguous", index, f"to the client: {differs}", *evidence)
                if place == 0:
                    self._check_mutated(batch, index, client.streams[number].method, stream.message, evidence)
                else:
                    self._check_probe(batch, index, client.streams[number], stream.message, evidence)

        return [check]

    def _evidence(self, batch: Batch, index: int, received: bytes) -> list[tuple[str, bytes]]:
        sent = batch.server.answers.sent.get(b"/f/m%d" % index, [])
        return [*((f"backend sent ({one.note})", one.raw) for one in sent), ("client received", received)]

    def _check_mutated(self, batch: Batch, index: int, method: bytes, got: Response, evidence: list) -> None:
        sent = batch.server.answers.sent.get(b"/f/m%d" % index, [])
        bodiless = method == b"HEAD" or got.status in (204, 304)
        problems = [response_problem(one.response, got, bodiless) for one in sent]
        if None in problems:
            batch.tally.passed += 1
        elif is_own(got):
            batch.tally.counts[f"own {got.status}"] += 1
        elif got.get(ECHO) is not None:
            batch.find("crossed", index, f"got the answer to another request: {got}", *evidence)
        else:
            batch.find("split", index, problems[0] if problems else f"a response of nobody: {got}", *evidence)

    def _check_probe(self, batch: Batch, index: int | None, probe: Request, got: Response | None, evidence: list) -> None:
        """A probe gets its own answer. Behind mutated responses its backend connection may end, which the proxy may tell."""
        if got is not None and got.get(ECHO) == echo(probe) and (got.body == echo_body(probe) or not got.complete):
            return
        # On a connection of HTTP/2 a mutated response may name the stream of the probe: then it is the answer.
        sent = batch.server.answers.sent.get(probe.target, [])
        if got is not None and any(response_problem(one.response, got, got.status in (204, 304)) is None for one in sent):
            return
        behind_responses = batch.direction.endswith("responses")
        if behind_responses and (got is None or is_own(got)):
            batch.tally.counts["lost probes"] += 1
            return
        kind = "smuggled" if got is None or is_own(got) else "crossed"
        batch.find(kind, index, f"the probe {probe.target!r} got {got}", *evidence)

    # Bystanders.

    async def _round_trip(self, backend: str) -> None:
        """One request through the proxy, whatever its answer is: to the other backend, since one to the backend that holds a
        connection could wait on just that connection."""
        loop = asyncio.get_running_loop()
        if backend not in self._round_trips or self._round_trips[backend].closed:
            _, self._round_trips[backend] = await loop.create_connection(Bystander, "127.0.0.1", self.ports[backend])
        await asyncio.wait([self._round_trips[backend].ask(_raw(_get(_ROUND_TRIP)))], timeout=self.patience)

    async def _bystanders_ask(self, batch: Batch, port: int) -> None:
        """As many probes at once as there were messages, so that they use all backend connections that are left."""
        loop = asyncio.get_running_loop()
        mine = [one for one in self._bystanders.get(port, []) if not one.closed]
        while len(mine) < len(batch.indices):
            _, bystander = await loop.create_connection(Bystander, "127.0.0.1", port)
            mine.append(bystander)
        self._bystanders[port] = mine
        asked = []
        batch.sent += [(None, probe) for probe in self._late]
        for bystander in mine[: len(batch.indices)]:
            self._asked += 1
            probe = _get(b"/o/%d" % self._asked)
            batch.sent.append((None, probe))
            asked.append((probe, bystander, bystander.ask(_raw(probe))))
        await asyncio.wait([answer for _, _, answer in asked], timeout=self.patience)
        if batch.direction.endswith("responses"):
            # What the backend sent on which stream is known then.
            batch.server.take()
        for probe, bystander, answer in asked:
            if answer.done():
                self._check_probe(batch, None, probe, answer.result(), [])
            else:
                bystander.transport.abort()
                self._late.append(probe)
                batch.find("unanswered", None, f"the probe {probe.target!r} of a bystander")


def _reading(message: Response) -> strict_http1.Reading:
    return strict_http1.Reading([message])
