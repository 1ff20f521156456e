/** An operation of the API, as the generated code describes it. */
export interface Operation {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Relative to the API: `/tickets/{id}`. */
  readonly path: string;
  /** The names of query parameters that differ on the wire. */
  readonly wire?: Readonly<Record<string, string>>;
}

/** Throws a TypeError for a header value that could end the header. */
export function checkHeader(name: string, value: string): string {
  if (!/^[\x20-\x7e]+$/.test(value)) {
    throw new TypeError(`The value of ${name} must be printable ASCII.`);
  }
  return value;
}

/** Returns the path of an operation with the values of its parameters, in order. */
export function buildPath(template: string, values: readonly string[]): string {
  let next = 0;
  return template.replace(/\{\w+\}/g, (name) => {
    const value = values[next++];
    if (typeof value !== "string" || value === "" || value === "." || value === "..") {
      throw new TypeError(`The value of ${name.slice(1, -1)} must be an id.`);
    }
    return encodeURIComponent(value).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  });
}

/** Returns the query of an operation with its question mark, or an empty string. */
export function buildQuery(operation: Operation, params: object): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params) as [string, unknown][]) {
    const wire = operation.wire?.[name] ?? name;
    if (value === undefined || value === null) {
      continue;
    }
    if (!Array.isArray(value)) {
      query.append(wire, text(value));
    } else if (wire.endsWith("[]")) {
      value.forEach((v) => query.append(wire, text(v)));
    } else {
      query.append(wire, value.map((v) => withoutComma(name, text(v))).join(","));
    }
  }
  return query.size === 0 ? "" : `?${query}`;
}

function withoutComma(name: string, value: string): string {
  if (value.includes(",")) {
    throw new TypeError(`A value of ${name} must not contain a comma.`);
  }
  return value;
}

function text(value: unknown): string {
  return value instanceof Date ? value.toISOString() : String(value);
}
