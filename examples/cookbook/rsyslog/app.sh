#!/bin/sh
# app.sh FOLDER: runs an unchanged rsyslog, which takes messages by TCP on ADDRESS:PORT (127.0.0.1:5140 if not set) and
# writes them to FOLDER/messages. The agent's --mount-path must be FOLDER/config. Needs no root.
# Debian: rsyslog
set -eu
folder=$(cd "${1:?give the folder whose sub-folder config is the --mount-path}" && pwd)
cat >"$folder/rsyslog.conf" <<END
module(load="imtcp")
global(workDirectory="$folder")
lookup_table(name="owners" file="$folder/config/owners.json" reloadOnHUP="on")
template(name="line" type="string" string="%\$.owner% %programname%%msg%\\n")
set \$.owner = lookup("owners", \$programname);
action(type="omfile" file="$folder/messages" template="line")
input(type="imtcp" address="${ADDRESS:-127.0.0.1}" port="${PORT:-5140}")
END
exec /usr/sbin/rsyslogd -n -f "$folder/rsyslog.conf" -i NONE
