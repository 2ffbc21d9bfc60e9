#!/bin/sh
# app.sh FOLDER: runs an unchanged Unbound on ADDRESS:PORT (127.0.0.1:5353 if not set). The agent's --mount-path must be
# FOLDER/config. Needs no root.
# Debian: unbound
set -eu
folder=$(cd "${1:?give the folder whose sub-folder config is the --mount-path}" && pwd)
# What a reload can't change stands here.
cat >"$folder/unbound.conf" <<END
server:
    interface: ${ADDRESS:-127.0.0.1}
    port: ${PORT:-5353}
    username: ""
    chroot: ""
    directory: "$folder"
    pidfile: ""
    use-syslog: no
    num-threads: 1
include: "$folder/config/zones.conf"
END
exec /usr/sbin/unbound -d -p -c "$folder/unbound.conf"
