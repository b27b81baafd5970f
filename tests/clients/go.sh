#!/usr/bin/env bash
# Builds the Go package and tests it against a real service. Prints TAP.
#
#   tests/clients/go.sh [BUILD]      TEST_PART: only the cases with this in their names, see script/test -k
set -u
cd "$(dirname "$0")/../.." || exit 2
WEIR_BINARY=$(realpath "${1:-build}")/weir
part=${TEST_PART:-}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

skip() {
  echo "ok - go # SKIP $1"
  exit 0
}

# broken NAME: ends the tests with what a command has said.
broken() {
  echo "not ok - go: $1"
  sed 's/^/# /' "$tmp/output"
  exit 1
}

failed=0
tap() {
  local name=$1
  shift
  if "$@" >"$tmp/output" 2>&1; then
    echo "ok - go: $name"
  else
    echo "not ok - go: $name"
    sed 's/^/# /' "$tmp/output"
    failed=1
  fi
}

# The toolchain that is there, and the modules that go.sum names.
export WEIR_BINARY GOTOOLCHAIN=local GOFLAGS='-mod=readonly -buildvcs=false' GOWORK=off
command -v go >/dev/null || skip 'there is no Go'
cd clients/go || exit 2

# What was fetched once stays, so that this needs no network the next time.
if ! go mod download >"$tmp/output" 2>&1; then
  if grep -qE 'dial tcp|no such host|timeout|connection re' "$tmp/output"; then
    skip 'the Go modules are out of reach'
  fi
  broken 'go mod download'
fi
if [ -z "$part" ]; then
  tap "gofmt $(gofmt -l . | paste -sd ' ')" test -z "$(gofmt -l .)"
  tap 'go vet' go vet ./...
fi

race=
if [ "$(go env CGO_ENABLED)" = 1 ] && command -v "$(go env CC)" >/dev/null; then
  race=-race
fi
# The names of the cases that have the part in them.
names=$(go test $race -list . ./... 2>"$tmp/output" | grep '^Test')
if [ -z "$names" ]; then
  broken 'go test'
fi
names=$(grep -F -- "$part" <<<"$names" | paste -sd '|')
[ -n "$names" ] || exit $failed

status=0
go test $race -count=1 -timeout 300s -v -run "^($names)\$" ./... >"$tmp/output" 2>&1 || status=1
# The results as TAP. What a case has said comes before its result.
awk '
  /^=== RUN/ { next }
  /^--- (PASS|FAIL|SKIP): / {
    name = $3; result = $2
    if (result == "PASS:") print "ok - go: " name
    else if (result == "SKIP:") print "ok - go: " name " # SKIP"
    else { print "not ok - go: " name; print "# repeat: script/test clients -k " name }
    next
  }
  /^(PASS|FAIL|ok|exit)/ { next }
  { print "# " $0 }' "$tmp/output"
if [ $status -ne 0 ]; then
  failed=1
  grep -q '^--- FAIL' "$tmp/output" || echo 'not ok - go: builds, and runs to its end'
fi
exit $failed
