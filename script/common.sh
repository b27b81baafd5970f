# shellcheck shell=bash
# What the commands in this folder share. Source it from the root of the tree.

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
  bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' green=$'\e[32m' yellow=$'\e[33m' plain=$'\e[0m'
else
  bold='' dim='' red='' green='' yellow='' plain=''
fi
export bold dim red green yellow plain

# configure DIR COMPILER [OPTION…]: makes or updates a build folder; one that cannot be updated is made anew.
configure() {
  local dir=$1 compiler=$2 made_with
  shift 2
  made_with=$(cat "$dir/.made-with" 2>/dev/null)
  if [ -f "$dir/build.ninja" ]; then
    [ "$made_with" != "$compiler $*" ] || return 0
    case $made_with in
      '' | "$compiler "*) meson setup --reconfigure "$dir" "$@" || rm -rf "$dir" ;;
      *) rm -rf "$dir" ;;
    esac
  fi
  [ -f "$dir/build.ninja" ] || CC=$compiler meson setup "$dir" "$@" || return
  echo "$compiler $*" >"$dir/.made-with"
}

# Builds build/weir and no more; what the build says is shown if it fails. What is installed is said at once, since sudo may ask
# for a password.
build_weir() {
  local log status=0
  script/setup --runtime || return
  log=$(mktemp "${TMPDIR:-/tmp}/weir-build.XXXXXX")
  echo "Building weir …" >&2
  { { [ -f build/build.ninja ] || configure build gcc -Dtests=false; } && ninja -C build weir; } \
    >"$log" 2>&1 || status=$?
  if [ $status -ne 0 ]; then
    cat "$log" >&2
    echo "$0: the build failed; what it said is above" >&2
  fi
  rm -f "$log"
  return $status
}

# The comments at the head of a script are its help.
usage() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
}

# Editors and clang-tidy look for it in the root.
link_compile_commands() {
  ln -sfn build/compile_commands.json compile_commands.json
}
