#!/bin/sh
# app.sh FOLDER: runs an unchanged Apache httpd on ADDRESS:PORT (127.0.0.1:8080 if not set). The agent's --mount-path must
# be FOLDER/config; whatever Apache writes goes to FOLDER too. Needs no root.
# Debian: apache2-bin
set -eu
export FOLDER ADDRESS="${ADDRESS:-127.0.0.1}" PORT="${PORT:-8080}"
FOLDER=$(cd "${1:?give the folder whose sub-folder config is the --mount-path}" && pwd)
mkdir -p "$FOLDER/www"
echo page >"$FOLDER/www/index.html"
exec /usr/sbin/apache2 -D FOREGROUND -d "$FOLDER" -f "$(cd "$(dirname "$0")" && pwd)/apache2.conf"
