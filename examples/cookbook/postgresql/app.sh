#!/bin/sh
# app.sh FOLDER: runs an unchanged PostgreSQL on ADDRESS:PORT (127.0.0.1:5432 if not set). The agent's --mount-path must be
# FOLDER/config; the data is in FOLDER/data, made at the first start. Refuses root, as PostgreSQL does.
# Debian: postgresql-15
set -eu
folder=$(cd "${1:?give the folder whose sub-folder config is the --mount-path}" && pwd)
for bin in /usr/lib/postgresql/*/bin; do :; done
if [ ! -e "$folder/data/PG_VERSION" ]; then
    "$bin/initdb" --pgdata="$folder/data" --username=postgres --auth=trust --encoding=UTF8 --locale=C --no-sync >/dev/null
    # Beside what initdb wrote; the last one wins.
    echo "include '$folder/config/shop.conf'" >>"$folder/data/postgresql.conf"
fi
exec "$bin/postgres" -D "$folder/data" -h "${ADDRESS:-127.0.0.1}" -p "${PORT:-5432}" -k "$folder"
