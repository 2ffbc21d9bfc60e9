#!/bin/sh
# app.sh FOLDER: runs an unchanged Prometheus on ADDRESS:PORT (127.0.0.1:8080 if not set). The agent's --mount-path must
# be FOLDER/config; the data goes to FOLDER/data. Needs no root.
# Debian: prometheus
set -eu
folder=$(cd "${1:?give the folder whose sub-folder config is the --mount-path}" && pwd)
exec prometheus --config.file="$folder/config/prometheus.yml" --storage.tsdb.path="$folder/data" \
    --web.listen-address="${ADDRESS:-127.0.0.1}:${PORT:-8080}" --log.level=warn
