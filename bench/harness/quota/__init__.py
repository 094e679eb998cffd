"""Quotas over a fleet: real backends and a real quota server, with the use of each customer by its limit."""
