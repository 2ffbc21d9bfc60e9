<?php
// Reads its configuration from Nudge's agent, at start and again whenever the agent sends SIGUSR1. For programs on the
// command line: workers of queues, daemons. Pages are served by php-fpm, which has a recipe in the cookbook.

// First of all: until then PHP has a handler of its own, which ends the program. The agent looks for a handler. The signal
// is blocked all the same, so that one that comes a moment before the wait ends the wait.
pcntl_signal(SIGUSR1, fn () => null);
pcntl_sigprocmask(SIG_BLOCK, [SIGUSR1]);

/** The pod's token: from the environment where the cluster can put it there, else from a file. */
function token(): string
{
    return getenv('MY_CONFIG_TOKEN') ?: file_get_contents(getenv('MY_CONFIG_TOKEN_FILE'));
}

/** Fetches the dictionary and prints what this application wants from it. */
function show(): bool
{
    $headers = ['Authorization: Bearer ' . token()];
    if (getenv('MY_CONFIG_CONTAINER')) {
        $headers[] = 'Nudge-Container: ' . getenv('MY_CONFIG_CONTAINER');
    }
    // Trusts only the pod's own authority.
    $options = ['http' => ['header' => $headers, 'timeout' => 10], 'ssl' => ['cafile' => getenv('MY_CONFIG_CERT')]];
    $reply = file_get_contents(getenv('MY_CONFIG_ENDPOINT'), false, stream_context_create($options));
    if ($reply === false) {
        return false;
    }
    $config = json_decode($reply, true, flags: JSON_THROW_ON_ERROR);
    $versions = $config['nudge.configs'];
    printf("pid %d: %s greeting=%s lives=%s\n", getmypid(), $versions, $config['greeting'], $config['lives']);
    return true;
}

while (true) {
    // On failure the agent may be restarting: keep the old configuration and try again.
    while (!show()) {
        sleep(1);
    }
    pcntl_sigwaitinfo([SIGUSR1]);
}
