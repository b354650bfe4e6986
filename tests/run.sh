#!/usr/bin/env bash
# The one gate: everything a change must pass, in the order that fails soonest. Usage: ./tests/run.sh
#
# Installs missing Debian packages by itself (as root, or with sudo -n), works from any directory and from a fresh
# clone, and ends with the test runner's own summary. Exit code 0 only when every step passed.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

started=$SECONDS
scratch=$(mktemp -d "${TMPDIR:-/tmp}/portcullis-gate.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# step NAME COMMAND…: runs it, says how long it took; the first failure ends the gate.
step() {
    local name=$1 from=$SECONDS code=0
    shift
    printf '== %s\n' "$name"
    # A subshell with its own `set -e`: `||` would switch it off inside functions.
    set +e
    (set -e; "$@")
    code=$?
    set -e
    if [ "$code" -ne 0 ]; then
        printf '== FAILED: %s (exit %s after %s s)\n' "$name" "$code" "$((SECONDS - from))" >&2
        exit "$code"
    fi
    printf '== %s: %s s\n' "$name" "$((SECONDS - from))"
}

# Packages the build and the tests use: boringssl needs the first six, the tests drive the others as real programs.
packages() {
    # Where Debian puts daemons, which is not in everybody's PATH.
    local wanted=() pair PATH="$PATH:/usr/sbin"
    for pair in cmake:cmake clang:clang g++:g++ pkg-config:pkg-config git:git make:make \
        curl:curl openssl:openssl python3:python3 promtool:prometheus strace:strace nghttp:nghttp2-client \
        varnishtest:varnish h2load:nghttp2-client nginx:nginx-light wrk:wrk dnsmasq:dnsmasq-base; do
        command -v "${pair%%:*}" >/dev/null || wanted+=("${pair##*:}")
    done
    compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null || wanted+=(libclang-dev)
    # Debian keeps what a venv needs in a package of its own.
    python3 -c 'import ensurepip, venv' 2>/dev/null || wanted+=(python3-venv)
    [ ${#wanted[@]} -eq 0 ] && return 0
    echo "installing ${wanted[*]}"
    install_packages "${wanted[@]}"
}

# Debian starts the daemon of a package it installs; policy-rc.d is the documented way to say no.
install_packages() {
    local as_root=() policy=/usr/sbin/policy-rc.d placed=no code=0
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || { echo "not root and no password-less sudo; install: $*" >&2; return 1; }
        as_root=(sudo -n)
    fi
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
        "${as_root[@]}" chmod 755 "$policy"
        placed=yes
    fi
    {
        "${as_root[@]}" apt-get update -qq &&
            "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
                apt-get install -y -qq --no-install-recommends "$@"
    } </dev/null >"$scratch/apt.log" 2>&1 || code=$?
    [ "$placed" = no ] || "${as_root[@]}" rm -f "$policy"
    [ "$code" -eq 0 ] || tail -n 20 "$scratch/apt.log" >&2
    return "$code"
}

# Rust's formatter and linter, which the smallest installation leaves out.
rust_components() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return 0
    command -v rustup >/dev/null || { echo 'cargo fmt and cargo clippy are missing' >&2; return 1; }
    rustup component add rustfmt clippy
}

# Programs from Python's registry, in a folder of their own that is kept until the list changes.
tools="$PWD/target/gate-tools"
python_tools() {
    cmp -s tests/gate/tools.txt "$tools/installed.txt" && return 0
    rm -rf "$tools"
    python3 -m venv "$tools"
    "$tools/bin/python" -m pip install --quiet --disable-pip-version-check -r tests/gate/tools.txt
    cp tests/gate/tools.txt "$tools/installed.txt"
}

shell_scripts() {
    local file
    while IFS= read -r file; do
        [ -f "$file" ] && head -n 1 "$file" | grep -q '^#!.*sh' || continue
        bash -n "$file"
    done < <(find .ci deploy benches tests -type f \( -name '*.sh' -o -path '.ci/run' -o -name portcullis-reload \))
}

load_harness() {
    PYTHONDONTWRITEBYTECODE=1 python3 -W error -m unittest discover -q -s benches/load -p 'test_*.py'
}

# One short measurement of every kind, with unoptimised binaries: the figures mean nothing, that they come does.
load_smoke() {
    local binaries
    cargo build --quiet --locked --bin portcullis --bin floor
    binaries=$(cargo metadata --format-version 1 --no-deps --locked |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/debug
    if ! ./benches/load/run.sh W0.off W0.latency W1 W3.resumed-ecdsa W4.proxied W5 W6.up-64k W6.websocket W7.reload W8 \
        --smoke --connections 16 --seconds 1 --minutes 0.05 --rounds 1 --cooldown 0 --peers nginx \
        --binary "$binaries/portcullis" --floor "$binaries/floor" --output "$scratch/load" >"$scratch/load.log" 2>&1; then
        tail -n 60 "$scratch/load.log" >&2
        return 1
    fi
    for picture in "$scratch"/load/*.svg; do
        python3 -c 'import sys, xml.etree.ElementTree as tree; tree.parse(sys.argv[1])' "$picture"
    done
}

prometheus_files() {
    promtool check rules deploy/prometheus/alerts.yml
    promtool check config deploy/prometheus/prometheus.yml
    promtool test rules deploy/prometheus/alerts_test.yml
    python3 -m json.tool deploy/grafana/portcullis.json >/dev/null
}

# A dashboard or an alert on a metric nobody writes never fires: every name must occur in the source.
metric_names() {
    local name base missing=0
    while IFS= read -r name; do
        base=$(sed -E 's/_(bucket|count|sum)$//' <<<"$name")
        grep -rqE "\b($name|$base)\b" src/telemetry && continue
        echo "no such metric in src/telemetry: $name" >&2
        missing=1
    done < <(grep -rhoE '\bportcullis_(http|upstream|access|rejections|connections|tls|certificate|config|build)_[a-z_]*[a-z]\b' \
        deploy docs/operations.md | sort -u)
    return "$missing"
}

# Everything an operator may copy: conf/, the README's YAML, the Kubernetes ConfigMap.
configuration_files() {
    local binary file failed=0
    cargo build --quiet --locked --bin portcullis
    binary=$(cargo metadata --format-version 1 --no-deps --locked |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/debug/portcullis
    PYTHONDONTWRITEBYTECODE=1 python3 tests/gate/configurations.py "$scratch/conf"
    while IFS= read -r file; do
        if ! "$binary" check -c "$file" >"$scratch/check.log" 2>&1; then
            echo "refused: ${file#"$scratch"/}" >&2
            cat "$scratch/check.log" >&2
            failed=1
        fi
    done < <(find "$scratch/conf" -type f \( -name '*.yaml' -o -name '*.yml' \) | sort)
    return "$failed"
}

supply_chain() {
    PATH="$tools/bin:$PATH" cargo deny --locked check licenses bans sources
}

# Checked, not built: nothing is linked, so no libfuzzer has to be compiled for it.
fuzz_targets() {
    CUSTOM_LIBFUZZER_PATH=/nonexistent/libfuzzer.a cargo clippy --manifest-path tests/fuzz/Cargo.toml \
        --target-dir "${CARGO_TARGET_DIR:-target}/fuzz" --locked --quiet -- -D warnings
    rustfmt --edition 2024 --check tests/fuzz/slice.rs tests/fuzz/fuzz_targets/*.rs
}

documentation() {
    RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --locked --quiet
}

command -v cargo >/dev/null || { echo 'cargo is missing: see https://rustup.rs' >&2; exit 1; }
step 'packages' packages
step 'rust components' rust_components
step 'python tools' python_tools
export PORTCULLIS_TEST_TOOLS=$tools
step 'shell scripts' shell_scripts
step 'load harness' load_harness
step 'prometheus rules, grafana dashboard' prometheus_files
step 'metric names' metric_names
step 'format' cargo fmt --check
step 'lint' cargo clippy --all-targets --locked --quiet -- -D warnings
step 'documentation' documentation
step 'fuzz targets' fuzz_targets
step 'configuration files' configuration_files
step 'load harness, a minute of everything' load_smoke
step 'licences, bans, sources' supply_chain
step 'examples in the documentation' cargo test --doc --locked --quiet

# Last, so that the output ends with the runner's summary. Both also run every criterion bench once, unmeasured.
printf '== tests (%s s so far)\n' "$((SECONDS - started))"
if command -v cargo-nextest >/dev/null; then
    cargo nextest run --all-targets --locked --no-fail-fast
else
    cargo test --benches --locked --quiet
    cargo test --lib --bins --tests --locked --no-fail-fast
fi
