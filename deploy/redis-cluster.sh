#!/usr/bin/env bash
# A real Redis Cluster on loopback, for development, tests and benchmarks. It keeps nothing on disk and needs no root.
set -euo pipefail

readonly READY_TIMEOUT_S=30
readonly MARKER=.tollgate-redis-cluster

usage() {
  cat <<'USAGE'
Usage: redis-cluster.sh start [--primaries 3] [--replicas 1] [--port 7000] [--dir DIR]
       redis-cluster.sh status [--dir DIR]
       redis-cluster.sh stop [--dir DIR]

start   starts primaries and replicas (--replicas for each primary) on ports from --port upwards, joins them, waits until
        every node is ready, and prints the redis-cluster:// URL on standard output
status  prints each node's role and state, then the URL; exits with 1 where a node is not ready
stop    ends the nodes that start started, and removes DIR

DIR holds the nodes' files: ${XDG_RUNTIME_DIR:-/tmp}/tollgate-redis-cluster-UID where --dir names no other.
A node on port P also listens on P + 10000, the cluster bus.
USAGE
}

say() { printf '%s\n' "$*" >&2; }

die() {
  say "redis-cluster.sh: $*"
  exit 1
}

# die_showing LOG MESSAGE: with the last lines of the log.
die_showing() {
  say "redis-cluster.sh: $2:"
  tail -n 3 "$1" | sed 's/^/  /' >&2
  exit 1
}

die_usage() {
  say "redis-cluster.sh: $*; see: $0 --help"
  exit 2
}

# parse_number OPTION TEXT MIN MAX: prints the number.
parse_number() {
  if [[ ! $2 =~ ^[0-9]{1,5}$ ]] || ((10#$2 < $3 || 10#$2 > $4)); then
    die_usage "$1 is '$2', but must be a whole number from $3 to $4"
  fi
  printf '%d' "$((10#$2))"
}

parse_options() {
  primaries=3 replicas=1 port=7000 dir=${XDG_RUNTIME_DIR:-/tmp}/tollgate-redis-cluster-$UID
  while (($# > 0)); do
    (($# > 1)) || die_usage "'$1' is not an option, or lacks its value"
    case $command$1 in
      start--primaries) primaries=$(parse_number "$1" "$2" 3 100) ;; # Redis refuses a cluster of fewer than 3.
      start--replicas) replicas=$(parse_number "$1" "$2" 0 9) ;;
      start--port) port=$(parse_number "$1" "$2" 1 55535) ;;
      *--dir) dir=$2 ;;
      *) die_usage "'$1' is not an option of $command" ;;
    esac
    shift 2
  done
  node_count=$((primaries * (replicas + 1)))
  ((port + node_count - 1 <= 55535)) || die_usage "--port $port leaves no room for $node_count nodes below 55536"
}

require_tools() {
  local tool
  for tool in redis-server redis-cli; do
    command -v "$tool" >/dev/null || die "$tool is missing; install it, e.g.: apt-get install redis-server"
  done
  command -v timeout >/dev/null || die "timeout is missing; install coreutils"
}

# Ports of the nodes in $dir, one a line.
ports() {
  local node
  for node in "$dir"/[0-9]*/; do
    basename "$node"
  done | sort -n
}

# redis PORT COMMAND…: a node that hangs fails after 2 s.
redis() { timeout 2 redis-cli -h 127.0.0.1 -p "$@" 2>/dev/null; }

# The command line of process $1, where it runs: from /proc, or by ps where there is none.
command_line() { { tr '\0' ' ' <"/proc/$1/cmdline" || ps -o command= -p "$1"; } 2>/dev/null; }

# The process of the node on port $1, if it runs. A pid that another program got since is not it.
node_pid() {
  local pid
  pid=$(cat "$dir/$1/redis.pid" 2>/dev/null) || return 1
  [[ $(command_line "$pid") == *redis-server\ *:"$1"\ * ]] || return 1
  printf '%s' "$pid"
}

is_free() { ! (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

is_gone() { ! node_pid "$1" >/dev/null; }

answers() { [[ $(redis "$1" ping) == PONG ]]; }

# Whether the node on port $1 sees the whole cluster in order; a replica also holds its primary's data.
is_ready() {
  local cluster replication
  cluster=$(redis "$1" cluster info) && replication=$(redis "$1" info replication) || return 1
  [[ $cluster == *cluster_state:ok* && $cluster == *"cluster_known_nodes:$(ports | wc -l)"$'\r'* ]] || return 1
  [[ $replication == *role:master* || $replication == *master_link_status:up* ]]
}

# wait_until PORT COMMAND WHAT: until COMMAND says yes of the node on PORT.
wait_until() {
  local deadline_s=$((SECONDS + READY_TIMEOUT_S))
  until "$2" "$1"; do
    ((SECONDS < deadline_s)) || die_showing "$dir/$1/redis.log" "the node on port $1 $3 after $READY_TIMEOUT_S s"
    sleep 0.1
  done
}

url() {
  local list
  list=$(ports | sed 's/^/127.0.0.1:/' | paste -s -d , -)
  printf 'redis-cluster://%s\n' "$list"
}

stop_command() { printf '%q stop --dir %q' "$0" "$dir"; }

start_node() {
  mkdir "$dir/$1"
  cat >"$dir/$1/redis.conf" <<CONF
port $1
bind 127.0.0.1
protected-mode no
daemonize yes
pidfile redis.pid
logfile redis.log
save ""
appendonly no
maxmemory-policy noeviction
lazyfree-lazy-expire yes
repl-diskless-sync yes
repl-diskless-sync-delay 0
cluster-enabled yes
cluster-config-file nodes.conf
cluster-node-timeout 2000
cluster-require-full-coverage no
CONF
  (cd "$dir/$1" && redis-server redis.conf >start.log 2>&1) ||
    die_showing "$dir/$1/start.log" "redis-server on port $1 did not start"
}

join_nodes() {
  local port addresses=()
  for port in $(ports); do
    addresses+=("127.0.0.1:$port")
  done
  timeout "$READY_TIMEOUT_S" redis-cli --cluster create "${addresses[@]}" \
    --cluster-replicas "$replicas" --cluster-yes >"$dir/create.log" 2>&1 ||
    die_showing "$dir/create.log" "redis-cli --cluster create failed"
}

end_nodes() {
  local port pid
  for port in $(ports); do
    # Nothing is kept, so nothing needs an orderly end; a stopped process ends too.
    if pid=$(node_pid "$port"); then
      kill -KILL "$pid"
      wait_until "$port" is_gone "is not gone"
    fi
  done
  rm -rf -- "$dir"
}

start() {
  local last=$((port + node_count - 1)) node
  require_tools
  [[ ! -O $dir/$MARKER ]] || die "a cluster was started in $dir already; end it with: $(stop_command)"
  [[ ! -e $dir ]] || die "$dir exists and is not of this script; choose another with --dir"
  for ((node = port; node <= last; node++)); do
    is_free "$node" || die "port $node is taken; choose other ports with --port"
    is_free "$((node + 10000))" || die "port $((node + 10000)) is taken; choose other ports with --port"
  done
  mkdir -m 700 "$dir" || die "cannot make $dir; choose another with --dir"
  trap end_nodes EXIT
  : >"$dir/$MARKER"
  for ((node = port; node <= last; node++)); do
    start_node "$node"
  done
  for ((node = port; node <= last; node++)); do
    wait_until "$node" answers "does not answer"
  done
  join_nodes
  for ((node = port; node <= last; node++)); do
    wait_until "$node" is_ready "is not ready"
  done
  trap - EXIT
  say "$primaries primaries and $((node_count - primaries)) replicas run in $dir; end them with: $(stop_command)"
  url
}

status() {
  local port role state ready=0
  [[ -O $dir/$MARKER ]] || die "no cluster was started in $dir"
  for port in $(ports); do
    role=$(redis "$port" role | sed -n '1s/master/primary/; 1s/slave/replica/; 1p') || role=-
    if is_ready "$port"; then state=ready; elif is_gone "$port"; then state=down; else state="not ready"; fi
    [[ $state == ready ]] || ready=1
    printf '127.0.0.1:%s %s %s\n' "$port" "$role" "$state"
  done
  url
  return "$ready"
}

stop() {
  [[ -O $dir/$MARKER ]] || {
    say "no cluster was started in $dir"
    return
  }
  end_nodes
}

case ${1:-} in
  start | status | stop)
    command=$1
    shift
    parse_options "$@"
    "$command"
    ;;
  -h | --help | help) usage ;;
  *) die_usage "say start, status or stop" ;;
esac
