#!/usr/bin/env bash
# Builds the source distribution and, from it, the Debian packages; tests them in a clean root. Prints TAP.
#
#   tests/package/run.sh
#
# The root is made by debootstrap in a temporary folder. What runs in it has a network, processes and mounts of its own, so that nothing
# of it stays, and no port is taken.
set -u
cd "$(dirname "$0")/../.." || exit 2
tmp=$(mktemp -d "${TMPDIR:-/tmp}/weir-packages.XXXXXX")
trap 'rm -rf --one-file-system "$tmp"' EXIT
trap 'exit 130' INT TERM HUP
chmod 755 "$tmp"
root=$tmp/root
first=$tmp/first
next=$tmp/next
version=$(dpkg-parsechangelog -SVersion)
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")

failed=0
# tap NAME COMMAND…: what comes after a failure would fail, too.
tap() {
  local name=$1
  shift
  if "$@" >"$tmp/output" 2>&1 </dev/null; then
    echo "ok - package: $name"
    return
  fi
  echo "not ok - package: $name"
  tail -n 100 "$tmp/output" | sed 's/^/# /'
  exit 1
}

# The distribution in an empty folder, where git knows nothing.
unpack_source() {
  script/package --source --out "$tmp" && mkdir "$tmp/source" &&
    tar -xf "$tmp/weir-$version.tar.xz" -C "$tmp/source" --strip-components 1 && ! git -C "$tmp/source" rev-parse 2>/dev/null &&
    # It packs itself.
    (cd "$tmp/source" && script/package --source --out "$tmp/again") && cmp "$tmp/weir-$version.tar.xz" "$tmp/again/weir-$version.tar.xz"
}

# A prefix that no loader and no nginx knows.
install_into_a_prefix() {
  local prefix=$tmp/prefix
  (cd "$tmp/source" && meson setup build --prefix "$prefix" -Dtests=false -Dnginx=enabled && ninja -C build && meson install -C build) &&
    [ "$("$prefix/bin/weir" --version)" = "weir $version" ] &&
    ldd "$prefix/lib/nginx/modules/ngx_http_weir_module.so" | grep "$prefix/lib/.*/libweir\.so" &&
    grep "^ExecStart=$prefix/bin/weir " "$prefix/lib/systemd/system/weir.service" && rm -rf "$prefix" "$tmp/source/build"
}

build_packages() {
  (cd "$tmp/source" && script/package --work "$tmp/work" --out "$first" && script/package --work "$tmp/work" --out "$next" --version "$version+next")
}

all_there() {
  local name names=(weir "libweir$(sed -n 's/^#define WEIR_ABI_VERSION //p' include/weir/weir.h)" libweir-dev libnginx-mod-http-weir python3-weir)
  for name in "${names[@]}"; do
    [ -n "$(find "$first" -name "${name}_${version}_*.deb")" ] || { echo "no package $name"; return 1; }
  done
}

# A program against the packages of the library, wherever they are.
compile() {
  local dev=$tmp/dev library
  for package in "$first"/libweir[0-9]_*.deb "$first"/libweir-dev_*.deb; do
    dpkg-deb -x "$package" "$dev" || return
  done
  library=$(dirname "$(find "$dev" -name libweir.so)")
  export PKG_CONFIG_LIBDIR=$library/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dev
  # shellcheck disable=SC2046
  gcc -Wall -Wextra -Werror -o "$tmp/use" tests/install/use.c $(pkg-config --cflags --libs weir) && LD_LIBRARY_PATH=$library "$tmp/use" &&
    [ "$(pkg-config --modversion weir)" = "$version" ]
}

# The mirrors that this host uses.
sources() {
  # shellcheck disable=SC2016
  apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' | sort -u | grep " $suite"
}

bootstrap() {
  local mirror
  mirror=$(sources | sed -n "s/^deb \([^ ]*\) $suite main\$/\1/p" | head -n 1)
  debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} || return
  sources >"$root/etc/apt/sources.list"
  # Nothing starts by itself there.
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" && chmod 755 "$root/usr/sbin/policy-rc.d" &&
    mkdir "$root/packages" && cp tests/package/inside.sh "$root/packages" &&
    cp -r "$first" "$next" "$root/packages" && rm -f "$root"/packages/*/*dbgsym* &&
    chroot "$root" apt-get update -qq &&
    chroot "$root" sh -c 'apt-get install -y -qq --no-install-recommends --download-only curl python3-redis nginx-light /packages/first/*.deb'
}

# Without a network but loopback, and with processes that end with the shell.
inside() {
  # shellcheck disable=SC2016
  unshare --mount --net --ipc --pid --fork --kill-child --mount-proc="$root/proc" sh -c '
    ip link set lo up && mount -t tmpfs -o mode=755 tmpfs "$1/run" &&
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$1" bash /packages/inside.sh "$2"' \
    sh "$root" "$version" </dev/null
}

if [ "$(id -u)" -ne 0 ] || [ -z "$suite" ]; then
  echo 'ok - package # SKIP needs root and Debian'
  exit 0
fi
tap 'the source distribution unpacks, and packs itself' unpack_source
tap 'it builds without git, and installs into any prefix' install_into_a_prefix
tap 'packages of the source distribution, and of a next version' build_packages
tap 'every package is there' all_there
tap 'lintian finds no error and no warning' lintian --allow-root --fail-on error,warning "$first"/*.changes
tap 'a program compiles with libweir-dev' compile
tap 'a clean root' bootstrap
inside || failed=1
exit $failed
