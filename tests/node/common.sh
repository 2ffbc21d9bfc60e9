# Shared by the scripts of this folder; sourced, never run. It says where things live, which addresses the
# node uses, and holds the few functions that more than one script needs. All of them take NODE_HOME, below which lies
# everything that they write, and NODE_STATE, another place for what belongs to the running node.
# shellcheck shell=bash disable=SC2034

TOOL=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
NODE_HOME=$(realpath -m "${NODE_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/nudge-node}")
RUNTIME=$NODE_HOME/runtime          # from debian-runtime
STATE=$(realpath -m "${NODE_STATE:-$NODE_HOME/node}") # the running node; down --wipe removes it
PKI=$STATE/pki
LOGS=$STATE/logs
ADMIN_KUBECONFIG=$STATE/kubeconfig

NODE=node1
CGROUP=nudge-node                   # all pods' control groups lie below this one
LINK=nudge-node                     # the host's end of the veth pair; while it exists, a node is up
LINK_NET=10.251.0.0/30
HOST_ADDRESS=10.251.0.1
NODE_ADDRESS=10.251.0.2
POD_NET=10.244.0.0/24
SERVICE_NET=10.96.0.0/16
API_VIP=10.96.0.1                   # the "kubernetes" service: simply an address of the node's lo

say() { echo "${0##*/}: $*" >&2; }
die() { echo "${0##*/}: $*" >&2; exit 1; }

# Prints the process id of the node's PID 1 as the host sees it; fails when no node of this NODE_HOME is up.
# The start time beside it distinguishes our process from a later one with the same number.
node_pid() {
    local pid started stat
    { read -r pid started <"$STATE/pid"; } 2>/dev/null || return 1
    { read -ra stat <"/proc/$pid/stat"; } 2>/dev/null || return 1
    [ "${stat[21]}" = "$started" ] && [ "${stat[2]}" != Z ] && echo "$pid"
}

# Says which state folder the node that is up belongs to; fails when none is up.
node_owner() { cat "/sys/class/net/$LINK/ifalias" 2>/dev/null; }

# Every control group hierarchy of the machine: one with cgroup v2, several with v1.
cgroup_roots() {
    if [ -f /sys/fs/cgroup/cgroup.procs ]; then echo /sys/fs/cgroup; return; fi
    local root
    for root in /sys/fs/cgroup/*/; do
        if [ -f "$root/cgroup.procs" ] && [ ! -L "${root%/}" ]; then echo "${root%/}"; fi
    done
}

# own_apt FOLDER ARGS...: apt-get with the sources.list, lists and cache of FOLDER. The machine's own sources and
# lists, and what it has installed, are neither looked at nor changed.
own_apt() {
    local folder=$1
    shift
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    touch "$folder/status"
    apt-get -qq -o Dir::Etc::SourceList="$folder/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::Etc::PreferencesParts=/dev/null -o Dir::State="$folder" -o Dir::State::Status="$folder/status" \
        -o Dir::Cache="$folder/cache" -o APT::Sandbox::User=root "$@"
}

# debian_mirror main|security: the address from which this machine gets Debian's packages, or its security updates;
# fails where apt has none.
debian_mirror() {
    local uri release
    # shellcheck disable=SC2016 # apt's variables, not the shell's
    while read -r uri release; do
        case $1/$release in security/*-security | main/*[!y]) echo "${uri%/}"; return ;; esac
    done < <(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        grep -v -e -updates -e -backports | grep -i debian)
    return 1
}

# need COMMAND=PACKAGE...: installs the packages whose command is missing on this machine.
need() {
    local pair packages=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || packages+=("${pair#*=}")
    done
    if [ ${#packages[@]} = 0 ]; then return; fi
    say "installing ${packages[*]}"
    local root=()
    [ "$(id -u)" = 0 ] || root=(sudo)
    "${root[@]}" apt-get -qq update || true
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null
}
