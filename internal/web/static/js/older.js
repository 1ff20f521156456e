// Rows of a long list: the page with more of them is loaded and morphed, so that input,
// selection and focus stay. The address follows, for live updates and for the way back.
import { morph } from "./live.js";

const first = 25;
const step = 50;
const most = 500; // then the link leads on

// load reports whether there are new rows.
export async function load(end) {
  const address = new URL(location.href);
  const shown = Number(address.searchParams.get("rows")) || first;
  if (shown >= most) return false;
  address.searchParams.set("rows", Math.min(shown + step, most));
  const response = await fetch(address, { headers: { "X-Live": "1" } }).catch(() => null);
  if (!response?.ok || response.redirected) return false;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const rows = document.getElementById("rows");
  morph(rows, page.getElementById("rows"));
  rows.querySelectorAll(".arrived").forEach((row) => row.classList.remove("arrived"));
  morph(end, page.getElementById("older"));
  history.replaceState(history.state, "", address);
  return true;
}
