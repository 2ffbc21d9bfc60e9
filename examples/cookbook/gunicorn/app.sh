#!/bin/sh
# app.sh FOLDER: runs Gunicorn with app.py on ADDRESS:PORT (127.0.0.1:8080 if not set). The agent's --mount-path must be
# FOLDER/config. Needs no root.
# Debian: gunicorn
set -eu
folder=$(cd "${1:?give the folder whose sub-folder config is the --mount-path}" && pwd)
exec gunicorn --config "$folder/config/gunicorn.conf.py" --bind "${ADDRESS:-127.0.0.1}:${PORT:-8080}" \
    --chdir "$(cd "$(dirname "$0")" && pwd)" --worker-tmp-dir /dev/shm app:app
