// Checks files of a feed by the type suites that MobilityData publishes for each version of GBFS.
//
//   node check.mjs v2.3 FOLDER    prints a line per fault of FOLDER's *.json, each named for its suite
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { createCheckers } from "ts-interface-checker";

const [version, folder] = process.argv.slice(2);
const suites = join("node_modules", "gbfs-typescript-types", version, "test-type-checkers");

for (const file of readdirSync(folder).sort()) {
  const name = basename(file, ".json");
  // The suites are TypeScript, but for one annotation JavaScript.
  const source = readFileSync(join(suites, `${name}-ti.ts`), "utf8").replace(": t.ITypeSuite", "");
  writeFileSync(`${name}.mjs`, source);
  const suite = (await import(pathToFileURL(`${name}.mjs`))).default;
  const root = Object.keys(suite)[0]; // the file is the first type
  const value = JSON.parse(readFileSync(join(folder, file), "utf8"));
  for (const fault of createCheckers(suite)[root].validate(value) ?? []) {
    console.log(`${file}: ${fault.path} ${fault.message} ${JSON.stringify(fault.nested ?? [])}`);
  }
}
