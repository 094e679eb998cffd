"""What the end-to-end tests share: real processes on free ports, raw HTTP/1, gRPC, and the parts of a fleet."""
