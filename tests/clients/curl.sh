#!/bin/sh
# Prints the dictionary. Trusts MY_CONFIG_CERT alone: without --capath curl would keep trusting the system's folder.
# The token comes by standard input, because a command line can be seen by everybody on the machine.
set -eu
printf 'Authorization: Bearer %s\n' "$MY_CONFIG_TOKEN" |
    curl --disable --silent --show-error --fail --max-time 10 --noproxy '*' --proto =https \
        --cacert "$MY_CONFIG_CERT" --capath /nonexistent --header @- "$MY_CONFIG_ENDPOINT"
