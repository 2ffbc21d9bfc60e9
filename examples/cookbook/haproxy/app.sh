#!/bin/sh
# app.sh FOLDER: runs an unchanged HAProxy on ADDRESS:PORT (127.0.0.1:8080 if not set). The agent's --mount-path must be
# FOLDER/config. Needs no root.
# Debian: haproxy
set -eu
folder=$(cd "${1:?give the folder whose sub-folder config is the --mount-path}" && pwd)
export ADDRESS="${ADDRESS:-127.0.0.1}" PORT="${PORT:-8080}"
# -W: a master, which reloads on SIGUSR2, and workers. -db: stay in the foreground.
exec /usr/sbin/haproxy -W -db -f "$folder/config/haproxy.cfg"
