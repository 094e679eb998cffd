"""The second opinion: h11 and h2 over the bytes that a proxy wrote.

Harmless differences, which are evened out here and count for nothing:

- h11 shows targets as sent; so does our parser for what a proxy writes, which is in origin form.
- h11 does not decide which host a request is for; that is no part of the comparison.
- h2 joins the pieces of a cookie and puts the result last; so fields are compared by name (`compare.disagreement`).
- h11 calls the end of a connection within a message a fault; for our parser the message is partial.
"""

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import h11

from .message import Reading, Request, Response

_LARGE = 1 << 20


def _lower(fields: object) -> list[tuple[bytes, bytes]]:
    return [(bytes(name).lower(), bytes(value)) for name, value in fields]


def read_requests(data: bytes) -> Reading:
    """All requests, as a server that uses h11 takes them."""
    reading = Reading()
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGE)
    if data:
        connection.receive_data(data)
    request = None
    try:
        while True:
            event = connection.next_event()
            if event in (h11.NEED_DATA, h11.PAUSED) and not isinstance(event, h11.Event):
                if event is h11.NEED_DATA:
                    break
                # A server answers before it reads on.
                if not _answer(connection):
                    break
            elif isinstance(event, h11.Request):
                fields = _lower(event.headers)
                host = next((value for name, value in fields if name == b"host"), None)
                request = Request(event.method, event.target, host, fields)
            elif isinstance(event, h11.Data):
                request.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                request.trailers, request.complete = _lower(event.headers), True
                reading.messages.append(request)
                request = None
                if not _answer(connection):
                    break
            else:
                break
    except h11.RemoteProtocolError as problem:
        reading.fault = str(problem)
    reading.partial = request
    return reading


def _answer(connection: h11.Connection) -> bool:
    if connection.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY):
        connection.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
        connection.send(h11.EndOfMessage())
    if (connection.our_state, connection.their_state) != (h11.DONE, h11.DONE):
        return False
    connection.start_next_cycle()
    return True


def read_responses(data: bytes, methods: list[bytes], eof: bool) -> Reading:
    """The responses to requests with these methods, as a client that uses h11 takes them."""
    reading = Reading(rest=data)
    for method in methods:
        if not reading.rest:
            break
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LARGE)
        connection.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"a")]))
        connection.send(h11.EndOfMessage())
        connection.receive_data(reading.rest)
        if eof:
            connection.receive_data(b"")
        response, interim = None, []
        try:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    break
                if isinstance(event, h11.InformationalResponse):
                    interim.append((event.status_code, _lower(event.headers)))
                elif isinstance(event, h11.Response):
                    response = Response(event.status_code, _lower(event.headers), interim=interim)
                elif isinstance(event, h11.Data):
                    response.body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    response.trailers, response.complete = _lower(event.headers), True
                    break
                else:
                    break
        except h11.RemoteProtocolError as problem:
            # The end of a connection within a message is no fault of the bytes.
            reading.fault = None if eof else str(problem)
        if response is None or not response.complete:
            reading.partial = response
            break
        reading.messages.append(response)
        reading.rest = connection.trailing_data[0]
    return reading


class Http2:
    """One side of a connection by h2: `server` reads requests, a client responses. What h2 would send is thrown away, unless it is
    the client, which sends by it."""

    def __init__(self, server: bool):
        config = h2.config.H2Configuration(client_side=not server, header_encoding=None)
        self.connection = h2.connection.H2Connection(config)
        self.connection.local_settings[h2.settings.SettingCodes.INITIAL_WINDOW_SIZE] = (1 << 31) - 1
        self.connection.local_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 10_000
        self.connection.initiate_connection()
        self.messages: dict[int, Request | Response] = {}
        self.resets: set[int] = set()
        self.fault: str | None = None
        self._interim: dict[int, list] = {}

    def feed(self, data: bytes) -> None:
        if self.fault:
            return
        try:
            for event in self.connection.receive_data(data):
                self._take(event)
        except h2.exceptions.ProtocolError as problem:
            self.fault = repr(problem)

    def forget(self, stream: int) -> None:
        """Answers a stream that is over, which h2 then drops. Not sooner: the proxy may still reset it."""
        message = self.messages.pop(stream, None)
        closed = self.connection.state_machine.state is h2.connection.ConnectionState.CLOSED
        if message is not None and message.complete and stream not in self.resets and not closed:
            self.connection.send_headers(stream, [(b":status", b"200")], end_stream=True)
            self.connection.clear_outbound_data_buffer()

    def _take(self, event: h2.events.Event) -> None:
        stream = getattr(event, "stream_id", None)
        if isinstance(event, h2.events.RequestReceived):
            head = dict(event.headers)
            fields = [(name, value) for name, value in event.headers if not name.startswith(b":")]
            host = head.get(b":authority", next((value for name, value in fields if name == b"host"), None))
            self.messages[stream] = Request(head[b":method"], head[b":path"], host, fields)
        elif isinstance(event, h2.events.InformationalResponseReceived):
            self._interim.setdefault(stream, []).append(
                (int(dict(event.headers)[b":status"]), [field for field in event.headers if field[0] != b":status"])
            )
        elif isinstance(event, h2.events.ResponseReceived):
            fields = [field for field in event.headers if field[0] != b":status"]
            status = int(dict(event.headers)[b":status"])
            self.messages[stream] = Response(status, fields, interim=self._interim.pop(stream, []))
        elif isinstance(event, h2.events.DataReceived):
            self.messages[stream].body += event.data
            if event.flow_controlled_length:
                self.connection.acknowledge_received_data(event.flow_controlled_length, stream)
        elif isinstance(event, h2.events.TrailersReceived):
            self.messages[stream].trailers = list(event.headers)
        elif isinstance(event, h2.events.StreamEnded):
            self.messages[stream].complete = True
        elif isinstance(event, h2.events.StreamReset):
            self.resets.add(stream)
