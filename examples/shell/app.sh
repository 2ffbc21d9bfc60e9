#!/bin/sh
# Reads its configuration from Nudge's agent, at start and again whenever the agent sends SIGUSR1.
set -u

# A switch may come between two of these requests, so they count only if the versions are the same before and after.
show() {
    until
        configs=$(nudge-agent get nudge.configs) &&
            greeting=$(nudge-agent get greeting) &&
            lives=$(nudge-agent get lives) &&
            again=$(nudge-agent get nudge.configs) || return
        [ "$again" = "$configs" ]
    do :; done
    printf 'pid %s: %s greeting=%s lives=%s\n' "$$" "$configs" "$greeting" "$lives"
}

changed=
sleeper=
# KILL, because the child may not be `sleep` yet but still the shell, whose trap would swallow TERM.
wake() { [ -z "$sleeper" ] || { kill -KILL "$sleeper" && wait "$sleeper"; } 2>/dev/null; }

# The trap comes before the first fetch: a change between the two would otherwise be missed, as the agent sends no
# signal to a process without a handler.
trap 'changed=yes; wake' USR1
trap 'wake; exit 0' TERM INT

show || exit
while :; do
    # A trap waits for the command in the foreground to end, but it ends `wait` at once: so sleep in the background.
    # The sleep begins before `changed` is checked, because a signal after that check must find a process to end.
    sleep 60 &
    sleeper=$!
    if [ "$changed" ]; then
        changed=
        # On failure the agent may be restarting: keep the old configuration and try again.
        show || { sleep 1; changed=yes; wake; }
    fi
    wait "$sleeper" 2>/dev/null
done
