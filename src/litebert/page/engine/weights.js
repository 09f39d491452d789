// The arrays of an ONNX file by name, nothing else: protocol buffers are numbered fields, of which six matter here.
const GRAPH = 7; // of the model
const INITIALIZER = 5; // of the graph
const [DIMS, NAME, RAW] = [1, 8, 9]; // of an array
const [VARINT, FIXED64, BYTES, FIXED32] = [0, 1, 2, 5];

/** Reads a whole number at a place; numbers take 7 bits of each byte, the last byte being below 128. */
function varint(bytes, at) {
  let value = 0;
  for (let scale = 1; ; scale *= 128, at += 1) {
    if (at >= bytes.length) throw new Error("the file of the model is cut short");
    value += (bytes[at] & 127) * scale;
    if (bytes[at] < 128) return [value, at + 1];
  }
}

/** The fields of a message: [number, value], where a value is a whole number or bytes; fractions are skipped. */
function* fields(bytes) {
  let at = 0;
  let [key, value] = [0, 0];
  while (at < bytes.length) {
    [key, at] = varint(bytes, at);
    const kind = key % 8;
    if (kind === FIXED64 || kind === FIXED32) { at += kind === FIXED64 ? 8 : 4; continue; }
    if (kind !== VARINT && kind !== BYTES) throw new Error("the file of the model is damaged");
    [value, at] = varint(bytes, at);
    if (kind === BYTES) {
      if (at + value > bytes.length) throw new Error("the file of the model is cut short");
      at += value;
      value = bytes.subarray(at - value, at);
    }
    yield [Math.floor(key / 8), value];
  }
}

function* varints(bytes) {
  let [value, at] = [0, 0];
  while (at < bytes.length) {
    [value, at] = varint(bytes, at);
    yield value;
  }
}

/** {name: {shape, bytes}} of a whole file. */
export function readArrays(file) {
  const arrays = {};
  for (const [number, graph] of fields(new Uint8Array(file.buffer, file.byteOffset, file.byteLength))) {
    if (number !== GRAPH) continue;
    for (const [kind, array] of fields(graph)) {
      if (kind !== INITIALIZER) continue;
      const found = { shape: [], bytes: new Uint8Array(0) };
      let name = "";
      for (const [field, value] of fields(array)) {
        if (field === DIMS) found.shape.push(...(typeof value === "number" ? [value] : varints(value)));
        else if (field === NAME) name = new TextDecoder().decode(value);
        else if (field === RAW) found.bytes = value;
      }
      arrays[name] = found;
    }
  }
  return arrays;
}
