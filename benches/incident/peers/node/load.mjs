// As load.py, with the vendor's SDK for Node; each call is a promise.
//
//     load.mjs FOLDER URL RATE SECONDS [SETTING=VALUE ...]        FOLDER has node_modules
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const [folder, serverUrl, rate, seconds, ...settings] = process.argv.slice(2);
const { Experiment } = createRequire(`${folder}/`)('@amplitude/experiment-node-server');
const logger = { error() {}, warn() {}, info() {}, debug() {}, verbose() {} };
const config = { serverUrl, loggerProvider: logger };
for (const setting of settings) {
  const [name, value] = setting.split('=');
  config[name.replace(/_(.)/g, (_, letter) => letter.toUpperCase())] = Number(value);
}
const client = Experiment.initializeRemote('key', config);

async function outcome() {
  try {
    return Object.keys(await client.fetchV2({ user_id: 'user' })).length ? 'ok' : 'empty';
  } catch {
    return 'error';
  }
}

async function call(number) {
  const start = Date.now();
  const began = performance.now();
  const what = await outcome();
  console.log(JSON.stringify({ call: number, start, elapsed: performance.now() - began, outcome: what }));
}

for (let i = 0; i < 20; i++) await outcome();
console.log('ready');
const orders = createInterface(process.stdin);
await new Promise((begin) => orders.once('line', begin));
orders.close();
const begin = performance.now();
for (let number = 0; number < rate * seconds; number++) {
  await sleep(Math.max(0, begin + (number / rate) * 1000 - performance.now()));
  call(number);
}
