#!/bin/sh
# app.sh FOLDER: runs an unchanged Mosquitto on ADDRESS:PORT (127.0.0.1:1883 if not set). The agent's --mount-path must be
# FOLDER/config. Needs no root.
# Debian: mosquitto
set -eu
folder=$(cd "${1:?give the folder whose sub-folder config is the --mount-path}" && pwd)
# What a reload can't change stands here.
cat >"$folder/mosquitto.conf" <<END
listener ${PORT:-1883} ${ADDRESS:-127.0.0.1}
allow_anonymous true
acl_file $folder/config/acl
log_dest stderr
END
exec /usr/sbin/mosquitto -c "$folder/mosquitto.conf"
