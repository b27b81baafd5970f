#!/usr/bin/env bash
# What tests/package/run.sh runs in the clean root: installs, serves, upgrades, removes. Prints TAP. There is no systemd that runs, so the
# service is started as its unit says, by hand.
#
#   bash /packages/inside.sh VERSION
set -u
version=$1
cd /
output=/tmp/output
service=

tap() {
  local name=$1
  shift
  if "$@" >"$output" 2>&1 </dev/null; then
    echo "ok - package: $name"
    return
  fi
  echo "not ok - package: $name"
  tail -n 100 "$output" | sed 's/^/# /'
  [ -s /tmp/service.log ] && tail -n 30 /tmp/service.log | sed 's/^/# service: /'
  exit 1
}

expect() {
  [ "$1" = "$2" ] || { echo "${3:-found}: '$1', expected '$2'"; return 1; }
}

# unit KEY: the last value of a key, as drop-ins override it.
unit() {
  cat /lib/systemd/system/weir.service /lib/systemd/system/weir.service.d/*.conf | sed -n "s/^$1=//p" | tail -n 1
}

until_ready() {
  local tries=0
  while ! curl -fs -o /dev/null http://127.0.0.1:8081/readyz; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] && [ -d "/proc/$service" ] || { echo 'the service is not ready'; return 1; }
    sleep 0.1
  done
}

# The user, the folders, the options and the command line of the unit. /etc/default/weir comes last, as EnvironmentFile= does.
start() {
  local user group line options
  user=$(unit User) group=$(unit Group) line=$(unit ExecStart)
  options=$(unit Environment | sed -n 's/^"WEIR_OPTIONS=\(.*\)"$/\1/p')
  # shellcheck disable=SC1091
  options=$(WEIR_OPTIONS=$options && . /etc/default/weir && echo "$WEIR_OPTIONS")
  install -d -o "$user" -g "$group" -m "$(unit StateDirectoryMode)" /var/lib/weir
  install -d -o "$user" -g "$group" -m "$(unit RuntimeDirectoryMode)" /run/weir
  setpriv --reuid "$user" --regid "$group" --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \
    env -i PATH=/usr/bin:/bin STATE_DIRECTORY=/var/lib/weir RUNTIME_DIRECTORY=/run/weir WEIR_OPTIONS="$options" \
    sh -c "umask $(unit UMask) && exec $line" >>/tmp/service.log 2>&1 &
  service=$!
  until_ready && expect "$(stat -c %U "/proc/$service")" weir user && expect "$(readlink "/proc/$service/exe")" "$1"
}

stop() {
  kill -TERM "$service" && wait "$service"
}

admin() {
  curl -fsS -H "Authorization: Bearer $(cat /var/lib/weir/admin-token)" "$@"
}

# ask KEY: "STATUS REMAINING" of a decision.
ask() {
  curl -s http://127.0.0.1:8080/v1/check -H 'Content-Type: application/json' -d "{\"event\": \"packaged\", \"key\": \"$1\"}" |
    sed -n 's/.*"status":\([0-9]*\).*"remaining":\([0-9]*\).*/\1 \2/p'
}

install_packages() {
  apt-get install -y -qq --no-install-recommends curl python3-redis nginx-light /packages/first/*.deb &&
    expect "$(weir --version)" "weir $version" version
}

manual_and_completion() {
  local file
  for file in man/man1/weir.1.gz man/man1/weir-serve.1.gz man/man5/weir-rules.5.gz bash-completion/completions/weir zsh/vendor-completions/_weir \
    fish/vendor_completions.d/weir.fish; do
    [ -s "/usr/share/$file" ] || { echo "there is no /usr/share/$file"; return 1; }
  done
}

user_is_there() {
  local id shell
  id=$(id -u weir) && [ "$id" -gt 0 ] && [ "$id" -lt 1000 ] && shell=$(getent passwd weir | cut -d: -f7) && expect "$shell" /usr/sbin/nologin shell
}

# systemd starts the service at boot, and the sockets only for those who enable them.
units() {
  [ -L /etc/systemd/system/multi-user.target.wants/weir.service ] || { echo 'the service is not enabled'; return 1; }
  ! find /etc/systemd -path '*sockets.target.wants/weir*' | grep . || return
  systemd-analyze verify --man=no weir.service weir-http.socket weir-resp.socket weir-grpc.socket weir-admin.socket
}

first_decisions() {
  admin -X PUT http://127.0.0.1:8081/v1/rules/packaged -H 'Content-Type: application/json' \
    -d '{"match": {"event": "packaged"}, "by": ["key"], "limits": [{"algorithm": "fixed_window", "max": 4, "per": "1d"}]}' &&
    expect "$(ask u1)" '200 3' first && expect "$(ask u1)" '200 2' second && expect "$(ask u2)" '200 3' other &&
    expect "$(stat -c '%U %a' /var/lib/weir/admin-token)" 'weir 600' token
}

# The administrator has changed the configuration. dpkg replaces the files under a service that goes on.
upgrade() {
  echo 'log: json' >>/etc/weir/serve.yaml
  apt-get install -y -qq --no-install-recommends /packages/next/*.deb &&
    expect "$(dpkg-query -W -f '${Version}' weir)" "$version+next" version &&
    expect "$(tail -n 1 /etc/weir/serve.yaml)" 'log: json' configuration &&
    expect "$(readlink "/proc/$service/exe")" '/usr/bin/weir (deleted)' 'the old service' && expect "$(ask u1)" '200 1' third
}

counts_and_rules_stay() {
  stop && : >/tmp/service.log && start /usr/bin/weir && expect "$(head -c 1 /tmp/service.log)" '{' 'log: json' &&
    expect "$(ask u1)" '200 0' fourth && expect "$(ask u1)" '429 0' fifth && expect "$(ask u2)" '200 2' other &&
    admin http://127.0.0.1:8081/v1/rules/packaged
}

# Stopped, and /run is empty as after a boot: what was saved counts.
counts_stay_after_a_boot() {
  stop && rm -rf /run/weir && start /usr/bin/weir && expect "$(ask u1)" '429 0' && expect "$(ask u2)" '200 1' other
}

python() {
  cd /tmp && printf 'rules:\n  - { id: one, match: { event: e }, by: [key], limits: [ "1 per 1d" ] }\n' >/tmp/rules.yaml && python3 - <<-'END'
	from importlib.metadata import version
	from weir import Weir

	served = Weir.connect("redis://127.0.0.1:6380")
	assert not served.check(event="packaged", key="u1").allowed
	assert served.check(event="packaged", key="u3").allowed
	inside = Weir.open(rules="/tmp/rules.yaml")
	assert [inside.check(event="e", key="u1").allowed for _ in range(2)] == [True, False]
	print(version("weir"))
	END
}

status() {
  curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:8090/$1"
}

# The package has enabled the module. The workers run as www-data.
nginx_serves_and_refuses() {
  [ -L /etc/nginx/modules-enabled/50-mod-http-weir.conf ] || { echo 'the module is not enabled'; return 1; }
  rm -f /etc/nginx/sites-enabled/default
  printf 'rules:\n  - { id: one, match: { path: /limited }, by: [ip], limits: [ { algorithm: fixed_window, max: 2, per: 1d } ] }\n' \
    >/etc/weir/rules.yaml
  cat >/etc/nginx/conf.d/limits.conf <<-END
	weir_zone api 1m rules=/etc/weir/rules.yaml;
	server { listen 127.0.0.1:8090; root /var/www/limits; location / { weir api; } }
	END
  mkdir -p /var/www/limits && echo yes | tee /var/www/limits/limited >/var/www/limits/free && nginx -t && nginx &&
    expect "$(status limited) $(status limited) $(status limited) $(status free)" '200 200 429 200' && nginx -s quit
}

remove() {
  rm -rf /etc/nginx/conf.d/limits.conf /etc/weir/rules.yaml /var/www/limits /tmp/rules.yaml
  stop && apt-get remove -y -qq weir 'libweir*' libnginx-mod-http-weir python3-weir && ! command -v weir && [ -e /etc/weir/serve.yaml ] &&
    [ -e /var/lib/weir/rules.db ] && [ ! -e /etc/nginx/modules-enabled/50-mod-http-weir.conf ] && nginx -t
}

purge() {
  local left
  # The others have no configuration, so that dpkg knows them no more.
  apt-get purge -y -qq weir libnginx-mod-http-weir || return
  left=$(find / /run \( -path /proc -o -path /sys -o -path /packages \) -prune -o -name '*weir*' -print)
  expect "$left" '' 'files that stay' && ! dpkg-query -W '*weir*' 2>/dev/null | grep weir && id weir
}

tap 'they install' install_packages
tap 'manual pages and completion are where they are looked for' manual_and_completion
tap 'the service has a user without rights' user_is_there
tap 'systemd accepts the units' units
tap 'the service starts as its unit says' start /usr/bin/weir
tap 'it counts' first_decisions
tap 'an upgrade leaves the service and its configuration alone' upgrade
tap 'counts and rules stay after the restart' counts_and_rules_stay
tap 'counts stay after a boot' counts_stay_after_a_boot
tap 'the client for Python asks, and decides' python
tap 'nginx serves and refuses' nginx_serves_and_refuses
tap 'they can be removed; rules, counts and configuration stay' remove
tap 'purge leaves nothing but the user' purge
