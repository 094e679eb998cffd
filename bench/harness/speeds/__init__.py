"""Speeds: machines of two speeds behind a proxy, with costs in reference CPU-seconds."""
