"""The part of a Kubernetes API server that serves EndpointSlices: lists in pages, chunked watches, bookmarks and 410.

The forms of answers are those of kube-apiserver: an expired version is a watch with an event of type ERROR, the items of a list have
no kind, and a bookmark is an empty slice with a version. `kubectl` reads them in a test.
"""

import base64
import copy
import json
import socket
import ssl
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .process import free_port, wait_until

GROUP = "/apis/discovery.k8s.io/v1"
LABEL = "kubernetes.io/service-name"
NAMESPACE = "shop"


def slice_of(name: str, addresses: list[str], port: int, service: str = "web", **conditions: bool) -> dict:
    """A slice as the controller of EndpointSlices writes it."""
    given = conditions or {"ready": True, "serving": True, "terminating": False}
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": name,
            "generateName": f"{service}-",
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io", LABEL: service},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Service", "name": service, "uid": "uid", "controller": True, "blockOwnerDeletion": True}
            ],
            "managedFields": [
                {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "discovery.k8s.io/v1",
                 "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:addressType": {}}}
            ],
        },
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": [address],
                "conditions": dict(given),
                "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": f"pod-{address}", "uid": f"pod-{address}"},
                "nodeName": "node-1",
                "zone": "zone-1",
            }
            for address in addresses
        ],
        "ports": [{"name": "metrics", "port": 9090, "protocol": "TCP"}, {"name": "http", "port": port, "protocol": "TCP"}],
    }


def status(code: int, reason: str, message: str) -> dict:
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**head, "message": message, "reason": reason, "code": code}


class Watch:
    """A running watch."""

    def __init__(self, connection: socket.socket, is_bookmarked: bool):
        self.connection, self.is_bookmarked = connection, is_bookmarked
        # The version of the last event or bookmark.
        self.version = 0


class ApiServer:
    """Serves in threads of this process. Its methods change the slices, as controllers do, or its behaviour.

    With `port`, in place of a server that was stopped.
    """

    def __init__(self, context: ssl.SSLContext | None = None, port: int | None = None) -> None:
        self.port = port or free_port()
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.port}"
        # Tokens that are accepted. None: requests need no token, as behind `kubectl proxy`.
        self.tokens: set[str] | None = None
        self.is_forbidden = False
        # The most items of a page, whatever the request says.
        self.page = 500
        # By method and answer, as in "list 200".
        self.answers: list[str] = []
        self.watches: list[Watch] = []
        self._version = 1000
        self._slices: dict[str, dict] = {}
        # Version, type and object of each change; those up to `_compacted` are forgotten.
        self._events: list[tuple[int, str, dict]] = []
        self._compacted = 0
        # The next watch that has an event to send breaks off in the middle of it.
        self._is_cut = False
        self._changed = threading.Condition()
        self._is_stopped = False

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            api = self

            def do_GET(self) -> None:
                try:
                    self.api._get(self)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """A client that ends a connection is no error."""

        self._server = Server(("127.0.0.1", self.port), Handler)
        if context is not None:
            # By each thread for itself, so that one client cannot delay the others.
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self.end_watches()

    def apply(self, *slices: dict) -> None:
        """Adds slices, or changes those of the same names."""
        with self._changed:
            for each in slices:
                name = each["metadata"]["name"]
                self._record("MODIFIED" if name in self._slices else "ADDED", each)
                self._slices[name] = self._events[-1][2]

    def delete(self, name: str) -> None:
        with self._changed:
            self._record("DELETED", self._slices.pop(name))

    def _record(self, kind: str, each: dict) -> None:
        self._version += 1
        each = copy.deepcopy(each)
        each["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((self._version, kind, each))
        self._changed.notify_all()

    def bookmark(self) -> None:
        """Sends the present version to all watches, as the server does every minute."""
        with self._changed:
            # Changes of other objects go on all the time.
            self._version += 7
            self._record_bookmark()

    def _record_bookmark(self) -> None:
        metadata = {"resourceVersion": str(self._version), "creationTimestamp": None}
        empty = {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": metadata}
        self._events.append((self._version, "BOOKMARK", {**empty, "addressType": "", "endpoints": None, "ports": None}))
        self._changed.notify_all()

    def compact(self) -> None:
        """Forgets all versions before the present one."""
        with self._changed:
            self._compacted = self._version

    def end_watches(self) -> None:
        """Breaks all watches off, as a load balancer in between does, or a server that restarts."""
        with self._changed:
            watches, self.watches = self.watches, []
        for watch in watches:
            try:
                watch.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut_next_event(self) -> None:
        """The next event is sent in half, and its connection ends there."""
        with self._changed:
            self._is_cut = True

    def wait_for_watch(self, seconds: float = 15) -> None:
        """Until a client has all changes."""
        done = lambda: any(watch.version >= self._last() for watch in list(self.watches))  # noqa: E731
        wait_until("a watch has all events", done, seconds)

    def count(self, answer: str) -> int:
        return self.answers.count(answer)

    def _last(self) -> int:
        return self._events[-1][0] if self._events else 0

    def _get(self, request: BaseHTTPRequestHandler) -> None:
        target = urllib.parse.urlsplit(request.path)
        query = dict(urllib.parse.parse_qsl(target.query))
        verb = "watch" if query.get("watch") in ("true", "1") else "list"
        if self.tokens is not None:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme != "Bearer" or token not in self.tokens:
                return self._answer(request, verb, 401, status(401, "Unauthorized", "Unauthorized"))
        if (known := self._discovery(target.path)) is not None:
            return self._answer(request, "discovery", 200, known)
        if target.path != f"{GROUP}/namespaces/{NAMESPACE}/endpointslices":
            return self._answer(request, verb, 404, status(404, "NotFound", "the server could not find the requested resource"))
        if self.is_forbidden:
            user = f'User "system:serviceaccount:{NAMESPACE}:default"'
            text = f'endpointslices.discovery.k8s.io is forbidden: {user} cannot {verb} resource "endpointslices" in API group'
            return self._answer(request, verb, 403, status(403, "Forbidden", text))
        selector = dict(part.split("=", 1) for part in query.get("labelSelector", "").split(",") if part)
        if verb == "watch":
            return self._watch(request, query, selector)
        return self._list(request, query, selector)

    def _discovery(self, path: str) -> dict | None:
        """What kubectl asks for before anything else."""
        version = {"groupVersion": "discovery.k8s.io/v1", "version": "v1"}
        group = {"name": "discovery.k8s.io", "versions": [version], "preferredVersion": version}
        verbs = ["get", "list", "watch"]
        names = {"name": "endpointslices", "singularName": "endpointslice", "namespaced": True, "kind": "EndpointSlice", "verbs": verbs}
        return {
            "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]},
            GROUP: {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "discovery.k8s.io/v1", "resources": [names]},
        }.get(path)

    def _answer(self, request: BaseHTTPRequestHandler, verb: str, code: int, body: dict) -> None:
        self.answers.append(f"{verb} {code}")
        encoded = json.dumps(body).encode()
        request.send_response(code)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(encoded)))
        request.end_headers()
        request.wfile.write(encoded)

    def _list(self, request: BaseHTTPRequestHandler, query: dict, selector: dict) -> None:
        with self._changed:
            version, first = self._version, ""
            if token := query.get("continue"):
                state = json.loads(base64.urlsafe_b64decode(token))
                version, first = state["rv"], state["start"]
                if version < self._compacted:
                    expired = "The provided continue parameter is too old to display a consistent list result."
                    return self._answer(request, "list", 410, status(410, "Expired", expired))
            found = sorted((name, each) for name, each in self._slices.items() if name >= first and matches(each, selector))
        size = min(int(query.get("limit", "0")) or self.page, self.page)
        items = [{key: value for key, value in each.items() if key not in ("kind", "apiVersion")} for _, each in found[:size]]
        metadata: dict = {"resourceVersion": str(version)}
        if len(found) > size:
            state = {"v": "meta.k8s.io/v1", "rv": version, "start": found[size][0]}
            metadata["continue"] = base64.urlsafe_b64encode(json.dumps(state).encode()).decode()
        body = {"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "metadata": metadata, "items": items}
        return self._answer(request, "list", 200, body)

    def _watch(self, request: BaseHTTPRequestHandler, query: dict, selector: dict) -> None:
        version = int(query.get("resourceVersion") or "0")
        end = time.monotonic() + int(query.get("timeoutSeconds", "1800"))
        self.answers.append("watch 200")
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.flush()
        watch = Watch(request.connection, query.get("allowWatchBookmarks") in ("true", "1"))
        if version < self._compacted:
            text = f"too old resource version: {version} ({self._compacted})"
            self.answers[-1] = "watch 410"
            send(request, "ERROR", status(410, "Expired", text))
            request.wfile.write(b"0\r\n\r\n")
            return
        watch.version = version
        with self._changed:
            self.watches.append(watch)
        while True:
            with self._changed:
                new = lambda: self._is_stopped or self._last() > watch.version  # noqa: E731
                self._changed.wait_for(new, max(0, end - time.monotonic()))
                if self._is_stopped or watch not in self.watches:
                    request.close_connection = True
                    return
                events = [event for event in self._events if event[0] > watch.version]
                is_cut = self._is_cut and bool(events)
                self._is_cut = self._is_cut and not is_cut
            for number, kind, each in events:
                if is_cut:
                    line = json.dumps({"type": kind, "object": each}).encode()
                    request.wfile.write(b"%x\r\n%s" % (len(line) + 1, line[: len(line) // 2]))
                    request.wfile.flush()
                    self.end_watches()
                    request.close_connection = True
                    return
                if kind == "BOOKMARK" and watch.is_bookmarked or kind != "BOOKMARK" and matches(each, selector):
                    send(request, kind, each)
                watch.version = number
            if time.monotonic() >= end:
                with self._changed:
                    self.watches.remove(watch)
                request.wfile.write(b"0\r\n\r\n")
                return


def matches(each: dict, selector: dict) -> bool:
    return selector.items() <= each["metadata"]["labels"].items()


def send(request: BaseHTTPRequestHandler, kind: str, each: dict) -> None:
    """An event as a line in a chunk of its own."""
    line = json.dumps({"type": kind, "object": each}).encode() + b"\n"
    request.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
    request.wfile.flush()
