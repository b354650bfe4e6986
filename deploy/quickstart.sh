#!/usr/bin/env bash
# Builds Portcullis and starts it. Usage: ./deploy/quickstart.sh [-c FILE]
#
# Installs what the build needs (Debian or Ubuntu; as root, or with sudo -n), builds the release binary, starts it on
# its embedded quickstart configuration (or on FILE), says what to try, and leaves on Ctrl-C. Asks for nothing.
set -euo pipefail
called_from=$PWD
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

READY_SECONDS=60
say() { printf '%s\n' "$*"; }
stop() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }

config=
case ${1:-} in
'') ;;
-c)
    [ -n "${2:-}" ] || stop '-c wants a file'
    config=$(cd "$called_from" && readlink -e -- "$2") || stop "no such file: $2"
    ;;
*)
    say 'usage: ./deploy/quickstart.sh [-c FILE]'
    [ "$1" = -h ] || [ "$1" = --help ] || exit 2
    exit 0
    ;;
esac

command -v cargo >/dev/null || [ ! -r "${HOME:-}/.cargo/env" ] || . "${HOME:-}/.cargo/env"
command -v cargo >/dev/null || stop 'cargo, the Rust build tool, is missing. Get it from https://rustup.rs, then run this again.'

# BoringSSL is built from source: these are its tools.
missing=()
for pair in cmake:cmake clang:clang g++:g++ pkg-config:pkg-config git:git make:make curl:curl; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null || compgen -G '/usr/lib*/libclang*.so*' >/dev/null ||
    missing+=(libclang-dev)
if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || stop "install first (no apt-get here): ${missing[*]}"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || stop "install first: sudo apt-get install ${missing[*]}"
        as_root=(sudo -n)
    fi
    say "Installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq </dev/null
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null
fi

say 'Building (several minutes the first time)'
PORTCULLIS_REVISION="$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" \
    cargo build --release --locked --bin portcullis
target=$(cargo metadata --format-version 1 --no-deps --locked |
    sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
binary=$target/release/portcullis

# address SECTION: the first `address:` below that key of the effective configuration; wildcards become loopback.
address() {
    "$binary" check -c "$config" --effective 2>/dev/null |
        awk -v section="$1:" '$0 ~ /^[a-z]/ { inside = ($1 == section) }
            inside && match($0, /address: */) { print substr($0, RSTART + RLENGTH); exit }' |
        sed -e "s/[\"']//g" -e 's/^0\.0\.0\.0:/127.0.0.1:/' -e 's/^\[::\]:/[::1]:/'
}
edge=127.0.0.1:7999 admin=127.0.0.1:7998
arguments=(run)
if [ -n "$config" ]; then
    "$binary" check -c "$config" || exit 1
    arguments+=(-c "$config")
    found=$(address listeners) && edge=${found:-$edge}
    found=$(address admin) && admin=${found:-$admin}
fi
if curl -s -o /dev/null --max-time 2 "http://$admin/livez"; then
    stop "something already answers on http://$admin; stop it first"
fi

# In a session of its own, so that Ctrl-C reaches the gateway once: from us.
setsid "$binary" "${arguments[@]}" &
gateway=$!
trap 'kill -TERM "$gateway" 2>/dev/null || true' INT TERM HUP

deadline=$((SECONDS + READY_SECONDS))
until [ "$(curl -s -o /dev/null --max-time 2 -w '%{http_code}' "http://$admin/readyz" || true)" = 200 ]; do
    if ! kill -0 "$gateway" 2>/dev/null; then
        code=0
        wait "$gateway" || code=$?
        exit "$code"
    fi
    if [ "$SECONDS" -ge "$deadline" ]; then
        kill -TERM "$gateway" 2>/dev/null || true
        stop "not ready within $READY_SECONDS s"
    fi
    sleep 0.1
done

cat <<TRY

Portcullis is ready. Try, from another terminal:

  curl -k https://$edge/
  curl http://$edge/
  curl http://$admin/readyz

Ctrl-C stops it.

TRY

# A trapped signal interrupts the first wait; the gateway then drains, and its exit code is ours.
code=0
wait "$gateway" || code=$?
while kill -0 "$gateway" 2>/dev/null; do
    code=0
    wait "$gateway" || code=$?
done
exit "$code"
