#!/usr/bin/env bash
# Checks that the folders of code keep to their places. Prints TAP.
#
#   tests/layering.sh [BUILD]      BUILD (default: build) is a finished build of the tree
#
# It reads #include lines rather than asking the linker, so that a mistake is named by its line.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${1:-build}
cc=${CC:-gcc}
cxx=${CXX:-g++}
export LC_ALL=C

# folder, without what stands before it: the folders that it may include beside itself and <weir/weir.h>. The same table
# stands in ARCHITECTURE.md.
allowed='
base:
tls: base
limit: base
cells: base limit
slices: base limit cells
throttle: base limit cells
envoy: base
rules: base limit
refused: base limit rules
match: base limit rules
engine: base limit cells slices rules match refused
present: base limit cells rules match refused engine
redis: base tls limit cells slices engine
library: engine redis
replay: base limit cells slices rules match refused engine
source: base rules
serve: base tls limit cells slices throttle rules match refused engine present redis library replay source envoy
cli: base tls limit cells slices throttle rules match refused engine present redis library replay source envoy serve
bench: bench
decisions: base tls limit cells slices throttle rules match refused engine present redis library replay source envoy serve cli
'

# header of a library: the places that may include it.
libraries='
yaml.h src/rules/
pcre2.h src/base/regex.c
jansson.h src/cli/ src/replay/ src/source/ src/serve/
uv.h src/serve/
microhttpd.h src/serve/http.c
nghttp2/nghttp2.h src/serve/h2_ bench/h2_
openssl/ssl.h src/tls/
openssl/err.h src/tls/
openssl/x509v3.h src/tls/
systemd/sd-daemon.h src/serve/
zlib.h src/cli/
sqlite3.h src/source/sqlite.c src/serve/counts_
mysql.h src/source/mysql.c
libpq-fe.h src/source/postgres.c
'

# What src/limit may take from the system: no memory, no clock, no I/O.
limit_headers='assert.h limits.h stdbool.h stddef.h stdint.h string.h'
limit_symbols='memcmp memcpy memmove memset memchr strlen __assert_fail __stack_chk_fail _GLOBAL_OFFSET_TABLE_
__udivti3 __umodti3 __divti3 __modti3 __multi3 __floattidf
__ubsan_.* __asan_.* __tsan_.* __sanitizer_.*'

function_lines_max=80
file_lines_max=800

count=0
failed=0

# Each check prints what is wrong, and nothing if all is well.
check() {
  local name=$1 found
  shift
  count=$((count + 1))
  found=$("$@" 2>&1)
  if [ -z "$found" ]; then
    echo "ok $count - $name"
  else
    echo "not ok $count - $name"
    echo "${found//$'\n'/$'\n'# }" | sed '1s/^/# /'
    failed=$((failed + 1))
  fi
}

sources() {
  find "$@" -name '*.[ch]' 2>/dev/null | sort
}

includes() {
  sources src bench | xargs awk -v table="$allowed" -v libraries="$libraries" -v limit_headers="$limit_headers" '
    function words(list, set,   n, i, part) {
      n = split(list, part, /[ \n]+/)
      for (i = 1; i <= n; i++) set[part[i]] = 1
    }
    BEGIN {
      n = split(table, row, "\n")
      for (i = 1; i <= n; i++) {
        if (row[i] !~ /:/) continue
        folder = row[i]; sub(/:.*/, "", folder)
        known[folder] = 1
        may[folder, folder] = 1
        rest = row[i]; sub(/^[^:]*: */, "", rest)
        names[folder] = rest
        m = split(rest, part, " ")
        for (j = 1; j <= m; j++) may[folder, part[j]] = 1
      }
      n = split(libraries, row, "\n")
      for (i = 1; i <= n; i++)
        if ((m = split(row[i], part, " ")) > 1) {
          places[part[1]] = m - 1
          for (j = 2; j <= m; j++) place[part[1], j - 1] = part[j]
        }
      words(limit_headers, pure)
    }
    FNR == 1 {
      n = split(FILENAME, part, "/")
      folder = part[n - 1]
      if (!(folder in known)) print FILENAME ": " folder " is not in the table of tests/layering.sh"
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
      split($0, quoted, "\"")
      where = FILENAME ":" FNR ": "
      if (quoted[2] == "version.h") next     # made by the build
      if (quoted[2] !~ /\//) {
        print where "write \"" quoted[2] "\" with its folder, as in \"base/sv.h\""
        next
      }
      other = quoted[2]; sub(/\/.*/, "", other)
      if (!((folder, other) in may))
        print where folder " may not include " quoted[2] "; it may include: " (names[folder] ? names[folder] : "nothing")
    }
    /^[ \t]*#[ \t]*include[ \t]*</ {
      header = $0; sub(/^[^<]*</, "", header); sub(/>.*/, "", header)
      in_place = !(header in places); where = ""
      for (j = 1; !in_place && j <= places[header]; j++) {
        if (index(FILENAME, place[header, j]) == 1) in_place = 1
        where = where (j > 1 ? " and " : "") place[header, j]
      }
      if (!in_place) print FILENAME ":" FNR ": <" header "> belongs in " where " alone"
      if (folder == "limit" && header != "weir/weir.h" && !(header in pure))
        print FILENAME ":" FNR ": limit is pure; it may include only <" limit_headers ">"
    }'
}

# The module for nginx sees what any program sees that links libweir.
nginx_includes() {
  local file header
  for file in $(sources nginx); do
    sed -n 's/^[ \t]*#[ \t]*include[ \t]*[<"]\([^>"]*\)[>"].*/\1/p' "$file" | while read -r header; do
      case $header in
        weir/weir.h | ngx_*.h | std*.h | string.h | pthread.h) ;;
        *) [ -f "nginx/$header" ] || echo "$file: nginx may include only <weir/weir.h> of this tree, not $header" ;;
      esac
    done
  done
}

# The same table for what the linker sees: declaring a function by hand does not evade it.
symbols() {
  local folder others other
  while IFS=: read -r folder others; do
    { [ -n "$folder" ] && [ -d "src/$folder" ]; } || continue
    [ -f "$build/src/$folder/lib$folder.a" ] || { echo "$build/src/$folder/lib$folder.a is missing: build first"; continue; }
    for other in "$build"/src/*/lib*.a; do
      other=$(basename "$(dirname "$other")")
      case " $folder $others " in *" $other "*) continue ;; esac
      comm -12 <(nm -u "$build/src/$folder/lib$folder.a" 2>/dev/null | awk '$1 == "U" { print $2 }' | sort -u) \
        <(nm --defined-only "$build/src/$other/lib$other.a" 2>/dev/null | awk 'NF == 3 && $2 ~ /[A-Z]/ { print $3 }' | sort -u) |
        sed "s|\$|: src/$folder calls it, and src/$other, which defines it, is not in its row|"
    done
  done <<<"$allowed"
}

# Within a folder, calls between files go one way. nginx's macros make all files of its module refer to the module's record.
file_cycles() {
  local objects folder found
  for objects in "$build"/src/*/lib*.a.p "$build"/nginx/*.so.p "$build"/bench/decisions.p; do
    [ -d "$objects" ] || continue
    folder=$(dirname "$objects")
    folder=${folder#"$build/"}
    found=$(nm -o "$objects"/*.o 2>/dev/null | awk '
      { file = $1; sub(/:.*/, "", file); sub(/.*\//, "", file); sub(/\.o$/, "", file) }
      $NF == "ngx_http_weir_module" { next }
      $(NF - 1) ~ /^[A-TV-Z]$/ { defined[$NF] = file }
      $(NF - 1) ~ /(^|:)U$/ { calls[file, $NF] }
      END {
        for (call in calls) {
          split(call, part, SUBSEP)
          if (part[2] in defined && defined[part[2]] != part[1]) print part[1], defined[part[2]]
        }
      }' | sort -u | tsort 2>&1 >/dev/null | sed 's/^tsort: //; /contains a loop/d' | sort -u | tr '\n' ' ')
    [ -z "$found" ] || echo "$folder: these files call each other in a circle: $found"
  done
}

limit_is_pure() {
  local archive=$build/src/limit/liblimit.a gcra=$build/src/throttle/libthrottle.a.p/gcra.c.o allow
  [ -f "$archive" ] || { echo "$archive is missing: build first"; return; }
  allow=$(tr -s ' \n' '|' <<<"$limit_symbols")
  comm -23 <(nm -u "$archive" "$gcra" 2>/dev/null | awk '$1 == "U" { print $2 }' | sort -u) \
    <(nm --defined-only "$archive" "$gcra" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u) |
    grep -vxE "${allow%|}" | sed 's/$/: limit and throttle\/gcra may not call this (no memory, no clock, no I\/O)/'
}

headers_alone() {
  local header flags=(-fsyntax-only -Wall -Wextra -Werror -D_GNU_SOURCE -Iinclude -Isrc -Ibench)
  [ "$(uname -m)" != x86_64 ] || flags+=(-mcx16)
  for header in $(sources src include bench | grep '\.h$'); do
    echo "#include \"$header\"" | "$cc" "${flags[@]}" -std=gnu17 -I. -x c - || echo "$header does not compile alone"
  done
}

public_header() {
  local std
  for std in c99 c11 gnu17; do
    echo '#include <weir/weir.h>' | "$cc" -fsyntax-only -Wall -Wextra -Wpedantic -Werror -Iinclude "-std=$std" -x c - ||
      echo "weir.h is not valid $std"
  done
  for std in c++11 c++17 c++20; do
    echo '#include <weir/weir.h>' | "$cxx" -fsyntax-only -Wall -Wextra -Wpedantic -Werror -Iinclude "-std=$std" -x c++ - ||
      echo "weir.h is not valid $std"
  done
  grep -nE '^ *# *include *"' include/weir/weir.h
}

exports() {
  local library=$build/libweir.so
  [ -f "$library" ] || { echo "$library is missing: build first"; return; }
  nm -D --defined-only "$library" | awk '$3 !~ /^weir_/ { print $3 ": only weir_* may be exported" } { n++ }
    END { if (!n) print "nothing is exported" }'
  comm -3 <(nm -D --defined-only "$library" | awk '{ print $3 }' | sort) \
    <(grep -A3 '^WEIR_API' include/weir/weir.h | grep -oE 'weir_[a-z_]+\(' | tr -d '(' | sort -u) |
    awk -F'\t' '{ print $1 != "" ? $1 ": exported, but not in weir.h" : $2 ": in weir.h, but not exported" }'
  readelf -d "$library" | grep -q 'SONAME.*\[libweir\.so\.4\]' || echo "SONAME is not libweir.so.4"
  readelf -d "$library" | grep -q NODELETE || echo "not linked with -z nodelete: dlclose would leave threads in the air"
}

# The module links libweir, and nothing that libweir does not hide: no database, no network.
nginx_links() {
  local module=$build/nginx/ngx_http_weir_module.so
  [ -f "$module" ] || { echo "$module is missing: install nginx-dev and build"; return; }
  readelf -d "$module" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vxE 'libweir\.so\.4|libc\.so\.6' |
    sed 's/$/: the nginx module may link only libweir/'
  nm -D --defined-only "$module" | awk '$3 !~ /^ngx_module(s|_names|_order)$/ { print $3 ": the nginx module exports its name only" }'
}

sizes() {
  sources src include nginx tests bench examples | xargs awk -v lines_max=$file_lines_max -v function_max=$function_lines_max '
    FNR == 1 && last_file { finish() }
    { last_file = FILENAME; last_line = FNR }
    /^{/ { start = FNR; name = before }
    /^}/ && start { if (FNR - start - 1 > function_max)
        print FILENAME ":" start ": " name ": a function of " FNR - start - 1 " lines; at most " function_max " fit a screen"
      start = 0 }
    !/^[ \t{}]/ { before = $0 }
    function finish() {
      if (last_line > lines_max) print last_file ": " last_line " lines; at most " lines_max
      start = 0
    }
    END { finish() }'
}

readmes() {
  local folder
  for folder in src/*/ nginx/ bench/; do
    [ -n "$(sources "$folder")" ] || continue
    [ -f "${folder}README.md" ] || echo "${folder}README.md is missing: what the folder does, and what it relies on"
  done
}

# The version stands in meson.build. These files cannot read it from there: file, and what prints each version in it.
versions() {
  local version file expression found
  version=$(sed -n "s/^  version: '\([^']*\)',\$/\1/p" meson.build)
  while read -r file expression; do
    [ -n "$file" ] || continue
    found=$(sed -n "$expression" "$file" | sort -u | paste -sd ' ')
    [ "$found" = "$version" ] || echo "$file: version '$found', but meson.build has $version"
  done <<'TABLE'
debian/changelog 1s/^weir (\(.*\)) .*/\1/p
src/serve/openapi.json 1,8s/^    "version": "\(.*\)",/\1/p
docs/containers.md s/.*weir:\([0-9]*\.[0-9]*\.[0-9]*\).*/\1/p
deploy/helm/weir/Chart.yaml s/^version: \(.*\)/\1/p;s/^appVersion: "\(.*\)"/\1/p
clients/python/pyproject.toml s/^version = "\(.*\)"/\1/p
clients/node/package.json s/^  "version": "\(.*\)",/\1/p
clients/node/package-lock.json 1,/"license"/s/^ *"version": "\(.*\)",/\1/p
clients/spring/pom.xml /<artifactId>weir-/{n;s/.*<version>\(.*\)<.*/\1/p}
docs/spring.md /<artifactId>weir-/{n;s/.*<version>\(.*\)<.*/\1/p};s/.*weir-spring-boot-starter:\([0-9.]*\)".*/\1/p
docs/nginx.md s/^{"zone": "api", "version": "\([^"]*\)".*/\1/p
TABLE
  [ "$("$build/weir" --version)" = "weir $version" ] || echo "$build/weir --version does not print $version: build first"
}

# WEIR_ABI_VERSION names the library, its package, and the library that the client for Python loads. Symbols of the package are
# those that are exported: dpkg-gensymbols would find it too late.
abi() {
  local abi symbols
  abi=$(sed -n 's/^#define WEIR_ABI_VERSION //p' include/weir/weir.h)
  symbols=debian/libweir$abi.symbols
  grep -q "soversion: '$abi'" meson.build || echo "meson.build: soversion is not $abi"
  grep -q "^ABI_VERSION = $abi\$" clients/python/src/weir/_library.py || echo "clients/python: ABI_VERSION is not $abi"
  grep -n 'libweir[0-9]' debian/control debian/*.install | grep -v "libweir$abi" | sed "s/\$/: the package is libweir$abi/"
  [ -f "$symbols" ] || { echo "$symbols is missing: rename debian/libweir*.symbols and .install"; return; }
  comm -3 <(nm -D --defined-only "$build/libweir.so" | awk '{ print $3 }' | sort) <(sed -n 's/^ \(.*\)@Base .*/\1/p' "$symbols" | sort) |
    awk -F'\t' -v file="$symbols" '{ print file ": " ($1 != "" ? "lacks " $1 : $2 " is not exported") }'
}

unfinished() {
  grep -rnE '\b(TODO|FIXME|XXX|HACK)\b' --include='*.[ch]' --include='meson.build' --include='*.md' \
    src include nginx bench tests script docs ./*.md meson.build 2>/dev/null | grep -vE 'tests/layering|CONTRIBUTING\.md'
}

check 'a folder includes only what its row allows' includes
check 'a folder calls only what its row allows' symbols
check 'the files of a folder call each other one way only' file_cycles
check 'the nginx module includes only the public header' nginx_includes
check 'limit calls neither memory nor clock nor I/O' limit_is_pure
check 'every header compiles alone' headers_alone
check 'weir.h is strict C and C++' public_header
check 'libweir.so exports what weir.h declares, and nothing else' exports
check 'the nginx module links libweir alone' nginx_links
check "functions up to $function_lines_max lines, files up to $file_lines_max" sizes
check 'a README in each folder of code' readmes
check 'one version everywhere' versions
check 'one version of the interface everywhere' abi
check 'nothing is left to be done' unfinished

echo "1..$count"
exit $((failed > 0))
