// node wasm.mjs FOLDER: runs the program of a folder for a browser; for each line of standard input, that many times.
// Writes the processor's time of a run in ms.
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";

const folder = process.argv[2];
const { open, zeros } = await import(`${folder}/program.js`);
const weights = await readFile(`${folder}/program.safetensors`).catch(() => undefined); // a program without state
const program = await open(await readFile(`${folder}/program.wasm`), weights);
const inputs = Object.fromEntries(program.inputs.map((each) => [each.name, zeros(each)]));
for await (const line of createInterface({ input: process.stdin })) {
  const before = process.cpuUsage(), count = Number(line);
  for (let i = 0; i < count; ++i) program.run(inputs);
  const { user, system } = process.cpuUsage(before);
  console.log((user + system) / 1000 / count);
}
