#!/usr/bin/env bash
# Packs the Node package, and tests what is in it against a real service. Prints TAP.
#
#   tests/clients/node.sh [BUILD]      TEST_PART: only the cases with this in their names, see script/test -k
#
# What the tests need from the registry stays in BUILD/node, so that a second run needs no network.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${1:-build}")
part=${TEST_PART:-}
pattern=$(sed 's|[][\\.*^$+?(){}/\|]|\\&|g' <<<"$part")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

skip() {
  echo "ok - node # SKIP $1"
  exit 0
}

command -v node >/dev/null && command -v npm >/dev/null || skip 'not there: nodejs, npm'

failed=0
tap() {
  local name=$1
  shift
  if "$@" >"$tmp/output" 2>&1; then
    [ -n "$part" ] || echo "ok - node: $name"
    return 0
  fi
  echo "not ok - node: $name"
  sed 's/^/# /' "$tmp/output"
  failed=1
  return 1
}

quiet_npm() {
  npm --no-audit --no-fund --no-update-notifier --loglevel error "$@"
}

# The modules are whole when the mark is there.
modules() {
  local folder=$build/node mark
  mark=$folder/$(cat clients/node/package.json clients/node/package-lock.json | sha256sum | cut -c1-16).done
  [ ! -e "$mark" ] || return 0
  rm -rf "$folder" && mkdir -p "$folder" &&
    cp clients/node/package.json clients/node/package-lock.json "$folder" &&
    quiet_npm --prefix "$folder" ci --ignore-scripts && touch "$mark"
}

# A folder as users have it: the package as it is published, and the frameworks around it.
install() {
  mkdir -p "$tmp/app/node_modules/weir-client" && ln -s "$build/node/node_modules" "$tmp/node_modules" &&
    cp -r clients/node/test "$tmp/app/test" && cp docs/node.md "$tmp/node.md" &&
    quiet_npm pack ./clients/node --ignore-scripts --pack-destination "$tmp" &&
    tar -xzf "$tmp"/weir-client-*.tgz -C "$tmp/app/node_modules/weir-client" --strip-components 1
}

# The command of docs/node.md, in a copy of the tree.
as_the_page_says() {
  local command
  command=$(grep -m 1 'npm install --prefix' docs/node.md) && mkdir -p "$tmp/tree/clients" && cp -r clients/node "$tmp/tree/clients" &&
    (cd "$tmp/tree" && npm_config_offline=true bash -ec "$command" && cd ocr && node -e 'require("weir-client").Weir.connect("redis://127.0.0.1:6380")')
}

no_registry_is_named() {
  ! grep -nE '"resolved"|https?://registry' clients/node/package-lock.json
}

# One file as TAP, without the cases that -k leaves out.
run() {
  local file=$1 name
  name=$(basename "$file" .test.js)
  node --test-reporter=tap ${part:+--test-name-pattern="/$pattern/i"} "$file" >"$tmp/$name.tap" 2>"$tmp/$name.errors"
  echo $? >"$tmp/$name.status"
}

report() {
  local name=$1 status
  status=$(cat "$tmp/$name.status")
  awk -v suite="$name" '
    / # SKIP test name does not match/ { next }
    /^(not )?ok [0-9]+ / {
      bad = /^not/
      sub(/^(not )?ok [0-9]+ - /, "")
      title = $0
      print (bad ? "not ok" : "ok") " - node: " suite ": " title
      if (bad) print "# repeat: script/test clients -k \"" title "\""
      next
    }
    bad && /^ / { print "#" $0 }
    /^[^ ]/ { bad = 0 }' "$tmp/$name.tap"
  [ "$status" -eq 0 ] && return
  failed=1
  grep -q '^not ok' "$tmp/$name.tap" || echo "not ok - node: $name: ended with $status"
  sed 's/^/# /' "$tmp/$name.errors"
}

if ! modules >"$tmp/output" 2>&1; then
  ! grep -qE 'ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENOTCACHED|ECONNRESET' "$tmp/output" || skip 'the npm registry is out of reach'
  tap 'npm ci' modules || exit 1
fi
tap 'npm pack' install || exit 1
if [ -z "$part" ]; then
  tap 'npm install, as docs/node.md says' as_the_page_says
  tap 'package-lock.json names no registry' no_registry_is_named
  tap 'tsc' node "$tmp/node_modules/typescript/bin/tsc" -p "$tmp/app/test/tsconfig.json"
fi
export WEIR_BINARY=$build/weir
for file in "$tmp"/app/test/*.test.js; do
  run "$file" &
done
wait
for file in "$tmp"/app/test/*.test.js; do
  report "$(basename "$file" .test.js)"
done
exit $failed
