"""Live probes of the policy `prequal`: many proxies that send rarely to each backend, and one busy proxy."""
