// Live figures: server-sent events, for as long as there is a listener.

const listeners = new Set();
let stream = null, last = null, state = "closed", isFirst = true;

/** Told of each change of the connection: "open", "lost". */
export const watch = { onState: () => {} };

function setState(next) {
  if (state === next) return;
  state = next;
  watch.onState(state);
}

function open() {
  // A browser has few connections to a host: hidden pages give theirs back.
  if (document.hidden) return;
  stream = new EventSource("/v1/live");
  stream.onopen = () => {
    isFirst = true;
    setState("open");
  };
  stream.onmessage = (event) => {
    last = JSON.parse(event.data);
    for (const listener of listeners) listener(last, isFirst);
    isFirst = false;
  };
  stream.onerror = () => {
    setState("lost");
    // The browser tries again by itself, unless the answer was an error: then the session may be over, or weir restarts.
    if (stream?.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(() => listeners.size && !stream && open(), 2000);
    }
  };
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stream?.close();
    stream = null;
  } else if (listeners.size && !stream) open();
});

/** Calls `listener` with each event, and whether it is the first of a connection. Returns a function that ends this. */
export function listen(listener) {
  listeners.add(listener);
  if (last) listener(last, false);
  if (!stream) open();
  return () => {
    listeners.delete(listener);
    if (listeners.size) return;
    stream?.close();
    stream = null;
    last = null;
    setState("closed");
  };
}

export function stop() {
  listeners.clear();
  stream?.close();
  stream = null;
  last = null;
  setState("closed");
}
