#!/usr/bin/env bash
# Compiles the examples against the library in build/ in each way that the pages name, and runs them
# and the demo. MOCK_SERVICE is the mock of the evaluation service.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/checks.sh

out=$PWD/build/examples
warnings='-Wall -Wextra -Wpedantic -Werror'
valgrind='valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect,possible'
mkdir -p "$out"
: "${MOCK_SERVICE:?the mock service to test against}"
export MOCK_SERVICE EXPERIMENT_API_KEY=key

compile() { # COMPILER STANDARD SOURCE PROGRAM
    "$1" -std="$2" $warnings -g -pthread "$3" -Iinclude -Lbuild -lexperiment -Wl,-rpath,"$PWD/build" -o "$4"
}

for source in examples/c/*.c; do
    program=$out/$(basename "$source" .c)
    check "$source compiles with clang" compile clang c11 "$source" "$program"
    check "$source compiles with gcc" compile gcc c11 "$source" "$program"
done

pkg_config_build() {
    gcc -std=c11 $warnings examples/c/fetch.c -o "$out/fetch-pkg-config" \
        $(PKG_CONFIG_PATH=build pkg-config --cflags --libs experiment) -Wl,-rpath,"$PWD/build"
}
static_build() {
    export PKG_CONFIG_PATH=build
    gcc -std=c11 $warnings examples/c/fetch.c -o "$out/fetch-static" \
        $(pkg-config --cflags experiment) $(pkg-config --variable=archive experiment)
}
readme_program() {
    sed -n '/^```c$/,/^```$/{/^```/!p}' README.md >"$out/readme.c"
    grep -q exp_fetch_v2 "$out/readme.c" && compile gcc c11 "$out/readme.c" "$out/readme"
}
check "README's program compiles" readme_program
check "examples/c/fetch.c compiles by pkg-config" pkg_config_build
check "examples/c/fetch.c compiles with the archive" static_build

# The mock says its address in one line, and ends when its input does.
with_mock() { # SCRIPT COMMAND…: runs the command against the mock
    local script=$1 line mock status=0
    shift
    coproc MOCK { exec "$MOCK_SERVICE" --script "$script" 2>/dev/null; }
    mock=$MOCK_PID
    read -r line <&"${MOCK[0]}"
    EXPERIMENT_SERVER_URL=$(sed -E 's/.*"url":"([^"]*)".*/\1/' <<<"$line") "$@" || status=$?
    kill "$mock"
    wait "$mock" 2>/dev/null || true
    return "$status"
}
says() { # TEXT COMMAND…: the command ends well and its output has the text
    local text=$1 output
    shift
    output=$("$@" 2>&1) && grep -F -e "$text" <<<"$output" && return
    printf '%s\n' "$output"
    return 1
}
fails_with() { # STATUS TEXT COMMAND…
    local wanted=$1 text=$2 output status=0
    shift 2
    output=$("$@" 2>&1) || status=$?
    printf '%s\n(exit status %d)\n' "$output" "$status"
    [ "$status" = "$wanted" ] && grep -qF -e "$text" <<<"$output"
}
echo '{}' >"$out/service.json"
for program in fetch fetch-static fetch-pkg-config; do
    check "$program fetches" with_mock "$out/service.json" says demo-nonce "$out/$program" somebody
done
check "fetch leaks nothing when it fetches" \
    with_mock "$out/service.json" says demo-nonce $valgrind "$out/fetch" somebody
check "fetch leaks nothing when it times out" \
    with_mock examples/stalled.json fails_with 1 EXP_ERR_TIMEOUT $valgrind "$out/fetch" somebody 300
check "epoll fetches for each of many users, and leaks nothing" \
    with_mock "$out/service.json" says '"demo-nonce":{"key":"on"' $valgrind "$out/epoll" {1..40}
check "epoll gives up on a service that stalls" \
    with_mock examples/stalled.json fails_with 1 EXP_ERR_TIMEOUT "$out/epoll" one another
check "fetch says what is wrong with its setting" \
    with_mock "$out/service.json" fails_with 1 EXP_ERR_INVALID_ARGUMENT $valgrind "$out/fetch" somebody 0
check "the demo shows the number it drew" says 770077 env DEMO_NONCE=770077 examples/demo.sh
finish
