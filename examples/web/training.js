// LeNet's training on handwritten digits, without a page.
import { open, readTensors } from "./step/program.js";

const CELLS = 8, SCALE = 3, BORDER = 2, SIDE = CELLS * SCALE + 2 * BORDER;

/**
 * Pixels of 8x8 images, 0 to 16, as images of 28x28 with 0 to 1: each pixel becomes 3x3, with 2 around the image.
 * @param {ArrayLike<number>} pixels
 */
export function enlarge(pixels) {
  const count = pixels.length / CELLS ** 2, images = new Float32Array(count * SIDE ** 2);
  for (let i = 0; i < count; ++i)
    for (let y = 0; y < CELLS * SCALE; ++y)
      for (let x = 0; x < CELLS * SCALE; ++x)
        images[(i * SIDE + y + BORDER) * SIDE + x + BORDER] =
          pixels[(i * CELLS + Math.floor(y / SCALE)) * CELLS + Math.floor(x / SCALE)] / 16;
  return images;
}

/**
 * The 8x8 pixels, 0 to 16, of a drawing: its ink, moved to the middle and scaled to fill the height or the width.
 * @param {Uint8ClampedArray} ink of `side` rows and columns
 * @param {number} side
 */
export function shrink(ink, side) {
  const inked = [...ink.keys()].filter((i) => ink[i] > 127);
  const pixels = new Float32Array(CELLS ** 2);
  if (!inked.length) return pixels;
  const range = (positions) => positions.reduce(([a, b], p) => [Math.min(a, p), Math.max(b, p + 1)], [side, 0]);
  const [left, right] = range(inked.map((i) => i % side)), [top, bottom] = range(inked.map((i) => Math.floor(i / side)));
  const cell = Math.max(right - left, bottom - top) / CELLS;
  const x0 = (left + right - CELLS * cell) / 2, y0 = (top + bottom - CELLS * cell) / 2;
  for (const i of inked) {
    const x = Math.floor(((i % side) + 0.5 - x0) / cell), y = Math.floor((Math.floor(i / side) + 0.5 - y0) / cell);
    pixels[y * CELLS + x] += 16 / cell ** 2;
  }
  return pixels.map((value) => Math.min(16, value));
}

export class Training {
  /** The loss of each step. @type {number[]} */ losses = [];
  #step; #classify; #first; #digits; #batch;

  /**
   * Open the programs with the first weights.
   * @param {(name: string) => any} file the URL or the bytes of a file of this folder
   */
  static async open(file) {
    const training = new Training();
    const [step, classify, digits] = await Promise.all([
      open(await file("step/program.wasm"), await file("step/program.safetensors")),
      open(await file("classify/program.wasm"), await file("classify/program.safetensors")),
      bytes(await file("digits.safetensors")),
    ]);
    training.#step = step;
    training.#classify = classify;
    training.#first = step.save();
    training.#digits = readTensors(digits);
    training.#batch = step.inputs[0].shape[0];
    return training;
  }

  /** Train on the next batch. Returns the loss. */
  step() {
    const images = this.#digits["trained.images"].data, labels = this.#digits["trained.labels"].data;
    const batches = Math.floor(labels.length / this.#batch), size = CELLS ** 2;
    const start = (this.losses.length % batches) * this.#batch, end = start + this.#batch;
    const [loss] = this.#step.run({
      images: enlarge(images.subarray(start * size, end * size)),
      labels: BigInt64Array.from(labels.subarray(start, end), BigInt),
    });
    this.losses.push(loss.data[0]);
    return loss.data[0];
  }

  /** Go back to the first weights. */
  restart() {
    this.#step.load(this.#first);
    this.share();
    this.losses = [];
  }

  /** Give the trained weights to the program that classifies. */
  share() {
    this.#classify.load(this.#step.save());
  }

  /**
   * The probabilities of the ten digits, by the weights that `share` gave.
   * @param {ArrayLike<number>} pixels 8x8, 0 to 16
   */
  classify(pixels) {
    return this.#classify.run({ image: enlarge(pixels) })[0].data;
  }

  /** The number of digits that are not trained on. */
  get heldOut() {
    return this.#digits["held_out.labels"].data.length;
  }

  /** A digit that is not trained on: 8x8 pixels, and the label. */
  digit(i) {
    const pixels = this.#digits["held_out.images"].data.subarray(i * CELLS ** 2, (i + 1) * CELLS ** 2);
    return { pixels, label: this.#digits["held_out.labels"].data[i] };
  }

  /** The share of digits that are not trained on and are classified correctly, by the weights that `share` gave. */
  accuracy() {
    let right = 0;
    for (let i = 0; i < this.heldOut; ++i) {
      const { pixels, label } = this.digit(i), probabilities = this.classify(pixels);
      right += probabilities.indexOf(Math.max(...probabilities)) === label;
    }
    return right / this.heldOut;
  }
}

async function bytes(source) {
  return source instanceof URL ? (await fetch(source)).arrayBuffer() : source;
}
