// Prints the dictionary, verified by Node.js, trusting MY_CONFIG_CERT alone.

import { readFileSync } from 'node:fs';
import { get } from 'node:https';
import { env, exit, stderr, stdout } from 'node:process';
import { buffer } from 'node:stream/consumers';

function fail(error) {
  stderr.write(`node.mjs: ${error.message}\n`);
  exit(1);
}

const options = {
  ca: readFileSync(env.MY_CONFIG_CERT),
  headers: { authorization: `Bearer ${env.MY_CONFIG_TOKEN}` },
  signal: AbortSignal.timeout(10_000),
  agent: false, // no kept connection to wait for at the end
};

get(env.MY_CONFIG_ENDPOINT, options, (reply) => {
  if (reply.statusCode !== 200) fail(new Error(`status ${reply.statusCode}`));
  buffer(reply).then((body) => stdout.write(body), fail);
}).on('error', fail);
