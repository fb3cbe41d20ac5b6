// node web_program.mjs FOLDER: runs the program of the folder with calls of calls.safetensors, and calls it wrongly.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

const folder = process.argv[2];
const { open, readTensors, zeros, ProgramError } = await import(`${folder}/program.js`);
const module = await WebAssembly.compile(await readFile(`${folder}/program.wasm`));
const weights = await readFile(`${folder}/program.safetensors`);
assert.deepEqual(WebAssembly.Module.imports(module), []);

const calls = readTensors(await readFile(`${folder}/calls.safetensors`));
const tensor = (call, name) => calls[`${call}.${name}`];
const names = ["x", "ids", "keep", "total"];
const inputs = (call) => Object.fromEntries(names.map((name) => [name, tensor(call, name)]));
const check = (program, call) => {
  const given = inputs(call);
  program.run(given).forEach((result, i) => assert.deepEqual(result, tensor(call, `result.${i}`)));
  return given.total.data[0];
};

// results, and inputs that are written in place
const program = await open(module, weights);
assert.equal(check(program, 0), tensor(0, "total.after").data[0]);
check(program, 1);
assert.deepEqual(program.inputs.map((each) => each.name), names);
assert.deepEqual(program.inputs[0], { name: "x", dtype: "float32", shape: [-1, 4], updated: false });
assert(program.memory > 0);

// state: to another program, by name, and again from the seed
const second = await open(module), saved = program.save();
second.load(saved);
assert.deepEqual(second.save(), saved);
const given = inputs(1), [expected] = program.run(given), [actual] = second.run(inputs(1));
assert.deepEqual(actual, expected);
program.seed(6);
check(program, 0);
const name = "embedding.w", table = second.get(name);
assert.deepEqual(table.shape, [5, 4]);
second.set(name, table.data.map(() => 1.5));
assert.deepEqual([...second.get(name).data], Array(20).fill(1.5));
assert.deepEqual(second.get("random.0").data[0], 6n);
assert.equal(readTensors(second.save())[name].data[19], 1.5);
assert.deepEqual(readTensors(weights)[name], program.get(name));

// errors, which change nothing
const fails = (call, code, text) => assert.throws(call, (error) => {
  assert(error instanceof ProgramError, error);
  assert.deepEqual([error.code, error.message], [code, text]);
  return true;
});
const run = (changes) => () => program.run({ ...inputs(0), ...changes });
const before = program.save();
fails(run({ x: undefined }), 3, "the input 'x' is missing; the program takes 'x', 'ids', 'keep', 'total'");
fails(run({ y: 1 }), 7, "there is no input 'y'; the program takes 'x', 'ids', 'keep', 'total'");
fails(run({ x: 1 }), 4, "'x' is of type number; expected Float32Array, for float32");
fails(run({ x: null }), 4, "'x' is of type object; expected Float32Array, for float32");
fails(run({ x: new Float64Array(12) }), 4, "'x' is of type Float64Array; expected Float32Array, for float32");
fails(run({ ids: new Int32Array(3) }), 4, "'ids' is of type Int32Array; expected BigInt64Array, for int64");
fails(run({ x: new Float32Array(12) }), 5, "'x' has open sizes; expected {data, shape}");
fails(run({ x: { data: new Float32Array(11), shape: [3, 4] } }), 5, "'x' has 11 items, which are no [3,4] of float32");
fails(run({ x: { data: new Float32Array(1), shape: [0.5, 2] } }), 5, "'x' has 1 items, which are no [0.5,2] of float32");
fails(run({ x: { data: new Float32Array(12), shape: [12] } }), 5, "'x' has 1 axes; expected 2");
fails(run({ x: { data: new Float32Array(1), shape: Array(12).fill(1) } }), 5, "'x' has 12 axes; expected 2");
fails(run({ x: { data: new Float32Array(12), shape: [4, 3] } }), 5, "axis 1 of 'x' has the size 3; expected 4");
fails(run({ x: { data: new Float32Array(8), shape: [-2, -4] } }), 5, "axis 0 of 'x' has the size -2; expected -1");
fails(run({ ids: zeros({ dtype: "int64", shape: [2] }) }), 5, "axis 0 of 'ids' has the size 2; expected 3");
fails(() => program.get("weight"), 7, "there is no state or constant 'weight' in mixed");
fails(() => program.set(name, new Float32Array(19)), 5, "'embedding.w' has 19 items, which are no [5,4] of float32");
fails(() => program.set(name, { data: new Float32Array(20), shape: [4, 5] }), 5,
  "'embedding.w' has the shape [4,5]; expected [5,4]");
fails(() => program.load(weights.subarray(0, -1)), 11, "the file is not a whole file in the safetensors format");
fails(() => program.load(new Uint8Array()), 11, "the file is not a whole file in the safetensors format");
fails(() => zeros({ dtype: "float8", shape: [] }), 4, "there is no dtype 'float8'");
assert.deepEqual(program.save(), before);
const empty = await open(module);
fails(() => empty.run(inputs(0)), 8, "'embedding.w' has no values; load weights first");
program.close();
program.close();
fails(() => program.run(inputs(0)), 2, "the program is closed");
