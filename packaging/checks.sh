# Sourced by the scripts that check something: `check NAME COMMAND…` runs the command and says how it
# went, `finish` says how many did what, in the form `N passed, N failed`.

passed=0
failed=0

# The command's output is shown only when it fails.
check() {
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then
        passed=$((passed + 1))
        printf 'ok      %s\n' "$name"
    else
        failed=$((failed + 1))
        printf 'FAILED  %s\n' "$name"
        [ -z "$output" ] || printf '%s\n' "$output" | sed 's/^/        /'
    fi
}

# Nothing checked is no success.
finish() {
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

# Whether two texts are equal; what differs, if not.
same() {
    diff <(printf '%s\n' "$1") <(printf '%s\n' "$2")
}
