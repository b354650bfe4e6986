#!/usr/bin/env bash
# Portcullis beside nginx, in one interleaved run on loopback.
#
#   ./benches/load/run.sh [workload…] [--connections 64,256,512] [--seconds 10] [--rounds 5] [--workers 2]
#                         [--peers nginx] [--log on|off] [--binary PATH]
#
# Needs nginx, wrk, openssl and python3 and installs those that are missing (Debian). Builds the release binary first
# unless --binary names one. Prints a table; the same figures, with every round, go to benches/load/results/*.json.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
root=$(readlink -f "$here/../..")

missing=()
for pair in nginx:nginx-light wrk:wrk openssl:openssl python3:python3; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
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

case " $* " in
*' --binary '* | *' --binary='* | *' --servers '* | *' --help '* | *' -h '*) ;;
*)
    (cd "$root" && cargo build --release --locked --bin portcullis)
    target=$(cd "$root" && cargo metadata --format-version 1 --no-deps --locked |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
    set -- "$@" --binary "$target/release/portcullis"
    ;;
esac
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/harness.py" "$@"
