#!/bin/sh
# app.sh FOLDER: runs an unchanged OpenSSH server on ADDRESS:PORT (127.0.0.1:2222 if not set). The agent's --mount-path
# must be FOLDER/config; its key is in FOLDER. Needs no root, and then lets only its own user in.
# Debian: openssh-server
set -eu
folder=$(cd "${1:?give the folder whose sub-folder config is the --mount-path}" && pwd)
[ -e "$folder/key" ] || ssh-keygen -q -t ed25519 -N "" -f "$folder/key"
cat >"$folder/sshd_config" <<END
ListenAddress ${ADDRESS:-127.0.0.1}
Port ${PORT:-2222}
HostKey $folder/key
PidFile none
UsePAM no
Include $folder/config/*.conf
END
# With its whole path: on SIGHUP it starts itself anew. -D: stay in the foreground. -e: log to standard error.
exec /usr/sbin/sshd -D -e -f "$folder/sshd_config"
