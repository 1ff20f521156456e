import type { Deadline } from "./deadline.js";
import { ConnectionError, KickstandError } from "./errors.js";

/** The longest JSON text that is read: bytes of an answer, characters of a line. */
const longest = 64 << 20;

/** Returns the chunks of a body as text. Each one extends the deadline; the last one ends it. */
export async function* textChunks(response: Response, deadline: Deadline): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder();
  for await (const chunk of byteChunks(response, deadline)) {
    const text = decoder.decode(chunk, { stream: true });
    if (text !== "") {
      yield text;
    }
  }
  const rest = decoder.decode();
  if (rest !== "") {
    yield rest;
  }
}

/** Returns the chunks of a body. Each one extends the deadline; the last one ends it. */
export function byteChunks(response: Response, deadline: Deadline): AsyncGenerator<Uint8Array, void, undefined> {
  return readChunks(response, deadline, () => deadline.extend());
}

async function* readChunks(
  response: Response,
  deadline: Deadline,
  onChunk: () => void,
): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = response.body?.getReader();
  let finished = false;
  try {
    while (reader !== undefined) {
      const { done, value } = await reader.read().catch((cause: unknown) => {
        throw deadline.failure(cause);
      });
      if (done) {
        break;
      }
      onChunk();
      yield value;
    }
    finished = true;
  } finally {
    deadline.stop();
    if (!finished) {
      reader?.cancel().catch(() => {}); // a broken stream has nothing to cancel
    }
  }
}

/** Returns a whole body as text, which must arrive before the deadline. */
export async function readText(response: Response, deadline: Deadline): Promise<string> {
  const decoder = new TextDecoder();
  const chunks: string[] = [];
  let size = 0;
  for await (const chunk of readChunks(response, deadline, () => {})) {
    size += chunk.length;
    if (size > longest) {
      throw new KickstandError("The answer is larger than 64 MiB.");
    }
    chunks.push(decoder.decode(chunk, { stream: true }));
  }
  return chunks.join("") + decoder.decode();
}

/** Returns the values of NDJSON. Every line must end with a line break. */
export async function* jsonLines(chunks: AsyncIterable<string>): AsyncGenerator<unknown, void, undefined> {
  let rest = "";
  for await (const chunk of chunks) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > longest) {
      throw new KickstandError("A line of the answer is larger than 64 MiB.");
    }
    for (const line of lines) {
      if (line.trim() !== "") {
        yield parseLine(line);
      }
    }
  }
  if (rest !== "") {
    throw cutShort();
  }
}

function parseLine(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch (cause) {
    throw new KickstandError("A line of the answer is not JSON.", { cause });
  }
}

/** Returns the error of an answer that ended too early. */
export function cutShort(): ConnectionError {
  return new ConnectionError("The answer was cut short.");
}

/** Returns records as a stream of NDJSON. Each record extends the deadline. */
export function ndjsonBody(
  records: Iterable<unknown> | AsyncIterable<unknown>,
  deadline: Deadline,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const source = iterate(records);
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await source.next();
        deadline.extend();
        if (done) {
          controller.close();
        } else {
          controller.enqueue(encoder.encode(`${JSON.stringify(value)}\n`));
        }
      } catch (error) {
        deadline.fail(error);
        throw error;
      }
    },
    async cancel() {
      await source.return();
    },
  });
}

async function* iterate(records: Iterable<unknown> | AsyncIterable<unknown>): AsyncGenerator<unknown, void, undefined> {
  yield* records;
}
