#!/usr/bin/env bash
# Installs the Python package into an empty environment, and tests what is there against a real service. Prints TAP.
#
#   tests/clients/python.sh [BUILD]      TEST_PART: only the cases with this in their names, see script/test -k
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${1:-build}")
part=${TEST_PART:-}
python=/usr/bin/python3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

missing() {
  local name
  for name in redis-server mypy; do
    command -v "$name" >/dev/null || echo "$name"
  done
  [ -x $python ] || { echo $python; return; }
  for name in pytest redis uvicorn websockets setuptools wheel pip; do
    $python -c "import $name" 2>/dev/null || echo "python3-$name"
  done
}

lacks=$(missing | paste -sd ' ')
if [ -n "$lacks" ]; then
  echo "ok - python # SKIP not there: $lacks"
  exit 0
fi

failed=0
tap() {
  local name=$1
  shift
  if "$@" >"$tmp/output" 2>&1; then
    echo "ok - python: $name"
  else
    echo "not ok - python: $name"
    sed 's/^/# /' "$tmp/output"
    failed=1
  fi
}

# The wheel that is published. It is built from a copy, since a build leaves files beside the sources; with Debian's setuptools, since a
# test needs no registry.
install() {
  cp -r clients/python "$tmp/package" &&
    $python -m venv --system-site-packages --without-pip "$tmp/venv" &&
    "$tmp/venv/bin/python" -m pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir "$tmp/wheel" "$tmp/package" &&
    "$tmp/venv/bin/python" -m pip install --quiet --no-index --no-deps "$tmp"/wheel/weir-*.whl
}

installed() {
  (cd / && "$tmp/venv/bin/python" -c "import weir, os; print(weir.__file__); assert weir.__file__.startswith('$tmp/venv/');
assert os.path.exists(os.path.join(os.path.dirname(weir.__file__), 'py.typed'))")
}

# The results of pytest as TAP.
report() {
  $python - "$1" <<-'END'
	import sys
	import xml.etree.ElementTree as xml

	for case in xml.parse(sys.argv[1]).iter("testcase"):
	    name = f"python: {case.get('classname').rpartition('.')[2]}: {case.get('name')}".replace("#", "")
	    bad, skipped = case.find("failure"), case.find("skipped")
	    bad = case.find("error") if bad is None else bad
	    print(f"{'ok' if bad is None else 'not ok'} - {name}", end="\n" if skipped is None else f" # SKIP {skipped.get('message')}\n")
	    if bad is not None:
	        for line in (bad.text or "").splitlines():
	            print("#", line)
	        print("# repeat: script/test clients -k", case.get("name").partition("[")[0])
	END
}

unset PYTHONPATH
export PYTHONDONTWRITEBYTECODE=1 WEIR_BINARY=$build/weir WEIR_LIBRARY=$build/libweir.so.4
if [ -n "$part" ]; then
  install >"$tmp/output" 2>&1 || tap 'pip install' install
else
  tap 'a wheel, and pip install' install
  tap 'the installed package' installed
  tap 'mypy --strict' mypy --strict --cache-dir "$tmp/mypy" clients/python/src
fi
status=0
"$tmp/venv/bin/python" -m pytest -q -p no:cacheprovider --basetemp "$tmp/pytest" --junitxml "$tmp/results.xml" -k "$part" clients/python/tests >"$tmp/output" 2>&1 || status=$?
# 5: no case has this name.
[ -n "$part" ] && [ $status -eq 5 ] && exit $failed
[ $status -eq 0 ] || failed=1
if [ -s "$tmp/results.xml" ]; then
  report "$tmp/results.xml"
else
  echo 'not ok - python: pytest'
  sed 's/^/# /' "$tmp/output"
fi
exit $failed
