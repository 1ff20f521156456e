import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));

// Names that the README's snippets use and do not define.
const names = `
import type * as kickstand from "@kickstand/client";
declare const helpdesk: kickstand.Helpdesk, fleet: kickstand.Fleet, vehicles: kickstand.VehicleCreate[];
declare const ticket: kickstand.Ticket, customer: kickstand.Customer, rider: kickstand.FleetCustomer, id: string;
declare const { readFile, writeFile }: typeof import("node:fs/promises");
`;

test("the README's programs compile", () => {
  const folder = mkdtempSync(join(root, "dist-test", "readme-"));
  try {
    const blocks = Array.from(readFileSync(join(root, "README.md"), "utf8").matchAll(/^```ts\n([^]*?)^```/gm));
    assert.ok(blocks.length > 5);
    const files = blocks.map(([, block = ""], i) => {
      const imports = i === 0 ? "" : `import { Fleet, Helpdesk } from "@kickstand/client";${names}`;
      const statements = block.replace(/^import .*\n/gm, "");
      const text = `${(block.match(/^import .*\n/gm) ?? []).join("")}${imports}{\n${statements}\n}\n`;
      const file = join(folder, `${i}.ts`);
      writeFileSync(file, text);
      return file;
    });
    const options = ["--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--types", "node"];
    execFileSync(join(root, "node_modules", ".bin", "tsc"), ["--ignoreConfig", ...options, ...files], { cwd: root });
  } catch (error) {
    assert.fail(String((error as { stdout?: Buffer }).stdout ?? error));
  } finally {
    rmSync(folder, { recursive: true });
  }
});
