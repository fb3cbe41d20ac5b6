// Runs a WebAssembly program with standard input and output.
import { readFileSync } from "node:fs";
import { argv } from "node:process";
import { WASI } from "node:wasi";

const wasi = new WASI({ version: "preview1", args: argv.slice(2), env: {} });
const module = await WebAssembly.compile(readFileSync(argv[2]));
process.exitCode = wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject()));
