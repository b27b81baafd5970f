#!/bin/sh
# Makes the two headers that nginx's own configure writes, for the nginx that Debian's nginx-dev belongs to.
#
#   nginx/configure.sh SOURCE OUTPUT      ngx_auto_config.h and ngx_auto_headers.h in the folder OUTPUT
set -eu
source=$1
mkdir -p "$2"
output=$(cd "$2" && pwd)

# It works in the current folder, and writes to it.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$source/auto" "$source/src" "$work"
cp "$source/configure" "$work"
cd "$work"
# The flags of the package are an assignment for bash.
flags=$(bash -c '. "$1" && printf "%s\n" "${NGX_CONF_FLAGS[@]}"' flags "$source/conf_flags")
# shellcheck disable=SC2086
if ! CFLAGS='' LDFLAGS='' sh ./configure --builddir=objs --with-cc=gcc $flags >log 2>&1; then
  cat log >&2
  exit 1
fi
cp objs/ngx_auto_config.h objs/ngx_auto_headers.h "$output"
