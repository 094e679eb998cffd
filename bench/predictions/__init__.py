"""Set-ups that are predicted by the simulator, then run with real processes and emulated backends.

Independent of the package `harness` beside it: the end-to-end tests, which have one of that name, import this too.
"""
