#!/usr/bin/env bash
# `make demo` and `make demo-LANGUAGE`: a first look, without an account and without a network.
#
#     MOCK_SERVICE=… examples/demo.sh [c|cpp|go|python|ruby]
#
# MOCK_SERVICE is the mock of the evaluation service; the library is the one in build/. The example of
# each language is a program `fetch USER_ID [TIMEOUT_MILLIS]`, configured by the environment.
set -euo pipefail
cd "$(dirname "$0")/.."

language=${1:-c}
work=$(mktemp -d)
mock=
trap '[ -z "$mock" ] || kill "$mock" 2>/dev/null || true; rm -rf "$work"' EXIT

# The payload of `demo-nonce`, drawn here: nobody else can have answered with it.
export DEMO_NONCE=${DEMO_NONCE:-$RANDOM$RANDOM}
export EXPERIMENT_API_KEY=demo

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() { step "\$ $*"; "$@"; }
url_of() { sed -E 's/.*"url":"([^"]*)".*/\1/'; }

# The mock says its address when it listens, and then answers orders on its standard input. It ends
# when that does, which is when this script does, in whatever way.
mkfifo "$work/orders" "$work/answers"
"$MOCK_SERVICE" <"$work/orders" >"$work/answers" &
mock=$!
exec 3>"$work/orders" 4<"$work/answers"
read -r line <&4
service=$(url_of <<<"$line")
printf '{"play":%s}\n' "$(cat examples/stalled.json)" >&3
read -r line <&4
stalled=$(url_of <<<"$line")

case $language in
c)
    show ${CC:-cc} -std=c11 -Wall -Wextra examples/c/fetch.c -Iinclude -Lbuild -lexperiment -o "$work/fetch"
    fetch() { LD_LIBRARY_PATH=build "$work/fetch" "$@"; }
    ;;
cpp)
    show ${CXX:-c++} -std=c++17 -Wall -Wextra examples/cpp/fetch.cpp -Iinclude -Ibindings/cpp -Lbuild -lexperiment -o "$work/fetch"
    fetch() { LD_LIBRARY_PATH=build "$work/fetch" "$@"; }
    ;;
go)
    export PKG_CONFIG_PATH=$PWD/build
    show go build -C examples/go -buildvcs=false -o "$work/fetch" .
    fetch() { LD_LIBRARY_PATH=build "$work/fetch" "$@"; }
    ;;
python)
    export EXPERIMENT_LIBRARY=$PWD/build/libexperiment.so
    fetch() { PYTHONPATH=bindings/python/src python3 examples/python/fetch.py "$@"; }
    ;;
ruby)
    export EXPERIMENT_LIBRARY=$PWD/build/libexperiment.so
    fetch() { ruby -Ibindings/ruby/lib examples/ruby/fetch.rb "$@"; }
    ;;
*)
    echo "examples/demo.sh: no example in $language" >&2
    exit 2
    ;;
esac

export EXPERIMENT_SERVER_URL=$service
step "Two users, from the service at $service (demo-nonce is $DEMO_NONCE)"
for user in ada grace; do
    printf '\nfetch %s\n' "$user"
    fetch "$user" | tee "$work/$user"
    grep -qF "$DEMO_NONCE" "$work/$user"
done

export EXPERIMENT_SERVER_URL=$stalled
step "The service stalls; the fetch may take 300 ms"
printf '\nfetch ada 300\n'
if fetch ada 300; then
    echo "a stalled service has answered" >&2
    exit 1
fi
