// Documents that components show: asked again when the log goes on, kept while the next one is under way.
import { useEffect, useRef, useState } from "./html.js";
import { Refused, get, list } from "./api.js";
import { newest, pauseMs, spreadMs } from "./live.js";
import { moment, place } from "./location.js";
import { Store, useStore } from "./store.js";

/** Sequence and time of what is on screen. @type {Store<{sequence: number, at: string}>} */
export const shown = new Store({ sequence: 0, at: "" });

/** A document is asked for again after so many times what its answer took, at least. */
const PAUSE_FACTOR = 5;

/** @typedef {{data: any, more: boolean, error: Refused | null, loading: boolean, again: () => void}} Resource */

/**
 * @param {string} path "" asks nothing
 * @param {Record<string, string>} [params]
 * @param {{all?: number, timeless?: boolean}} [how] all: so many rows of a list; timeless: the route takes no moment
 * @returns {Resource}
 */
export function useResource(path, params = {}, how = {}) {
  useStore(place);
  const at = how.timeless ? "" : moment();
  const key = JSON.stringify([path, params, at]);
  const [state, setState] = useState(/** @type {any} */ ({ key: "", data: null, more: false, error: null, loading: true }));
  const [round, setRound] = useState(0);
  const ready = useRef(0);
  const have = useRef(0);
  const filled = useRef("");

  useEffect(() => {
    if (!path) return undefined;
    const ending = new AbortController();
    const began = performance.now();
    const onFirst = filled.current === key ? undefined : (/** @type {any[]} */ rows) => setState({ key, data: rows, more: true, error: null, loading: true });
    const asked = how.all ? list(path, params, { signal: ending.signal, most: how.all, timeless: how.timeless, onFirst }) : get(path, params, { signal: ending.signal, timeless: how.timeless });
    asked.then(
      (answer) => {
        ready.current = performance.now() + Math.max(pauseMs.value, PAUSE_FACTOR * (performance.now() - began));
        filled.current = key;
        have.current = how.timeless ? 0 : answer.sequence;
        setState({ key, data: answer.data, more: "more" in answer && answer.more, error: null, loading: false });
        if (answer.sequence && !how.timeless) shown.set({ sequence: answer.sequence, at: answer.at });
      },
      (error) => {
        if (ending.signal.aborted) return;
        ready.current = performance.now() + 3000;
        // A gateway that is away leaves what was there on screen; a refusal replaces it.
        setState((/** @type {any} */ old) => ({ ...old, key, data: error.status === 0 && old.key === key ? old.data : null, error, loading: false }));
      },
    );
    return () => ending.abort();
  }, [key, round]);

  // The log goes on: ask again, not before the pause is over. In the past nothing changes.
  useEffect(() => {
    if (at || !path) return undefined;
    let timer = 0;
    const later = () => {
      if (timer || document.hidden || have.current >= newest.value) return;
      timer = window.setTimeout(() => {
        timer = 0;
        setRound((each) => each + 1);
      }, Math.max(50 + spreadMs(), ready.current - performance.now()));
    };
    const ends = newest.follow(later);
    document.addEventListener("visibilitychange", later);
    return () => {
      ends();
      document.removeEventListener("visibilitychange", later);
      clearTimeout(timer);
    };
  }, [key]);

  const current = state.key === key;
  return { data: state.data, more: state.more, error: current ? state.error : null, loading: !current || state.loading, again: () => setRound((each) => each + 1) };
}
