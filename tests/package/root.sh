# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154
# A clean root, for the tests of this folder. Source it from the root of the tree; $tmp is the folder for everything.

root=$tmp/root
version=$(dpkg-parsechangelog -SVersion)
# shellcheck disable=SC1091
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")

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

needs_root() {
  if [ "$(id -u)" -ne 0 ] || [ -z "$suite" ]; then
    echo 'ok - package # SKIP needs root and Debian'
    exit 0
  fi
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
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" && chmod 755 "$root/usr/sbin/policy-rc.d" && mkdir "$root/packages"
}

# apt COMMAND…: the only thing there that has a network.
apt() {
  chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get -y -qq --no-install-recommends "$@"
}

# inside COMMAND…: without a network but loopback, and with mounts and processes that end with the command.
inside() {
  # shellcheck disable=SC2016
  unshare --mount --net --ipc --pid --fork --kill-child --mount-proc="$root/proc" sh -c '
    root=$1 && shift && ip link set lo up && mount -t tmpfs -o mode=755 tmpfs "$root/run" &&
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive WEIR_SETUP_DONE=1 chroot "$root" "$@"' \
    sh "$root" "$@" </dev/null
}
