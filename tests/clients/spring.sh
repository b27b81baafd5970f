#!/usr/bin/env bash
# Builds the Spring Boot starter and tests it against a weir. Prints TAP.
#
#   tests/clients/spring.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 2
weir=$(realpath "${1:-build}")/weir
log=$(mktemp)
child=
tried=0-built-$$
kept=$HOME/.m2/repository/io/weir/weir-spring-boot-starter
cleanup() {
  trap - EXIT INT TERM HUP
  [ -z "$child" ] || kill "$child" 2>/dev/null
  rm -rf "$log" "${kept:?}/$tried"
  rmdir "$kept" "$(dirname "$kept")" 2>/dev/null
}
trap cleanup EXIT
trap 'cleanup; exit 143' INT TERM HUP
# Maven does not live long enough for the better compiler of the JVM.
export MAVEN_OPTS="${MAVEN_OPTS:-} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

skip() {
  echo "ok - spring # SKIP $1"
  exit 0
}

maven() {
  mvn -q -B "$@" -f clients/spring package -Dkotlin.compiler.incremental=true -Dweir.binary="$weir" >"$log" 2>&1 </dev/null &
  child=$!
  wait "$child"
  local status=$?
  child=
  return $status
}

# One line for each test case, in the order of their names.
report() {
  python3 - clients/spring/target/surefire-reports <<'PYTHON'
import glob, re, sys
import xml.etree.ElementTree as xml

for file in sorted(glob.glob(sys.argv[1] + "/TEST-*.xml")):
    for case in xml.parse(file).getroot().iter("testcase"):
        name = re.sub(r"^mistakes\(\) |\(\w+\)$", "", case.get("name")).replace("#", "")
        bad = [element for element in case if element.tag in ("failure", "error")]
        skip = case.find("skipped")
        skipped = "" if skip is None else f" # SKIP {skip.get('message', '')}"
        suite = case.get("classname").rsplit(".", 1)[-1].removesuffix("Test")
        print(f"{'not ' if bad else ''}ok - spring: {suite}: {name}{skipped}")
        for element in bad:
            print("".join(f"# {line}\n" for line in (element.text or "").splitlines()[:40]), end="")
PYTHON
}

# The jar that is published names what Spring Boot starts by itself.
starts_by_itself() {
  python3 - "$1" <<'PYTHON'
import sys, zipfile

jar = zipfile.ZipFile(sys.argv[1])
names = jar.namelist()
for name in jar.read("META-INF/spring/org.springframework.boot.autoconfigure.AutoConfiguration.imports").decode().split():
    assert name.replace(".", "/") + ".class" in names, name
PYTHON
}

# packaged [OPTION…]: an application gets the jar, and what it needs, from a repository. The version is one that nobody else has in the
# folder where Maven keeps what it has read.
packaged() {
  local target=$PWD/clients/spring/target version jar
  version=$("$weir" --version | cut -d ' ' -f 2)
  jar=$target/weir-spring-boot-starter-$version.jar
  rm -rf "$target/repository" "$target/application"
  mkdir -p "$target/application/src/main/java"
  starts_by_itself "$jar" && sed "s|<version>$version</version>|<version>$tried</version>|" clients/spring/pom.xml >"$target/tried.xml" &&
    mvn -q -B "$@" -f clients/spring install:install-file -Dfile="$jar" -DpomFile="$target/tried.xml" -DlocalRepositoryPath="$target/repository" &&
    cat >"$target/application/pom.xml" <<POM && cat >"$target/application/src/main/java/Uses.java" <<'JAVA' && mvn -q -B "$@" -f "$target/application" compile
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>application</groupId>
  <artifactId>application</artifactId>
  <version>1</version>
  <properties><maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target></properties>
  <dependencies>
    <dependency><groupId>io.weir</groupId><artifactId>weir-spring-boot-starter</artifactId><version>$tried</version></dependency>
  </dependencies>
  <repositories><repository><id>built</id><url>file://$target/repository</url></repository></repositories>
</project>
POM
class Uses {
    io.lettuce.core.RedisClient brought_along;

    @io.weir.spring.Detect(eventId = "ocr", contentSpel = "#userId")
    String submit(String userId) { return userId; }
}
JAVA
}

command -v javac >/dev/null || skip 'there is no JDK'
command -v mvn >/dev/null || skip 'there is no Maven'
# Only what changed is compiled; but other libraries change everything.
[ clients/spring/target -nt clients/spring/pom.xml ] || rm -rf clients/spring/target
rm -rf clients/spring/target/surefire-reports

# Without the network first: that is quicker, and what was fetched once stays.
maven -o
status=$?
if [ $status -ne 0 ] && grep -q 'offline mode' "$log"; then
  maven
  status=$?
  ! grep -qE 'Could not transfer|Unknown host' "$log" || skip 'the Maven registry is out of reach'
fi
cases=$(report)
[ -z "$cases" ] || echo "$cases"
if [ $status -eq 0 ]; then
  if packaged -o >"$log" 2>&1 </dev/null || packaged >"$log" 2>&1 </dev/null; then
    echo 'ok - spring: the jar'
  else
    echo 'not ok - spring: the jar'
    sed 's/^/# /' "$log"
    status=1
  fi
elif ! grep -q '^not ok' <<<"$cases"; then
  echo 'not ok - spring: builds, and runs to its end'
  tail -n 100 "$log" | sed 's/^/# /'
fi
exit $status
