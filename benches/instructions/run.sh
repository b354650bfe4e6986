#!/usr/bin/env bash
# Instructions a request, ours and nginx's: what a change costs, without noise.
#
#   ./benches/instructions/run.sh [case…] [--binary PATH] [--requests N] [--no-nginx] [--json FILE]
#
# `--help` lists the cases. Needs valgrind, nginx, h2load, openssl and python3 (Debian: valgrind nginx-light
# nghttp2-client openssl python3). Builds the release binary first unless --binary names one.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
root=$(readlink -f "$here/../..")
# Where Debian puts daemons, which is not in everybody's PATH.
export PATH="$PATH:/usr/sbin" PYTHONDONTWRITEBYTECODE=1

case " $* " in
*' --binary '* | *' --binary='* | *' --help '* | *' -h '*) ;;
*)
    (cd "$root" && cargo build --release --locked --bin portcullis)
    target=$(cd "$root" && cargo metadata --format-version 1 --no-deps --locked |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
    set -- "$@" --binary "$target/release/portcullis"
    ;;
esac
exec python3 "$here/instructions.py" "$@"
