"""One request and its answer as plain data, played by independent implementations: h11 for HTTP/1.1, h2 for HTTP/2.

A backend looks up by `x-exchange` what it has to answer, and writes down what it was asked; a client plays the other side.
Both cut what they send into segments as the exchange says, so that no boundary of TCP means anything.
"""

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h11

Fields = list[tuple[bytes, bytes]]
ID = b"x-exchange"


@dataclass
class Message:
    """A request or an answer, as it is sent or as it was received."""

    start: tuple[bytes, ...]
    """Method and target, or the status."""
    fields: Fields
    pieces: list[bytes] = field(default_factory=list)
    trailers: Fields = field(default_factory=list)
    interim: list[int] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def ours(self) -> Fields:
        """The fields that the exchange is about, in order; a proxy may add others."""
        return [(name, value) for name, value in self.fields if name.startswith(b"x-e-")]


@dataclass
class Exchange:
    request: Message
    answer: Message
    chunked_request: bool
    answer_framing: str
    """`length`, `chunked`, or `close`; the last two are one in HTTP/2."""
    segments: list[int]

    @property
    def has_body(self) -> bool:
        return self.request.start[0] != b"HEAD" and self.answer.start[0] not in (b"204", b"304")


def send_in_segments(sock: socket.socket, data: bytes, sizes: Iterator[int]) -> None:
    view = memoryview(data)
    while view:
        # Large bodies in more than a few dozen segments only take time.
        size = max(next(sizes), len(data) // 50)
        sock.sendall(view[:size])
        view = view[size:]


def _no_delay(sock: socket.socket) -> socket.socket:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(20)
    return sock


class Backend:
    """Serves exchanges that are put into `planned`; what it got for each is in `received`."""

    def __init__(self, port: int, serve: Callable[["Backend", socket.socket], None]):
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.planned: dict[bytes, Exchange] = {}
        self.received: dict[bytes, Message] = {}
        self.problems: list[str] = []
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._run, args=(_no_delay(sock),), daemon=True).start()

    def _run(self, sock: socket.socket) -> None:
        sock.settimeout(None)
        try:
            self._serve(self, sock)
        except OSError:
            pass
        except (h11.RemoteProtocolError, h2.exceptions.ProtocolError) as problem:
            self.problems.append(repr(problem))
        finally:
            sock.close()

    def take(self, request: Message) -> Exchange | None:
        """Notes what was received and says what to answer; nothing is planned for the proxy's own requests."""
        name = next((value for key, value in request.fields if key == ID), b"")
        if name in self.received:
            self.problems.append(f"{name!r} came twice")
        self.received[name] = request
        return self.planned.get(name)

    def stop(self) -> None:
        self._listener.close()


def serve_http1(backend: Backend, sock: socket.socket) -> None:
    connection = h11.Connection(h11.SERVER)

    def next_event() -> object:
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(sock.recv(1 << 16))
        return event

    while True:
        head = next_event()
        if not isinstance(head, h11.Request):
            return
        request = Message((head.method, head.target), list(head.headers))
        while not isinstance(event := next_event(), h11.EndOfMessage):
            assert isinstance(event, h11.Data), event
            request.pieces.append(bytes(event.data))
        request.trailers = list(event.headers)
        exchange = backend.take(request)
        if exchange is None:
            sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            return
        answer, sizes = exchange.answer, itertools.cycle(exchange.segments)
        out = b"".join(connection.send(h11.InformationalResponse(status_code=code, headers=[])) for code in answer.interim)
        fields = list(answer.fields)
        if exchange.answer_framing == "length":
            # h11 refuses a length beside 204, as it should.
            fields += [] if answer.start[0] == b"204" else [(b"content-length", b"%d" % len(answer.body))]
        elif exchange.answer_framing == "chunked":
            fields += [(b"transfer-encoding", b"chunked")]
        else:
            fields += [(b"connection", b"close")]
        out += connection.send(h11.Response(status_code=int(answer.start[0]), headers=fields))
        if exchange.has_body:
            for piece in answer.pieces:
                out += connection.send(h11.Data(data=piece))
        trailers = answer.trailers if exchange.has_body and exchange.answer_framing == "chunked" else []
        out += connection.send(h11.EndOfMessage(headers=trailers)) or b""
        send_in_segments(sock, out, sizes)
        if connection.our_state is not h11.DONE:
            return
        connection.start_next_cycle()


class _Http2:
    """What both sides of HTTP/2 share: bytes in and out, and bodies within their windows."""

    def __init__(self, sock: socket.socket, client: bool):
        self.sock = sock
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=client, header_encoding=None))
        self.h2.initiate_connection()
        self.events: list[h2.events.Event] = []
        self.sizes: Iterator[int] = itertools.cycle([1 << 20])
        self.flush()

    def flush(self) -> None:
        send_in_segments(self.sock, self.h2.data_to_send(), self.sizes)

    def receive(self) -> None:
        data = self.sock.recv(1 << 16)
        if not data:
            raise ConnectionError("closed")
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.DataReceived) and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self.events.append(event)
        self.flush()

    def next(self) -> h2.events.Event:
        while not self.events:
            self.receive()
        return self.events.pop(0)

    def send_message(self, stream: int, head: Fields, message: Message, with_body: bool, trailers: Fields) -> None:
        pieces = [piece for piece in message.pieces if piece] if with_body else []
        self.h2.send_headers(stream, head, end_stream=not pieces and not trailers)
        for number, piece in enumerate(pieces):
            while piece:
                while not (room := min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)):
                    self.flush()
                    self.receive()
                part, piece = piece[:room], piece[room:]
                self.h2.send_data(stream, part, end_stream=number == len(pieces) - 1 and not piece and not trailers)
        if trailers:
            self.h2.send_headers(stream, trailers, end_stream=True)
        self.flush()


def serve_http2(backend: Backend, sock: socket.socket) -> None:
    peer = _Http2(sock, client=False)
    requests: dict[int, Message] = {}
    while True:
        event = peer.next()
        if isinstance(event, h2.events.RequestReceived):
            head = dict(event.headers)
            fields = [(name, value) for name, value in event.headers if not name.startswith(b":")]
            requests[event.stream_id] = Message((head[b":method"], head[b":path"]), fields)
        elif isinstance(event, h2.events.DataReceived):
            requests[event.stream_id].pieces.append(event.data)
        elif isinstance(event, h2.events.TrailersReceived):
            requests[event.stream_id].trailers = list(event.headers)
        elif isinstance(event, h2.events.ConnectionTerminated):
            return
        elif isinstance(event, h2.events.StreamEnded):
            exchange = backend.take(requests.pop(event.stream_id))
            if exchange is None:
                peer.h2.send_headers(event.stream_id, [(b":status", b"200")], end_stream=True)
                peer.flush()
                continue
            answer = exchange.answer
            peer.sizes = itertools.cycle(exchange.segments)
            for code in answer.interim:
                peer.h2.send_headers(event.stream_id, [(b":status", b"%d" % code)])
            trailers = answer.trailers if exchange.has_body else []
            peer.send_message(
                event.stream_id, [(b":status", answer.start[0]), *answer.fields], answer, exchange.has_body, trailers
            )


def _head(exchange: Exchange, name: bytes) -> Fields:
    return [(ID, name), *exchange.request.fields]


def http1_client(port: int, exchanges: dict[bytes, Exchange]) -> dict[bytes, Message]:
    """All exchanges on one connection, the requests one behind the other without waiting for an answer."""
    out, sizes = b"", itertools.cycle(next(iter(exchanges.values())).segments)
    for name, exchange in exchanges.items():
        writer = h11.Connection(h11.CLIENT)
        request = exchange.request
        fields = [(b"host", b"site.example"), (b"te", b"trailers"), (b"connection", b"te"), *_head(exchange, name)]
        if exchange.chunked_request:
            fields += [(b"transfer-encoding", b"chunked")]
        elif request.body:
            fields += [(b"content-length", b"%d" % len(request.body))]
        out += writer.send(h11.Request(method=request.start[0], target=request.start[1], headers=fields)) or b""
        for piece in request.pieces:
            out += writer.send(h11.Data(data=piece)) or b""
        out += writer.send(h11.EndOfMessage(headers=request.trailers if exchange.chunked_request else [])) or b""

    answers = {}
    with _no_delay(socket.create_connection(("127.0.0.1", port))) as sock:
        # From a thread: a proxy may stop reading requests until its answers are read.
        threading.Thread(target=_send_quietly, args=(sock, out, sizes), daemon=True).start()
        left = b""
        for name, exchange in exchanges.items():
            reader = h11.Connection(h11.CLIENT)
            reader.send(h11.Request(method=exchange.request.start[0], target=b"/", headers=[(b"host", b"a")]))
            reader.send(h11.EndOfMessage())
            if left:  # to h11 no bytes at all are the end of the connection
                reader.receive_data(left)
            answer = Message((), [])
            while True:
                event = reader.next_event()
                if event is h11.NEED_DATA:
                    reader.receive_data(sock.recv(1 << 16))
                elif isinstance(event, h11.InformationalResponse):
                    answer.interim.append(event.status_code)
                elif isinstance(event, h11.Response):
                    answer.start, answer.fields = (b"%d" % event.status_code,), list(event.headers)
                elif isinstance(event, h11.Data):
                    answer.pieces.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    answer.trailers = list(event.headers)
                    break
                else:
                    raise AssertionError(f"{event!r} in the answer to {name!r}")
            left = reader.trailing_data[0]
            answers[name] = answer
    assert not left, f"after the last answer: {left[:100]!r}"
    return answers


def _send_quietly(sock: socket.socket, data: bytes, sizes: Iterator[int]) -> None:
    try:
        send_in_segments(sock, data, sizes)
    except OSError:
        pass  # what is missing is seen where the answers are read


def http2_client(port: int, exchanges: dict[bytes, Exchange]) -> dict[bytes, Message]:
    """All exchanges on one connection, each on a stream of its own, all begun before the first answer is read."""
    with _no_delay(socket.create_connection(("127.0.0.1", port))) as sock:
        peer = _Http2(sock, client=True)
        names: dict[int, bytes] = {}
        answers = {name: Message((), []) for name in exchanges}
        for name, exchange in exchanges.items():
            request = exchange.request
            stream = peer.h2.get_next_available_stream_id()
            names[stream] = name
            head = [(b":method", request.start[0]), (b":scheme", b"http"), (b":authority", b"site.example")]
            head += [(b":path", request.start[1]), (b"te", b"trailers"), *_head(exchange, name)]
            peer.sizes = itertools.cycle(exchange.segments)
            peer.send_message(stream, head, request, True, request.trailers if exchange.chunked_request else [])
        while names:
            event = peer.next()
            answer = answers.get(names.get(getattr(event, "stream_id", 0) or 0, b""))
            if isinstance(event, h2.events.InformationalResponseReceived):
                answer.interim.append(int(dict(event.headers)[b":status"]))
            elif isinstance(event, h2.events.ResponseReceived):
                answer.start = (dict(event.headers)[b":status"],)
                answer.fields = [(key, value) for key, value in event.headers if not key.startswith(b":")]
            elif isinstance(event, h2.events.DataReceived):
                answer.pieces.append(event.data)
            elif isinstance(event, h2.events.TrailersReceived):
                answer.trailers = list(event.headers)
            elif isinstance(event, h2.events.StreamEnded):
                del names[event.stream_id]
            elif isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                raise AssertionError(f"{event!r} for {names}")
        return answers


CLIENTS = {"http1": http1_client, "http2": http2_client}
BACKENDS = {"http1": serve_http1, "http2": serve_http2}
