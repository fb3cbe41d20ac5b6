/** The program $name, see program.js. */

export interface Tensor<Elements = TypedArray> {
  dtype: string;
  shape: number[];
  data: Elements;
}

export interface Parameter {
  name: string;
  dtype: string;
  /** -1 for sizes that differ from call to call */
  shape: number[];
  /** whether runs write to it */
  updated: boolean;
}

export type TypedArray =
  | Uint8Array | Uint16Array | Uint32Array | BigUint64Array | Int8Array | Int16Array | Int32Array | BigInt64Array
  | Float32Array | Float64Array;
export type Shaped<Elements> = { data: Elements; shape: number[] };
export type Bytes = ArrayBuffer | ArrayBufferView;
export type Source = string | URL | Response | Bytes;

export interface Inputs {
$inputs}

export type Results = [$results];

/** Parameters, buffers, the state of an optimizer, random generators and constants. */
export interface State {
$state}

export interface Program {
  readonly inputs: Parameter[];
  readonly state: Parameter[];
  readonly results: Parameter[];
  /** The bytes that the program has allocated. */
  readonly memory: number;
  /** Run once. Inputs that the program updates are written in place. */
  run(inputs: Inputs): Results;
  /** A copy of state, a generator or a constant. */
  get<Name extends keyof State>(name: Name): Tensor<State[Name]>;
  /** Write state, a generator or a constant. */
  set<Name extends keyof State>(name: Name, value: State[Name] | Shaped<State[Name]>): void;
  /** Read the tensors of a file in the safetensors format that the program has by name. */
  load(file: Bytes): void;
  /** State, generators and constants as a file in the safetensors format. */
  save(): Uint8Array;
  /** Restart the random generators. */
  seed(seed: number | bigint): void;
  /** Free the program. Nothing else may be called afterwards. */
  close(): void;
}

/** An error of a program. code: of meta_error in meta_program.h. */
export class ProgramError extends Error {
  readonly code: number;
}

/** A program of its own state. code: by default program.wasm beside this file.  weights: in the safetensors format. */
export function open(code?: Source | WebAssembly.Module, weights?: Source): Promise<Program>;

/** A tensor of zeros. */
export function zeros(parameter: { dtype: string; shape: number[] }): Tensor;

/** The tensors of a file in the safetensors format, by name. */
export function readTensors(file: Bytes): Record<string, Tensor>;
