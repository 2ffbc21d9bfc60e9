#!/bin/sh
# app.sh FOLDER: runs an unchanged nginx on NGINX_ADDRESS (127.0.0.1 if not set), port NGINX_PORT (8080 if not set). The agent's --mount-path must
# be FOLDER/config; whatever nginx writes goes to FOLDER too. Needs no root.
set -eu
folder=${1:?give the folder whose sub-folder config is the --mount-path}
PATH=$PATH:/usr/sbin # where Debian has nginx, and where a user's PATH doesn't look

mkdir -p "$folder/temp"
folder=$(cd "$folder" && pwd) # nginx takes a relative -c from -p
sed -e "s/@ADDRESS@/${NGINX_ADDRESS:-127.0.0.1}/" -e "s/@PORT@/${NGINX_PORT:-8080}/" "$(dirname "$0")/nginx.conf.template" >"$folder/nginx.conf"
# `exec`, so that nginx is the agent's child itself. `-e`, or it tries /var/log/nginx before it has read the file.
exec nginx -e stderr -p "$folder" -c "$folder/nginx.conf"
