# The commands people run here. `just` lists them.

default:
    @just --list

# The release binary, target/release/plimsoll
build:
    cargo build --release

# The binary to deploy, target/optimized/plimsoll: laid out by what it does often; a quarter of an hour
release:
    scripts/release

# Everything, as the CI runs it
test *ARGS:
    scripts/test {{ARGS}}

# The inner loop: format, lints, Rust tests
fast:
    scripts/test --fast

# A whole fleet on this machine, shown live
demo *ARGS:
    cargo run --release -- demo {{ARGS}}

# Every shape of traffic beside nginx, HAProxy and Envoy, and a page with plots; writes bench/results/
bench *ARGS: build
    bench/run {{ARGS}}

# CPU per request beside nginx and HAProxy; writes bench/results/
bench-proxy *ARGS: build
    bench/proxy {{ARGS}}

# Who is served in time under overload, beside nginx, HAProxy and Envoy; writes bench/results/
bench-overload *ARGS: build
    bench/overload {{ARGS}}

# CPU of a request that is turned away; writes bench/results/
bench-rejection *ARGS: build
    bench/rejection {{ARGS}}

# The simulator's predictions beside real runs; writes bench/results/ and docs/predictions.md
bench-predict *ARGS: build
    bench/predict {{ARGS}}

# What attackers cost honest clients; writes bench/results/
bench-abuse *ARGS: build
    bench/abuse {{ARGS}}

# What users notice of a batch job that is many times too large; writes bench/results/
bench-batch *ARGS: build
    bench/batch {{ARGS}}

# Nanoseconds and allocations per pick, for every policy
bench-pick *ARGS:
    bench/pick {{ARGS}}

# Mutated messages through the proxy, and all targets in fuzz/: just fuzz --minutes 30
fuzz *ARGS: build
    scripts/fuzz {{ARGS}}

# .deb, .rpm, container image, man pages and SBOM into target/packages, from the release binary
packages *ARGS: build
    scripts/packages --binary target/release/plimsoll {{ARGS}}

# Licences, sources, bans and advisories of every dependency
audit:
    scripts/audit
