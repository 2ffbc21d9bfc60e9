#!/bin/sh
# app.sh FOLDER: runs an unchanged PgBouncer on ADDRESS:PORT (127.0.0.1:6432 if not set). The agent's --mount-path must be
# FOLDER/config. Refuses root, as PgBouncer does.
# Debian: pgbouncer
set -eu
folder=$(cd "${1:?give the folder whose sub-folder config is the --mount-path}" && pwd)
# What a reload can't change stands here. %include takes a whole path.
cat >"$folder/pgbouncer.ini" <<END
[pgbouncer]
listen_addr = ${ADDRESS:-127.0.0.1}
listen_port = ${PORT:-6432}
unix_socket_dir =
auth_type = any
; A login that a reload cuts short counts as failed, and clients are refused until the next one: by default for 15 s.
server_login_retry = 1
log_connections = 0
log_disconnections = 0
%include $folder/config/pgbouncer.ini
END
exec /usr/sbin/pgbouncer "$folder/pgbouncer.ini"
