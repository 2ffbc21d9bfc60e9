#!/usr/bin/perl
# Reads its configuration from Nudge's agent, at start and again whenever the agent sends SIGUSR1.
use strict;
use warnings;
use JSON::PP qw(decode_json);
use POSIX qw(SIGUSR1 SIG_BLOCK sigprocmask sigsuspend);

$| = 1;

# The handler comes before the first fetch: a change between the two would otherwise be missed, as the agent sends no signal
# to a process without a handler. Between two waits the signal is blocked, so that none is missed either.
$SIG{USR1} = sub { };
sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGUSR1));

# Fetches the dictionary and prints what this application wants from it. `nudge-agent get` needs no module for TLS.
sub show {
    my $reply = qx(nudge-agent get);
    return if $?;
    my $config = decode_json($reply);
    printf "pid %d: %s greeting=%s lives=%s\n", $$, @$config{qw(nudge.configs greeting lives)};
    return 1;
}

while (1) {
    # On failure the agent may be restarting: keep the old configuration and try again.
    sleep 1 until show();
    sigsuspend(POSIX::SigSet->new);
}
