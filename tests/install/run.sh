#!/usr/bin/env bash
# Installs a build into an empty folder and uses what is there. Prints TAP.
#
#   tests/install/run.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${1:-build}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
root=$tmp/root

count=0
failed=0
tap() {
  local name=$1
  shift
  count=$((count + 1))
  if "$@" >"$tmp/output" 2>&1; then
    echo "ok $count - install: $name"
  else
    echo "not ok $count - install: $name"
    sed 's/^/# /' "$tmp/output"
    failed=1
  fi
}

compile() {
  local compiler=$1 output=$2 source=$3
  shift 3
  # shellcheck disable=SC2046
  "$compiler" -Wall -Wextra -Werror "$@" -o "$tmp/$output" "$source" $(pkg-config --cflags --libs weir)
}

manual_pages() {
  local page pages
  mapfile -t pages < <(find "$root" -path '*/man/*' -name '*.[1-8]')
  [ ${#pages[@]} -gt 0 ] || { echo 'no manual page was installed'; return 1; }
  for page in "${pages[@]}"; do
    mandoc -T lint -W warning "$page" || return
  done
}

completions() {
  local name
  for name in bash-completion/completions/weir zsh/site-functions/_weir fish/vendor_completions.d/weir.fish; do
    [ -n "$(find "$root" -path "*/share/$name")" ] || { echo "$name was not installed"; return 1; }
  done
}

service_unit() {
  local unit
  unit=$(find "$root" -path '*/systemd/system/weir.service')
  [ -n "$unit" ] || { echo 'no unit was installed'; return 1; }
  # The command that it names is the one that was installed.
  [ -x "$root$(sed -n 's/^ExecStart=\([^ ]*\) serve .*/\1/p' "$unit")" ] && ! grep -E '@[a-z]+@' "$unit"
}

# nginx finds module and library where they were installed.
nginx_module() {
  local module
  module=$(find "$root" -name ngx_http_weir_module.so)
  [ -n "$module" ] || { echo 'the nginx module was not installed'; return 1; }
  echo 'rules: []' >"$tmp/rules.yaml"
  cat >"$tmp/nginx.conf" <<-END
	load_module $module;
	pid $tmp/nginx.pid;
	events { }
	http {
	  access_log off;
	  client_body_temp_path $tmp/body;
	  proxy_temp_path $tmp/proxy;
	  fastcgi_temp_path $tmp/fastcgi;
	  uwsgi_temp_path $tmp/uwsgi;
	  scgi_temp_path $tmp/scgi;
	  weir_zone api 1m rules=$tmp/rules.yaml;
	}
	END
  PATH=$PATH:/usr/sbin nginx -t -p "$tmp" -e stderr -c "$tmp/nginx.conf"
}

tap 'meson install' env DESTDIR="$root" meson install -C "$build" --no-rebuild
prefix=$(find "$root" -name weir.pc -printf '%h\n' | head -n 1)
library=${prefix%/pkgconfig}
export PKG_CONFIG_PATH=$prefix PKG_CONFIG_SYSROOT_DIR=$root LD_LIBRARY_PATH=$library

tap 'pkg-config finds it' pkg-config --print-errors --exists weir
tap 'a C program compiles' compile gcc use-c tests/install/use.c -std=c11
tap 'a C program runs' "$tmp/use-c"
tap 'a C++ program compiles' compile g++ use-c++ tests/install/use.c -x c++ -std=c++11
tap 'a C++ program runs' "$tmp/use-c++"
tap 'a program with weir.hpp compiles' compile g++ use-hpp tests/install/use.cpp -std=c++17
tap 'a program with weir.hpp runs' "$tmp/use-hpp"
tap 'a program that loads it compiles' gcc -Wall -Wextra -Werror -o "$tmp/load" tests/install/load.c -ldl
tap 'a program that loads it runs' "$tmp/load"
tap 'the command runs' "$(find "$root" -path '*/bin/weir')" --version
tap 'the manual pages are well formed' manual_pages
tap 'completion is where shells look for it' completions
tap 'nginx loads the module' nginx_module
tap 'the unit of the service names the command' service_unit

echo "1..$count"
exit $failed
