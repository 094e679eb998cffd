"""Differential fuzzing of the proxy: mutated messages, independent parsers on both sides, and probes that show the damage.

Four directions:

- `http1-requests`: an HTTP/1 client sends mutated requests; the backend speaks HTTP/1.
- `http2-requests`: an HTTP/2 client sends mutated frames and header blocks; the backend speaks HTTP/1, for a quarter HTTP/2.
- `http1-responses`: an HTTP/1 backend sends mutated responses; the client speaks HTTP/1, for a quarter HTTP/2.
- `http2-responses`: an HTTP/2 backend sends mutated frames; the client speaks HTTP/1, for half of them HTTP/2.

The properties. *Contains* means: by our strict parser (`strict_http1`, `strict_http2`), over the exact bytes.

- **smuggled**: a backend receives a request that no client's bytes contain, one request more often than it was sent, or a part
  of a request that no client began. Method, target, host, body, fields and trailers count. A proxy may leave fields out; it
  may add only the fields in `compare.ADDED_TO_REQUESTS`.
- **split**: a client receives a response that the backend's bytes do not contain: another status, field, body or boundary, a
  truncated body that looks complete, or more responses than requests. Answers that the proxy gives itself are allowed.
- **crossed**: a response to one request reaches another request. Each response says which request it answers.
- **ambiguous**: two parsers disagree on bytes that the proxy wrote. Our strict parser and a library (h11, h2) read each
  recording; `library` documents the differences that are harmless.
- **unanswered**: a complete request gets neither a response nor the end of its connection within `lane.PATIENCE` seconds.

Behind each mutated message two *probes* follow: clean requests with identifiers of their own. One uses the same client connection;
the other uses another client connection, after the message, and draws from the same pool of backend connections. An answer
to a probe must be exactly its own. Left-over bytes on a backend connection therefore show up as a wrong answer.

A message is a function of (seed, direction, index). `scripts/fuzz --direction D --seed S --only INDEX` replays one and prints the
bytes on all four sides. The modules:

    mutate, requests_http1, responses_http1, messages_http2    what is sent
    strict_http1, strict_http2, library                        how bytes are read
    compare                                                    whether one message explains another
    backends, clients                                          both ends, with recordings
    lane                                                       one proxy, one batch of messages at a time
    run                                                        the command: processes, totals, replay

Stub proxies with deliberate mistakes (`stubs`) have to be found out: `test_differential_fuzz.py` runs them.
"""
