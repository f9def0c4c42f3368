// As load.py, with the vendor's SDK for Node; each call is a promise.
//
//     load.mjs FOLDER URL RATE SECONDS [SETTING=VALUE ...]        FOLDER has node_modules
//
// With a RATE such as `16x5` so many call so many times each, one call after the other.
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
const onlySleep = config.onlySleep;
const client = Experiment.initializeRemote('key', config);

async function outcome() {
  if (onlySleep) return sleep(onlySleep, 'ok');
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

async function load(rate, seconds) {
  const begin = performance.now();
  for (let number = 0; number < rate * seconds; number++) {
    await sleep(Math.max(0, begin + (number / rate) * 1000 - performance.now()));
    call(number);
  }
}

async function inTurns(first, turns) {
  for (let number = first; number < first + turns; number++) await call(number);
}

for (let i = 0; i < 20 && !onlySleep; i++) await outcome();
console.log('ready');
const orders = createInterface(process.stdin);
const began = await new Promise((over) => orders.once('line', () => over(true)).once('close', () => over(false)));
if (!began) process.exit(); // whoever started it is gone
orders.close();
const [callers, turns] = rate.split('x').map(Number);
if (turns) {
  for (let caller = 0; caller < callers; caller++) inTurns(caller * turns, turns);
} else {
  await load(Number(rate), Number(seconds));
}
