// Runs the program with example inputs, and shows the beginning of its results.
import { open, zeros } from "./program.js";

const element = (id) => document.getElementById(id);

/** Numbers between 0 and 1, zeros for integers, and 2 for open sizes. */
function example({ dtype, shape }) {
  const tensor = zeros({ dtype, shape: shape.map((size) => (size < 0 ? 2 : size)) });
  if (/^(float32|float64|complex64)$/.test(dtype)) tensor.data.forEach((_, i) => { tensor.data[i] = (i * 0.618034) % 1; });
  return tensor;
}

function show(table, rows) {
  table.querySelector("tbody")?.remove();
  const body = table.createTBody();
  for (const { name, dtype, shape, data } of rows) {
    const row = body.insertRow(), head = document.createElement("th");
    head.scope = "row";
    head.textContent = name;
    row.append(head);
    for (const text of [`${dtype} [${shape.join(", ")}]`, [...data.slice(0, 8)].map(brief).join(", ")])
      row.insertCell().textContent = text;
    if (data.length > 8) row.lastElementChild.append(", ...");
  }
}

const brief = (value) => (typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value));

try {
  const program = await open("program.wasm", document.querySelector("main").dataset.weights || undefined);
  const inputs = Object.fromEntries(program.inputs.map((each) => [each.name, example(each)]));
  const run = () => {
    const start = performance.now(), results = program.run(inputs), time = performance.now() - start;
    show(element("inputs"), program.inputs.map((each) => ({ ...each, ...inputs[each.name] })));
    show(element("results"), results.map((result, i) => ({ ...program.results[i], ...result })));
    element("status").textContent = `${time.toFixed(2)} ms; ${program.memory.toLocaleString()} bytes of memory`;
  };
  run();
  element("run").addEventListener("click", run);
  element("run").disabled = false;
} catch (error) {
  element("status").textContent = `The program cannot run here: ${error.message}`;
  throw error;
}
