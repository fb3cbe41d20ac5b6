// node web_training.mjs FOLDER STEPS: the losses of examples/web without a page, and the accuracy afterwards, as JSON.
import { readFile } from "node:fs/promises";

const [folder, steps] = process.argv.slice(2);
const { Training } = await import(`${folder}/training.js`);
const training = await Training.open((name) => readFile(`${folder}/${name}`));
const losses = Array.from({ length: Number(steps) }, () => training.step());
training.share();
const accuracy = training.accuracy();
training.restart();
console.log(JSON.stringify({ losses, accuracy, again: training.step() }));
