#!/bin/sh
# app.sh FOLDER: runs an unchanged php-fpm on ADDRESS:PORT (127.0.0.1:9000 if not set), for a web server that speaks
# FastCGI. The agent's --mount-path must be FOLDER/config. Needs no root.
# Debian: php8.2-fpm
set -eu
folder=$(cd "${1:?give the folder whose sub-folder config is the --mount-path}" && pwd)
for php in /usr/sbin/php-fpm8*; do :; done
cat >"$folder/php-fpm.conf" <<END
[global]
daemonize = no
error_log = $folder/php-fpm.log
; Without it, workers end in the middle of a request when php-fpm reloads.
process_control_timeout = 10s
[www]
listen = ${ADDRESS:-127.0.0.1}:${PORT:-9000}
include = $folder/config/pool.conf
END
exec "$php" --nodaemonize --fpm-config "$folder/php-fpm.conf"
