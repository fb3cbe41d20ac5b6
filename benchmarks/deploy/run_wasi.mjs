// node run_wasi.mjs PROGRAM.wasm FOLDER ...: runs a program of wasm32-wasi that may read FOLDER, under its own name.
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const [path, folder, ...rest] = process.argv.slice(2);
const preopens = { [folder]: folder };
const wasi = new WASI({ version: "preview1", args: [path, folder, ...rest], preopens, returnOnExit: true });
const module = await WebAssembly.compile(await readFile(path));
process.exit(wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject())));
