import { readFileSync } from "node:fs";
import { verifyFormA, verifyFormB, verifyStandard } from "./verify.mjs";

const decode = (s) => Buffer.from(s, "base64");

for (const line of readFileSync(0, "ascii").split("\n").slice(0, -1)) {
  const [form, now, secret, body, ...rest] = line.split("\t");
  const headers = {};
  for (let i = 0; i < rest.length; i += 2) headers[rest[i].toLowerCase()] = decode(rest[i + 1]).toString();
  const verify = { a: verifyFormA, b: verifyFormB, standard: verifyStandard }[form];
  console.log(verify(headers, decode(body), decode(secret).toString(), Number(now)));
}
