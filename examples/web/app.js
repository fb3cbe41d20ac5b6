// The page: trains in steps between frames, draws the losses, and classifies what is drawn.
import { shrink, Training } from "./training.js";

const FRAME = 12; // ms of steps in a frame
const STEPS = 400; // of a training
const EVALUATED = 50; // steps between measurements of the accuracy

const element = (id) => document.getElementById(id);
const [curve, drawing] = ["curve", "drawing"].map((id) => element(id).getContext("2d", { willReadFrequently: true }));
const meters = Array.from({ length: 10 }, (_, digit) => {
  const row = element("probabilities").insertRow(), head = document.createElement("th"), meter = document.createElement("meter");
  head.scope = "row";
  head.textContent = String(digit);
  meter.setAttribute("aria-label", `the probability of ${digit}`);
  row.append(head);
  row.insertCell().append(meter);
  return meter;
});

let training, accuracy = "", isRunning = false, sampled = -1;

async function train() {
  isRunning = true;
  element("train").textContent = "Pause";
  while (isRunning && training.losses.length < STEPS) {
    const start = performance.now(), before = training.losses.length;
    do {
      training.step();
      if (training.losses.length % EVALUATED === 0) evaluate();
    } while (training.losses.length < STEPS && performance.now() - start < FRAME);
    report((performance.now() - start) / (training.losses.length - before));
    await new Promise(requestAnimationFrame);
  }
  pause();
}

function pause() {
  isRunning = false;
  element("train").textContent = "Train";
  element("train").disabled = training.losses.length >= STEPS;
  evaluate();
  report();
}

function evaluate() {
  training.share();
  accuracy = `; ${(100 * training.accuracy()).toFixed(1)} % of ${training.heldOut} other digits are classified correctly`;
}

function report(time) {
  const { losses } = training, last = losses.length ? `, loss ${losses.at(-1).toFixed(4)}` : "";
  const speed = time === undefined ? "" : `, ${time.toFixed(1)} ms a step`;
  element("progress").textContent = `step ${losses.length} of ${STEPS}${last}${speed}${accuracy}`;
  drawCurve(losses);
  training.share();
  classify();
}

function drawCurve(losses) {
  const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
  const { width, height } = curve.canvas, [left, bottom, top] = [80, height - 60, 20];
  const right = width - 40, x = (step) => left + ((right - left) * step) / STEPS;
  const largest = Math.max(1, ...losses), y = (loss) => bottom - ((bottom - top) * loss) / largest;
  curve.clearRect(0, 0, width, height);
  curve.font = "24px system-ui, sans-serif";
  curve.textAlign = "center";
  curve.fillStyle = colour("--text");
  curve.strokeStyle = colour("--line");
  curve.beginPath();
  for (let loss = 0; loss <= largest; loss += 0.5) {
    curve.moveTo(left, y(loss));
    curve.lineTo(right, y(loss));
    curve.fillText(loss.toFixed(1), left / 2, y(loss) + 8);
  }
  curve.stroke();
  for (let step = 0; step <= STEPS; step += 100) curve.fillText(String(step), x(step), height - 20);
  curve.strokeStyle = colour("--accent");
  curve.lineWidth = 3;
  curve.beginPath();
  losses.forEach((loss, i) => curve.lineTo(x(i + 1), y(loss)));
  curve.stroke();
  curve.lineWidth = 1;
}

// --- the drawing, black on white in all themes

function clear() {
  drawing.fillStyle = "#fff";
  drawing.fillRect(0, 0, drawing.canvas.width, drawing.canvas.height);
}

function drawn() {
  const { width, height } = drawing.canvas, rgba = drawing.getImageData(0, 0, width, height).data;
  return shrink(Uint8ClampedArray.from({ length: width * height }, (_, i) => 255 - rgba[4 * i]), width);
}

function classify() {
  const pixels = sampled < 0 ? drawn() : training.digit(sampled).pixels;
  const isEmpty = !pixels.some((value) => value);
  const probabilities = isEmpty ? new Float32Array(10) : training.classify(pixels);
  probabilities.forEach((value, digit) => { meters[digit].value = value; });
  const best = probabilities.indexOf(Math.max(...probabilities));
  const label = sampled < 0 ? "" : `; it is a ${training.digit(sampled).label}`;
  element("answer").textContent = isEmpty ? "" : `This is a ${best} (${Math.round(100 * probabilities[best])} %)${label}.`;
}

function sample() {
  sampled = (sampled + 1) % training.heldOut;
  const { pixels } = training.digit(sampled), cell = drawing.canvas.width / 8;
  pixels.forEach((value, i) => {
    drawing.fillStyle = `rgb(${Array(3).fill(255 - Math.min(255, 16 * value)).join(" ")})`;
    drawing.fillRect((i % 8) * cell, Math.floor(i / 8) * cell, cell, cell);
  });
  classify();
}

function stroke(event) {
  const { canvas } = drawing, box = canvas.getBoundingClientRect();
  const at = (p) => [((p.clientX - box.left) * canvas.width) / box.width, ((p.clientY - box.top) * canvas.height) / box.height];
  const [x, y] = at(event);
  if (sampled >= 0) clear();
  sampled = -1;
  if (event.type !== "pointermove") {
    drawing.beginPath();
    drawing.moveTo(x, y);
  }
  Object.assign(drawing, { lineWidth: 13, lineCap: "round", lineJoin: "round", strokeStyle: "#000" });
  drawing.lineTo(x, y);
  drawing.stroke();
  if (training) classify();
}

for (const type of ["pointerdown", "pointerenter", "pointermove"])
  element("drawing").addEventListener(type, (event) => {
    if (event.buttons & 1) stroke(event);
  });
element("clear").addEventListener("click", () => {
  sampled = -1;
  clear();
  if (training) classify();
});
element("sample").addEventListener("click", sample);
element("train").addEventListener("click", () => (isRunning ? (isRunning = false) : train()));
element("restart").addEventListener("click", () => {
  training.restart();
  pause();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => training && drawCurve(training.losses));

clear();
try {
  training = await Training.open((name) => new URL(name, import.meta.url));
  for (const id of ["train", "restart", "sample"]) element(id).disabled = false;
  pause();
} catch (error) {
  element("progress").textContent = `The programs cannot run here: ${error.message}`;
  throw error;
}
