/**
 * Opens and runs a program that meta compiled to WebAssembly, in browsers and in Node.
 *
 *     import { open } from "./program.js";
 *     const program = await open("program.wasm", "program.safetensors");
 *     const [y] = program.run({ x: new Float32Array(784) });
 *
 * program.d.ts has the names and the arrays of this program. Errors have the codes and texts of meta_program.h.
 *
 * @typedef {{dtype: string, shape: number[], data: any}} Tensor
 * @typedef {{name: string, dtype: string, shape: number[], updated: boolean}} Parameter
 * @typedef {string | URL | Response | BufferSource} Source
 */

/** What meta_program.h has on a machine of 32 bits: alignment of tensors, largest number of axes, and bytes of structs. */
const ALIGNMENT = 64, MAX_AXES = 8;
const TENSOR = { bytes: 80, shape: 8, ndim: 72, dtype: 76 };
const PARAMETER = { name: 0, shape: 4, ndim: 8, dtype: 12, updated: 20 };
const INPUT = 0, STATE = 1, RANDOM = 2, CONSTANT = 3, RESULT = 4;

/**
 * The dtypes in the order of meta_dtype: the name, the name in files, the array, and its items for an element.
 * float16 and bfloat16 are their bits; complex64 is real and imaginary parts.
 * @type {[string, string, any, number][]}
 */
const DTYPES = [
  ["bool", "BOOL", Uint8Array, 1], ["uint8", "U8", Uint8Array, 1], ["uint16", "U16", Uint16Array, 1],
  ["uint32", "U32", Uint32Array, 1], ["uint64", "U64", BigUint64Array, 1], ["int8", "I8", Int8Array, 1],
  ["int16", "I16", Int16Array, 1], ["int32", "I32", Int32Array, 1], ["int64", "I64", BigInt64Array, 1],
  ["float16", "F16", Uint16Array, 1], ["bfloat16", "BF16", Uint16Array, 1], ["float32", "F32", Float32Array, 1],
  ["float64", "F64", Float64Array, 1], ["complex64", "C64", Float32Array, 2],
];

/** An error of a program. code: of meta_error in meta_program.h. */
export class ProgramError extends Error {
  static ARGUMENT = 2;
  static COUNT = 3;
  static DTYPE = 4;
  static SHAPE = 5;
  static NAME = 7;
  static MEMORY = 9;

  /** @param {number} code @param {string} text */
  constructor(code, text) {
    super(text);
    this.name = "ProgramError";
    this.code = code;
  }
}

/**
 * A program of its own state. The code and the weights are URLs, responses or bytes; the code may also be a
 * `WebAssembly.Module`. Programs whose weights are in the code need no others.
 * @param {Source | WebAssembly.Module} [code]
 * @param {Source} [weights] in the safetensors format
 */
export async function open(code = new URL("program.wasm", import.meta.url), weights) {
  const [module, values] = await Promise.all([compile(code), weights && read(weights)]);
  const program = new Program((await WebAssembly.instantiate(module, {})).exports);
  if (values) program.load(values);
  return program;
}

/** @param {Source | WebAssembly.Module} code */
async function compile(code) {
  return code instanceof WebAssembly.Module ? code : WebAssembly.compile(await read(code));
}

/** @param {Source} source @returns {Promise<BufferSource>} */
async function read(source) {
  const response = typeof source === "string" || source instanceof URL ? await fetch(source) : source;
  if (!(response instanceof Response)) return response;
  if (!response.ok) throw new Error(`${response.url} cannot be read: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

/**
 * The tensors of a file in the safetensors format, by name.
 * @param {BufferSource} file
 * @returns {Record<string, Tensor>}
 */
export function readTensors(file) {
  const bytes = toBytes(file);
  const start = 8 + Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const header = Object.entries(JSON.parse(new TextDecoder().decode(bytes.subarray(8, start))));
  return Object.fromEntries(header.filter(([name]) => name !== "__metadata__").map(([name, entry]) => {
    const found = DTYPES.find((row) => row[1] === entry.dtype);
    if (!found) throw new ProgramError(ProgramError.DTYPE, `'${name}' is ${entry.dtype} in the file`);
    const [dtype, , kind] = found;
    const data = bytes.slice(start + entry.data_offsets[0], start + entry.data_offsets[1]);
    return [name, { dtype, shape: entry.shape, data: new kind(data.buffer) }];
  }));
}

/**
 * A tensor of zeros.
 * @param {{dtype: string, shape: number[]}} parameter
 * @returns {Tensor}
 */
export function zeros({ dtype, shape }) {
  const [, , kind, items] = rowOf(dtype);
  return { dtype, shape, data: new kind(product(shape) * items) };
}

/** @param {string} dtype */
function rowOf(dtype) {
  const found = DTYPES.find((row) => row[0] === dtype);
  if (!found) throw new ProgramError(ProgramError.DTYPE, `there is no dtype '${dtype}'`);
  return found;
}

/** @param {BufferSource} data */
function toBytes(data) {
  return ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data);
}

class Program {
  /** @type {any} the functions of meta_program.h */ #c;
  /** the meta_program, 0 when it is closed */ #pointer = 0;
  /** the meta_tensors of calls */ #tensors = 0;
  /** @type {{pointer: number, bytes: number}[]} memory for the inputs */ #buffers = [];
  /** @type {Parameter[]} */ inputs;
  /** @type {Parameter[]} parameters, buffers, the state of an optimizer, random generators and constants */ state;
  /** @type {Parameter[]} */ results;

  /** @param {any} c */
  constructor(c) {
    this.#c = c;
    c._initialize();
    const out = this.#allocate(4);
    const code = Object.keys(c).find((name) => name.endsWith("_code")) ?? "";
    const status = c.meta_program_open(out, c[code].value, 0);
    if (status) throw new ProgramError(status, this.#text(c.meta_error_text(status)));
    this.#pointer = this.#view().getUint32(out, true);
    c.free(out);
    this.inputs = this.#parameters(INPUT);
    this.state = [STATE, RANDOM, CONSTANT].flatMap((role) => this.#parameters(role));
    this.results = this.#parameters(RESULT);
    this.#tensors = this.#allocate(TENSOR.bytes * (this.inputs.length + this.results.length + 1));
    this.#buffers = this.inputs.map(() => ({ pointer: 0, bytes: -1 }));
  }

  /** The bytes that the program has allocated. */
  get memory() {
    return this.#c.meta_program_memory(this.#opened()) >>> 0;
  }

  /**
   * Run once. An input is its elements, or `{data, shape}` where sizes are open. Inputs that the program updates are
   * written in place.
   * @param {Record<string, any>} inputs
   * @returns {Tensor[]}
   */
  run(inputs) {
    const program = this.#opened(), count = this.inputs.length;
    const unknown = Object.keys(inputs).find((name) => !this.inputs.some((each) => each.name === name));
    const missing = this.inputs.find(({ name }) => inputs[name] === undefined);
    const names = this.inputs.map(({ name }) => `'${name}'`).join(", ") || "no inputs";
    if (unknown !== undefined)
      throw new ProgramError(ProgramError.NAME, `there is no input '${unknown}'; the program takes ${names}`);
    if (missing)
      throw new ProgramError(ProgramError.COUNT, `the input '${missing.name}' is missing; the program takes ${names}`);
    const values = this.inputs.map((each) => elements(each, inputs[each.name]));
    values.forEach((value, i) => this.#fill(i, value));
    const results = this.#tensors + TENSOR.bytes * count;
    new Uint8Array(this.#c.memory.buffer, results, TENSOR.bytes * this.results.length).fill(0);
    this.#check(this.#c.meta_program_run(program, this.#tensors, count, results, this.results.length));
    this.inputs.forEach((each, i) => {
      if (each.updated) values[i].data.set(this.#tensor(this.#tensors + TENSOR.bytes * i).data);
    });
    return this.results.map((_, i) => this.#tensor(results + TENSOR.bytes * i));
  }

  /**
   * A copy of state, a generator or a constant.
   * @param {string} name
   */
  get(name) {
    return this.#tensor(this.#stateTensor(name));
  }

  /**
   * Write state, a generator or a constant.
   * @param {string} name
   * @param {any} value
   */
  set(name, value) {
    const tensor = this.#stateTensor(name);
    const { shape, dtype } = this.#tensor(tensor);
    const given = elements({ name, shape, dtype, updated: true }, value);
    if (given.shape.join() !== shape.join())
      throw new ProgramError(ProgramError.SHAPE, `'${name}' has the shape [${given.shape}]; expected [${shape}]`);
    new Uint8Array(this.#c.memory.buffer).set(toBytes(given.data), this.#view().getUint32(tensor, true));
  }

  /**
   * Read the tensors of a file in the safetensors format that the program has by name.
   * @param {BufferSource} file
   */
  load(file) {
    const program = this.#opened(), bytes = toBytes(file);
    this.#within(bytes.length, (pointer) => {
      new Uint8Array(this.#c.memory.buffer).set(bytes, pointer);
      this.#check(this.#c.meta_program_load_memory(program, pointer, bytes.length));
    });
  }

  /** State, generators and constants as a file in the safetensors format. */
  save() {
    const program = this.#opened(), bytes = this.#c.meta_program_save_memory(program, 0, 0) >>> 0;
    return this.#within(bytes, (pointer) => {
      this.#c.meta_program_save_memory(program, pointer, bytes);
      return new Uint8Array(this.#c.memory.buffer, pointer, bytes).slice();
    });
  }

  /**
   * Restart the random generators.
   * @param {number | bigint} seed
   */
  seed(seed) {
    this.#c.meta_program_seed(this.#opened(), BigInt(seed));
  }

  /** Free the program. Nothing else may be called afterwards. */
  close() {
    if (this.#pointer) this.#c.meta_program_close(this.#pointer);
    this.#pointer = 0;
    this.#c = null;
  }

  #opened() {
    if (!this.#pointer) throw new ProgramError(ProgramError.ARGUMENT, "the program is closed");
    return this.#pointer;
  }

  /** @param {number} status */
  #check(status) {
    if (status) throw new ProgramError(status, this.#text(this.#c.meta_program_error(this.#pointer)));
  }

  /** Memory may have moved after each call of a function of the program. */
  #view() {
    return new DataView(this.#c.memory.buffer);
  }

  /** @param {number} pointer of a string that ends with 0 */
  #text(pointer) {
    const bytes = new Uint8Array(this.#c.memory.buffer);
    const start = pointer >>> 0;
    return new TextDecoder().decode(bytes.subarray(start, bytes.indexOf(0, start)));
  }

  /** @param {number} bytes */
  #allocate(bytes) {
    const rounded = Math.ceil(Math.max(bytes, 1) / ALIGNMENT) * ALIGNMENT;
    const pointer = this.#c.aligned_alloc(ALIGNMENT, rounded) >>> 0;
    if (!pointer) throw new ProgramError(ProgramError.MEMORY, `memory ran out: ${bytes} bytes are needed`);
    return pointer;
  }

  /**
   * Call a function with memory that is freed afterwards.
   * @template T
   * @param {number} bytes
   * @param {(pointer: number) => T} use
   */
  #within(bytes, use) {
    const pointer = this.#allocate(bytes);
    try {
      return use(pointer);
    } finally {
      this.#c.free(pointer);
    }
  }

  /** @param {number} role @returns {Parameter[]} */
  #parameters(role) {
    const found = [];
    for (let i = 0, at; (at = this.#c.meta_program_parameter(this.#pointer, role, i) >>> 0); ++i) {
      const view = this.#view();
      found.push({
        name: this.#text(view.getUint32(at + PARAMETER.name, true)),
        dtype: DTYPES[view.getInt32(at + PARAMETER.dtype, true)][0],
        shape: sizes(view, view.getUint32(at + PARAMETER.shape, true), view.getInt32(at + PARAMETER.ndim, true)),
        updated: view.getInt32(at + PARAMETER.updated, true) !== 0,
      });
    }
    return found;
  }

  /**
   * Copy an input to the program.
   * @param {number} i
   * @param {Tensor} value
   */
  #fill(i, value) {
    const bytes = toBytes(value.data), buffer = this.#buffers[i];
    if (buffer.bytes < bytes.length) {
      this.#c.free(buffer.pointer);
      buffer.bytes = -1;
      buffer.pointer = 0;
      buffer.pointer = this.#allocate(bytes.length);
      buffer.bytes = bytes.length;
    }
    new Uint8Array(this.#c.memory.buffer).set(bytes, buffer.pointer);
    const view = this.#view(), tensor = this.#tensors + TENSOR.bytes * i;
    view.setUint32(tensor, buffer.pointer, true);
    value.shape.slice(0, MAX_AXES).forEach((size, axis) => {
      view.setBigInt64(tensor + TENSOR.shape + 8 * axis, BigInt(size), true);
    });
    view.setInt32(tensor + TENSOR.ndim, value.shape.length, true);
    view.setInt32(tensor + TENSOR.dtype, DTYPES.findIndex((row) => row[0] === value.dtype), true);
  }

  /** @param {string} name @returns {number} the meta_tensor of a state */
  #stateTensor(name) {
    const program = this.#opened(), text = new TextEncoder().encode(`${name}\0`);
    this.#within(text.length, (pointer) => {
      new Uint8Array(this.#c.memory.buffer).set(text, pointer);
      this.#check(this.#c.meta_program_tensor(program, pointer, this.#tensors));
    });
    return this.#tensors;
  }

  /** @param {number} at @returns {Tensor} a copy of a meta_tensor */
  #tensor(at) {
    const view = this.#view();
    const [dtype, , kind, items] = DTYPES[view.getInt32(at + TENSOR.dtype, true)];
    const shape = sizes(view, at + TENSOR.shape, view.getInt32(at + TENSOR.ndim, true));
    const data = new kind(this.#c.memory.buffer, view.getUint32(at, true), product(shape) * items).slice();
    return { dtype, shape, data };
  }
}

/** @param {DataView} view @param {number} at @param {number} ndim */
function sizes(view, at, ndim) {
  return Array.from({ length: ndim }, (_, axis) => Number(view.getBigInt64(at + 8 * axis, true)));
}

/** @param {number[]} shape */
function product(shape) {
  return shape.reduce((a, b) => a * b, 1);
}

/**
 * The elements and the shape of a value that is passed for a parameter.
 * @param {Parameter} parameter
 * @param {any} value
 * @returns {Tensor}
 */
function elements({ name, dtype, shape: expected }, value) {
  const { data, shape = expected } = ArrayBuffer.isView(value) ? { data: value } : value ?? {};
  const [, , kind, items] = rowOf(dtype);
  const given = data?.[Symbol.toStringTag] ?? typeof (data ?? value);
  if (given !== kind.name)
    throw new ProgramError(ProgramError.DTYPE, `'${name}' is of type ${given}; expected ${kind.name}, for ${dtype}`);
  if (shape.includes(-1))
    throw new ProgramError(ProgramError.SHAPE, `'${name}' has open sizes; expected {data, shape}`);
  if (!shape.every(Number.isSafeInteger) || data.length !== product(shape) * items)
    throw new ProgramError(ProgramError.SHAPE, `'${name}' has ${data.length} items, which are no [${shape}] of ${dtype}`);
  return { dtype, shape: [...shape], data };
}
