#!/usr/bin/env bash
# Cross-builds the packages for the other architecture in a clean root, and runs what is in them under QEMU. Prints TAP.
#
#   tests/package/cross.sh
set -u
cd "$(dirname "$0")/../.." || exit 2
tmp=$(mktemp -d "${TMPDIR:-/tmp}/weir-packages.XXXXXX")
trap 'rm -rf --one-file-system "$tmp"' EXIT
trap 'exit 130' INT TERM HUP
chmod 755 "$tmp"
. tests/package/root.sh

case $(dpkg --print-architecture) in
  amd64) arch=arm64 machine=AArch64 qemu=qemu-aarch64-static ;;
  *) arch=amd64 machine=X86-64 qemu=qemu-x86_64-static ;;
esac

# What debian/control asks for is enough.
install_dependencies() {
  script/package --source --out "$tmp" && mkdir "$root/packages/tree" &&
    tar -xf "$tmp/weir-$version.tar.xz" -C "$root/packages/tree" --strip-components 1 &&
    chroot "$root" dpkg --add-architecture "$arch" && apt update && apt install "crossbuild-essential-$arch" rsync &&
    apt build-dep --host-architecture "$arch" --build-profiles cross,nocheck,pkg.weir.nonginx --arch-only /packages/tree
}

build() {
  inside /packages/tree/script/package --arch "$arch" --out /packages/out &&
    for package in "$root"/packages/out/{weir,libweir?}_*_"$arch.deb"; do
      dpkg-deb -x "$package" "$root/packages/unpacked" || return
    done
}

# Twice may go through: the table of cells works with the atomic instructions of the other machine.
runs() {
  readelf -h "$root/packages/unpacked/usr/bin/weir" | grep "Machine:.*$machine" &&
    inside "$qemu" /packages/unpacked/usr/bin/weir --version | grep -x "weir $version" &&
    printf 'rules:\n  - { id: one, match: { event: e }, by: [key], limits: [ "2 per 1d" ] }\n' >"$root/packages/rules.yaml" &&
    decide 0 && decide 0 && decide 1
}

# decide STATUS: 0 if it passes, 1 if it is refused.
decide() {
  inside "$qemu" /packages/unpacked/usr/bin/weir check --rules /packages/rules.yaml --cells /packages/cells --event e --key u1
  [ $? -eq "$1" ]
}

needs_root
tap 'a clean root' bootstrap
tap "what a build for $arch needs" install_dependencies
tap "packages for $arch" build
tap "they run under $qemu" runs
