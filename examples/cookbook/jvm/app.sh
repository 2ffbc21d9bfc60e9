#!/bin/sh
# app.sh FOLDER: runs App.java on ADDRESS:PORT (127.0.0.1:8080 if not set). The agent's --mount-path must be
# FOLDER/config. Needs no root.
# Debian: default-jdk-headless
set -eu
folder=$(cd "${1:?give the folder whose sub-folder config is the --mount-path}" && pwd)
export ADDRESS="${ADDRESS:-127.0.0.1}" PORT="${PORT:-8080}"
exec java -Xmx64m "$(cd "$(dirname "$0")" && pwd)/App.java" "$folder/config"
