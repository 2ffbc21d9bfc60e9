// Reads its configuration from Nudge's agent, at start and again whenever the agent sends SIGUSR2.
// Not SIGUSR1: on that one Node.js starts its debugger.

import { on } from 'node:events';
import { readFileSync } from 'node:fs';
import { get } from 'node:https';
import { env, exit, pid } from 'node:process';
import { json } from 'node:stream/consumers';

const options = {
  ca: readFileSync(env.MY_CONFIG_CERT), // trusts the pod's own authority and nothing else
  headers: {
    // The token comes from the environment where the cluster can put it there, else from a file.
    authorization: `Bearer ${env.MY_CONFIG_TOKEN || readFileSync(env.MY_CONFIG_TOKEN_FILE, 'ascii')}`,
    // Shows the agent which container has read which version.
    ...(env.MY_CONFIG_CONTAINER && { 'nudge-container': env.MY_CONFIG_CONTAINER }),
  },
  agent: false, // a connection for each request: changes are rare, and the agent closes idle ones
};

function load() {
  return new Promise((resolve, reject) => {
    get(env.MY_CONFIG_ENDPOINT, { ...options, signal: AbortSignal.timeout(10_000) }, async (reply) => {
      try {
        const body = await json(reply);
        if (reply.statusCode !== 200) throw new Error(`${reply.statusCode}: ${body.message}`);
        resolve(body);
      } catch (error) {
        reject(error);
      }
    }).on('error', reject);
  });
}

async function show() {
  const config = await load();
  console.log(`pid ${pid}: ${config['nudge.configs']} greeting=${config.greeting} lives=${config.lives}`);
}

for (const stop of ['SIGTERM', 'SIGINT']) process.on(stop, () => exit(0));

// The handler comes before the first fetch: a change between the two would otherwise be missed, as the agent sends no
// signal to a process without a handler. `on` queues, so that fetches run one after another and the last one wins.
const changes = on(process, 'SIGUSR2');

// A wait for signals does not keep Node.js running; in a real application its server does.
setInterval(() => {}, 2 ** 31 - 1);

await show();
for await (const _ of changes) {
  try {
    await show();
  } catch (error) {
    // The agent may be restarting: keep the old configuration and try again.
    console.error(`configuration not read again yet: ${error.message}`);
    setTimeout(() => process.emit('SIGUSR2'), 1000);
  }
}
