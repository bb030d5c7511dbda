// The admin API of the proxy that serves this page.

export class ApiError extends Error {}

/** A path beside this page. `fetch` takes none where the address of the page holds a user and a password. */
export const beside = (path) => new URL(path, location.origin + location.pathname);

async function answer(response) {
  const found = await response.json().catch(() => null);
  if (!response.ok) throw new ApiError(found?.error?.message || `the proxy answered ${response.status}`);
  return found;
}

async function call(path, options) {
  try {
    return await answer(await fetch(beside(path), options));
  } catch (error) {
    if (error instanceof ApiError || error.name === "AbortError") throw error;
    throw new ApiError("the proxy does not answer; is `lantern serve` still running?");
  }
}

export function get(path, asked = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(asked).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  return call(`${path}${query.size ? `?${query}` : ""}`, { signal, headers: { accept: "application/json" } });
}

export const post = (path, body) =>
  call(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
