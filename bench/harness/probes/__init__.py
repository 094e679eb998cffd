"""Probes by UDP: lame ducks, the cost of idle backends, and networks that drop UDP."""
