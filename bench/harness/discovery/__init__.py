"""Discovery: backends that come and go, and a DNS server that gives wrong answers."""
