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
# lintian leaves files in its folder.
export TMPDIR=$tmp
. tests/package/root.sh
first=$tmp/first
next=$tmp/next

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

# All that is installed later, so that it needs no network.
download() {
  cp tests/package/inside.sh "$root/packages" && cp -r "$first" "$next" "$root/packages" && rm -f "$root"/packages/*/*dbgsym* && apt update &&
    chroot "$root" sh -c 'apt-get install -y -qq --no-install-recommends --download-only curl python3-redis nginx-light /packages/first/*.deb'
}

# A release of the next version, in a clone: nothing is tagged, and a tree with changes is refused.
release() (
  local clone=$tmp/clone output
  git clone -q --no-tags . "$clone" && cd "$clone" && git config user.name test && git config user.email test@localhost || exit
  sed -i "s/^  version: '$version',\$/  version: '99.0.0',/" meson.build
  sed -i '1s/(.*) [a-zA-Z]*;/(99.0.0) UNRELEASED;/' debian/changelog
  sed -i 's/^## Unreleased$/&\n\n- What is new./' CHANGELOG.md
  ! script/release --dry-run --untested 2>/dev/null || { echo 'a tree with changes is released'; exit 1; }
  git commit -q -a -m 'the next version' && output=$(script/release --dry-run --untested) || exit
  grep -q '^+## 99\.0\.0 - ' <<<"$output" && grep -q 'tag it v99\.0\.0' <<<"$output" && [ -z "$(git tag)$(git status --porcelain)" ]
)

needs_root
tap 'the source distribution unpacks, and packs itself' unpack_source
tap 'it builds without git, and installs into any prefix' install_into_a_prefix
tap 'packages of the source distribution, and of a next version' build_packages
tap 'every package is there' all_there
tap 'lintian finds no error and no warning' lintian --allow-root --fail-on error,warning "$first"/*.changes
tap 'a program compiles with libweir-dev' compile
tap 'script/release says what it would change' release
tap 'a clean root' bootstrap
tap 'what the packages depend on' download
inside bash /packages/inside.sh "$version"
